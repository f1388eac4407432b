"""A file in which an agent keeps what the one after it must know: whose processes it knew, what it parked."""

from __future__ import annotations

import logging
import os
import threading
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

T = TypeVar("T")

log = logging.getLogger(__name__)


class Journal(Generic[T]):
    """One small JSON file, replaced as a whole, so that a process killed at any moment leaves the old or the new one.

    Nothing is forced to the disk: a machine that crashes leaves no processes to know. Without a path nothing is kept.
    Hold `order` from the look at what shall be kept to its `save`, where several threads do so.
    """

    def __init__(self, path: Path | None, kind: type[dict[str, T]]) -> None:
        self._path, self._kind = path, kind
        self._written: bytes | None = None
        self.order = threading.RLock()
        self.trouble: str | None = None

    def load(self) -> dict[str, T]:
        """What was kept; nothing where there is no file, or one that cannot be read (which is logged)."""
        if self._path is None:
            return {}
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=self._kind)
        except FileNotFoundError:
            return {}
        except (OSError, msgspec.DecodeError) as error:
            log.warning("%s cannot be used, so what an agent before left is not known: %s", self._path, error)
            return {}

    def save(self, kept: dict[str, T]) -> None:
        """Writes it if it changed. A disk that is full or read-only is noted in `trouble` and tried again."""
        content = msgspec.json.encode(kept)
        with self.order:
            if self._path is None or content == self._written:
                return
            beside = self._path.with_suffix(".new")
            try:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                with open(beside, "wb", opener=_private) as file:
                    file.write(content)
                beside.replace(self._path)
            except OSError as error:
                self.trouble = f"{self._path} cannot be written: {error.strerror}."
                return
            self._written, self.trouble = content, None


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
