"""The two bytes a kernel reads before each cell (docs/decisions/0001-gate-file.md)."""

from __future__ import annotations

import os
from pathlib import Path

OPEN, ASK = b"o", b"a"


class Gate:
    """One kernel's gate: byte 0 says open or ask, byte 1 counts trim requests. It begins by asking.

    Raises OSError where the file cannot be made; a kernel without a gate always asks.
    """

    def __init__(self, folder: Path, session: str) -> None:
        self.path = folder / f"gate-{session}"
        self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        os.pwrite(self._file, ASK + b"\0", 0)
        self._trims = 0

    def set(self, state: bytes) -> None:
        os.pwrite(self._file, state, 0)

    def trim(self) -> None:
        """Asks the kernel to give back cached device memory; a change of the count is the request."""
        self._trims = (self._trims + 1) % 256
        os.pwrite(self._file, bytes([self._trims]), 1)

    def close(self) -> None:
        os.close(self._file)
        self.path.unlink(missing_ok=True)
