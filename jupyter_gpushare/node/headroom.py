"""How much host memory a process may still take: the machine's, and that of every cgroup above it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

ENDLESS = 2**60  # cgroup v1 writes "no limit" as a number of about this size


def free(pids: tuple[int, ...], root: Path = Path("/")) -> int | None:
    """Bytes that these processes may take together; None where the machine does not say."""
    machine = _available(root / "proc/meminfo")
    if machine is None:
        return None
    return min([machine, *(left for pid in pids for left in _cgroups(pid, root))])


def _available(meminfo: Path) -> int | None:
    try:
        lines = meminfo.read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")), None)


def _cgroups(pid: int, root: Path) -> Iterator[int]:
    """What is left in each cgroup from the process's own to the root; those of a foreign namespace are not there.

    Beyond memory.max processes are killed, beyond memory.high they are slowed down until a move takes for ever.
    """
    try:
        lines = (root / f"proc/{pid}/cgroup").read_text().splitlines()
    except OSError:
        return
    base = root / "sys/fs/cgroup"
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            top, limits, usage = base, ("memory.max", "memory.high"), "memory.current"
        elif "memory" in controllers.split(","):
            top, limits, usage = base / "memory", ("memory.limit_in_bytes",), "memory.usage_in_bytes"
        else:
            continue
        here = top / path.lstrip("/")
        for folder in (here, *here.parents):
            if folder == base.parent or not folder.is_relative_to(top):
                break
            used = _number(folder / usage)
            for most in (_number(folder / limit) for limit in limits):
                if most is not None and used is not None and most < ENDLESS:
                    yield max(0, most - used + _reclaimable(folder / "memory.stat"))


def _number(file: Path) -> int | None:
    try:
        return int(file.read_text())
    except (OSError, ValueError):  # not there, or "max"
        return None


def _reclaimable(stat: Path) -> int:
    """Bytes of files in memory that nobody used lately: the kernel takes them back first."""
    try:
        lines = stat.read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("inactive_file ")), 0)
