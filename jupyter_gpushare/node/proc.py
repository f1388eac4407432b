"""What the running machine tells of its processes: /proc, read one process at a time."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Protocol

import psutil

SESSION_VARIABLE = "GPUSHARE_SESSION"
SAME_START_S = 1.5  # the boot time that start times are counted from is whole seconds, and moves with the clock
UNREADABLE = (psutil.NoSuchProcess, psutil.AccessDenied, OSError)


@dataclass(frozen=True, slots=True)
class Seen:
    """A living process. None: it exists, but this could not be read."""

    pid: int
    parent: int | None
    started: float | None  # as psutil's create_time gives it
    leader: int | None = None  # of its session as setsid(2) makes them, children stay in it whoever their parent is
    cpu_s: float | None = None  # processor time it has used


class ProcessTable(Protocol):
    """What can be asked about the machine's processes. Only `children` and `inside` look at all of them."""

    def read(self, pid: int) -> Seen | None:
        """None when there is no such process, or only a zombie."""

    def children(self) -> Mapping[int, Sequence[int]]:
        """The pids of each process's children, of all that can be seen."""

    def inside(self, pid: int) -> Sequence[int]:
        """The pids here of those that have the number `pid` in a PID namespace of their own, as in a container."""

    def uid(self, pid: int) -> int | None:
        """Its real user id, None where it cannot be read."""

    def session(self, pid: int) -> str | None:
        """Its GPUSHARE_SESSION, None where there is none or it cannot be read."""

    def namespace(self, pid: int) -> str | None:
        """Its PID namespace: every container has one. None where it cannot be read."""

    def cgroup(self, pid: int) -> str | None:
        """The path of its control group; None where that says nothing or cannot be read."""


class Proc:
    """The table of the running machine.

    It reads /proc/<pid>/stat by itself: every sample does so for every process that matters, and psutil's way to the
    same numbers takes seven times as long.
    """

    def __init__(self, root: Path = Path("/proc")) -> None:
        self._root = str(root)

    def read(self, pid: int) -> Seen | None:
        if not 0 < pid < 2**31:  # some drivers list such
            return None
        try:
            file = os.open(f"{self._root}/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)  # half the time of open()
            try:
                line = os.read(file, 4096)
            finally:
                os.close(file)
        except PermissionError:
            return Seen(pid, None, None)
        except OSError:
            return Seen(pid, None, None) if _hidden(pid) else None
        # proc_pid_stat(5): the command's name, in parentheses, may hold anything; then state, ppid, pgrp, session …
        state, parent, _, leader, *rest = line[line.rindex(b")") + 2 :].split(None, 20)
        if state in b"ZXx":
            return None
        ticks = _ticks_per_s()
        started, cpu_s = int(rest[15]) / ticks + _boot_time(), (int(rest[7]) + int(rest[8])) / ticks
        return Seen(pid, int(parent), started, int(leader), cpu_s)

    def children(self) -> Mapping[int, Sequence[int]]:
        found: dict[int, list[int]] = {}
        for pid in self._pids():
            seen = self.read(pid)
            if seen is not None and seen.parent is not None:
                found.setdefault(seen.parent, []).append(seen.pid)
        return found

    def inside(self, pid: int) -> Sequence[int]:
        return [here for here in self._pids() if self._numbers(here)[1:][-1:] == [pid]]

    def uid(self, pid: int) -> int | None:
        try:
            return psutil.Process(pid).uids().real
        except UNREADABLE:
            return None

    def session(self, pid: int) -> str | None:
        try:
            return psutil.Process(pid).environ().get(SESSION_VARIABLE)
        except UNREADABLE:
            return None

    def namespace(self, pid: int) -> str | None:
        try:
            return os.readlink(f"{self._root}/{pid}/ns/pid")
        except OSError:
            return None

    def cgroup(self, pid: int) -> str | None:
        try:
            with open(f"{self._root}/{pid}/cgroup") as file:
                paths = [line.rstrip("\n").split(":", 2)[2] for line in file]
        except (OSError, IndexError):
            return None
        return next((path for path in reversed(paths) if path != "/"), None)  # the last line is the unified hierarchy

    def _pids(self) -> Iterator[int]:
        return (int(name) for name in os.listdir(self._root) if name.isdigit())

    def _numbers(self, pid: int) -> list[int]:
        """A process's number in each PID namespace it is in, from the one of this process inwards."""
        try:
            with open(f"{self._root}/{pid}/status", "rb") as file:
                found = next((line for line in file if line.startswith(b"NSpid:")), b"")
        except OSError:
            return []
        return [int(number) for number in found.split()[1:]]


def _hidden(pid: int) -> bool:
    """Whether /proc keeps silent about a process that is there (hidepid=2): then it is another user's."""
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except ProcessLookupError:
        pass
    return False


@cache
def _ticks_per_s() -> int:
    return os.sysconf("SC_CLK_TCK")


@cache
def _boot_time() -> float:
    return psutil.boot_time()


def lives(pid: int, started: float) -> bool:
    """Whether that very process is there: pid and start time."""
    return same(Proc().read(pid), started)


def same(seen: Seen | None, started: float) -> bool:
    """A start time that cannot be read proves that nothing ended."""
    return seen is not None and (seen.started is None or abs(seen.started - started) < SAME_START_S)
