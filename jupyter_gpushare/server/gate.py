"""The two bytes a kernel reads before each cell (docs/decisions/0001-gate-file.md)."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

OPEN, ASK = b"o", b"a"
PREFIX = "gates-"


class Gates:
    """The folder of one server's gates, locked while the server lives; what killed servers left is removed."""

    def __init__(self, parent: Path | None) -> None:
        """`parent`: where this user's servers meet; None: a folder of its own."""
        meeting = None if parent is None else os.open(parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            if parent is not None and meeting is not None:
                fcntl.flock(meeting, fcntl.LOCK_EX)  # nobody sweeps away what is not locked yet
                self._sweep(parent)
            self.path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
            self._lock = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
            fcntl.flock(self._lock, fcntl.LOCK_EX)
        finally:
            if meeting is not None:
                os.close(meeting)

    def _sweep(self, parent: Path) -> None:
        for left in parent.glob(f"{PREFIX}*"):
            try:
                folder = os.open(left, os.O_RDONLY | os.O_DIRECTORY)
            except FileNotFoundError:
                continue  # its server is just removing it
            try:
                fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(left, ignore_errors=True)
            except BlockingIOError:
                continue  # its server lives
            finally:
                os.close(folder)

    def close(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)


class Gate:
    """One kernel's gate: byte 0 says open or ask, byte 1 counts trim requests. It begins by asking.

    Raises OSError where the file cannot be made; a kernel without a gate always asks.
    """

    def __init__(self, folder: Path, session: str) -> None:
        self.path = folder / f"gate-{session}"
        self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        os.pwrite(self._file, ASK + b"\0", 0)
        self._state, self._trims = ASK, 0
        self._show: Callable[[bytes], None] | None = None

    def also(self, show: Callable[[bytes], None]) -> None:
        """Both bytes are shown in another way, too, now and whenever they change: to a kernel on another machine."""
        self._show = show
        show(self._state + bytes([self._trims]))

    def set(self, state: bytes) -> None:
        os.pwrite(self._file, state, 0)
        changed, self._state = state != self._state, state
        if changed and self._show is not None:
            self._show(self._state + bytes([self._trims]))

    def trim(self) -> None:
        """Asks the kernel to give back cached device memory; a change of the count is the request."""
        self._trims = (self._trims + 1) % 256
        os.pwrite(self._file, bytes([self._trims]), 1)
        if self._show is not None:
            self._show(self._state + bytes([self._trims]))

    def close(self) -> None:
        os.close(self._file)
        self.path.unlink(missing_ok=True)
