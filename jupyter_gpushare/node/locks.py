"""One device, one broker: a lock per device in a folder that all users of a machine share (rule 15).

The lock is the kernel's (flock), so it ends with its process however that ends; the file stays and is only ever written
by its holder, to say who that is. The folder is world-writable and sticky like /tmp, so nothing found there is trusted:
symbolic links and files with several names are refused, and no file is truncated before its lock is held.
"""

from __future__ import annotations

import errno
import fcntl
import os
import pwd
import re
import stat
from collections.abc import Iterable
from pathlib import Path

SHARED = Path("/run/lock/gpushare")
FALLBACK = Path("/tmp/gpushare-locks")  # noqa: S108 machine-wide and writable by all is what this is for
_NAME = re.compile(r"[A-Za-z0-9._-]+")


def folder() -> Path:
    """The machine's folder of locks: GPUSHARE_LOCK_DIR, else the first usable of /run/lock and /tmp.

    Raises OSError when none can be made or what is there cannot be trusted.
    """
    chosen = os.environ.get("GPUSHARE_LOCK_DIR")
    if chosen:
        return _made(Path(chosen))
    try:
        return _made(SHARED)
    except OSError:
        return _made(FALLBACK)


def _made(path: Path) -> Path:
    try:
        path.mkdir()
        path.chmod(0o1777)  # mkdir obeys the umask
    except FileExistsError:
        pass
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode):
        raise NotADirectoryError(errno.ENOTDIR, "the lock folder is no folder", str(path))
    if found.st_mode & stat.S_IWOTH and not found.st_mode & stat.S_ISVTX:
        raise PermissionError(errno.EPERM, "the lock folder lets users remove each other's locks (chmod +t)", str(path))
    if not os.access(path, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, "the lock folder cannot be written", str(path))
    return path


class DeviceLocks:
    """The devices this process manages. Not for sharing between processes: a child must make its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._held: dict[str, int] = {}  # file descriptors by uuid

    def acquire(self, uuids: Iterable[str]) -> tuple[frozenset[str], dict[str, str]]:
        """Locks what is free. The devices of `uuids` that are ours now, and who holds each of the others, in words."""
        mine, others = set(), {}
        for uuid in uuids:
            try:
                if uuid not in self._held:
                    self._held[uuid] = _locked(self._folder / _file_name(uuid))
                mine.add(uuid)
            except BlockingIOError as taken:
                others[uuid] = str(taken.strerror)
            except OSError as error:
                others[uuid] = f"The lock {error.filename or self._folder} cannot be used: {error.strerror}."
        return frozenset(mine), others

    def close(self) -> None:
        """Gives all devices back. Safe to call twice."""
        while self._held:
            _, descriptor = self._held.popitem()
            os.close(descriptor)


def _file_name(uuid: str) -> str:
    if not _NAME.fullmatch(name := uuid.replace("/", "_")) or name.startswith("."):
        raise OSError(errno.EINVAL, f"{uuid!r} is no device UUID")
    return name


def _locked(path: Path) -> int:
    """A descriptor that holds the lock. Raises BlockingIOError naming the holder, OSError where the file is a trap."""
    descriptor = _opened(path)
    try:
        if found := _trap(path, descriptor):
            raise OSError(errno.EPERM, found, str(path))  # noqa: TRY301 the descriptor is closed in one place
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BlockingIOError(errno.EWOULDBLOCK, f"In use by the broker of {_holder(descriptor)}.") from None
        if _trap(path, descriptor):  # removed between opening and locking: somebody else may lock its successor
            raise OSError(errno.ESTALE, "it was replaced", str(path))  # noqa: TRY301
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()} {_user()}\n".encode(), 0)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _opened(path: Path) -> int:
    """The file, made if need be and then open to every user. Many systems refuse O_CREAT on others' files in sticky
    folders (fs.protected_regular), so what exists is opened without it."""
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    try:
        descriptor = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o666)
    except FileExistsError:
        return os.open(path, flags)
    os.fchmod(descriptor, 0o666)  # creating obeys the umask
    return descriptor


def _trap(path: Path, descriptor: int) -> str | None:
    """Why this file is not to be trusted, None when it is a plain file that its path still names."""
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode) or found.st_nlink != 1:
        return "it is no plain file of its own"
    try:
        named = path.lstat()
    except FileNotFoundError:
        return "it was removed"
    return None if (named.st_dev, named.st_ino) == (found.st_dev, found.st_ino) else "it was replaced"


def _holder(descriptor: int) -> str:
    """Who wrote the file. Any user may have: it is shown, nothing is decided by it."""
    pid, _, user = os.pread(descriptor, 200, 0).decode(errors="replace").strip().partition(" ")
    if not pid.isdecimal() or not _NAME.fullmatch(user):
        return "another user"
    return f"{user} (process {pid})"


def _user() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:  # containers run as numbers without names
        return str(os.geteuid())
