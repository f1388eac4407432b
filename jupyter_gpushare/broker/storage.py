"""Where the ledger's file lies: on a local disk, readable by its owner only."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

SYSTEM_FOLDER = Path("/var/lib/gpushare")
LOCAL_FOLDER = Path("/var/tmp")  # noqa: S108  what is made in it is checked to be ours
# On these SQLite's locks hang or lie, and shared memory (WAL) does not work at all.
NETWORK = {"9p", "afs", "beegfs", "ceph", "cifs", "davfs", "glusterfs", "gpfs", "lustre", "ncpfs", "nfs", "nfs4",
           "orangefs", "panfs", "pvfs2", "smb3", "smbfs", "virtiofs", "vboxsf", "wekafs"}  # fmt: skip


def mounts() -> str:
    """The mount table as the kernel prints it; empty where there is none."""
    try:
        return Path("/proc/self/mounts").read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return ""


def on_network(path: Path, table: str | None = None) -> bool:
    """Whether a path lies on a network file system, or on one in user space, by the mount table. May block."""
    real = path.resolve()
    best, kind = -1, ""
    for line in (mounts() if table is None else table).splitlines():
        fields = line.split(" ")
        if len(fields) < 3:
            continue
        point = re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), fields[1])
        if real.is_relative_to(point) and len(point) >= best:  # the last of two mounts on one point is the visible one
            best, kind = len(point), fields[2]
    return kind in NETWORK or (kind.startswith("fuse") and kind != "fuse.fuse-overlayfs")


def private_folder(path: Path) -> Path:
    """The folder, made for its owner only. Raises OSError, also where somebody else owns it."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    owner = path.stat().st_uid
    if path.is_symlink() or owner not in (os.getuid(), 0):
        raise PermissionError(f"{path} belongs to somebody else (uid {owner})")
    return path


def default_url(
    environ: Mapping[str, str] = os.environ,
    system: Path = SYSTEM_FOLDER,
    local: Path = LOCAL_FOLDER,
    table: str | None = None,
) -> tuple[str, str | None]:
    """The URL of this user's own ledger, and why it is not where it should be. May block.

    `/var/lib/gpushare/<uid>` where an admin made that folder writable, else the user's state folder, else, where that
    is on a network file system or cannot be written, `/var/tmp`; with none of them the ledger lives in memory.
    """
    state = Path(environ.get("XDG_STATE_HOME") or Path(environ.get("HOME") or "/nonexistent", ".local/state"))
    candidates = [state / "gpushare", local / f"gpushare-{os.getuid()}"]
    if system.is_dir() and os.access(system, os.W_OK):
        candidates.insert(0, system / str(os.getuid()))
    reasons = []
    for folder in candidates:
        try:
            if on_network(folder, table):
                reasons.append(f"{folder} is on a network file system")
                continue
            url = f"sqlite:///{private_folder(folder) / 'ledger.sqlite'}"
        except OSError as error:
            reasons.append(f"{folder} cannot be used ({error.strerror or error})")
        else:
            why = f"The ledger is at {folder}, because {' and '.join(reasons)}." if reasons else None
            return url, why and f"{why} Set GPUShare.ledger_url to choose another place."
    return "sqlite://", f"Leases are not kept over a restart, because {' and '.join(reasons)}. Set GPUShare.ledger_url."
