"""When a kernel computes: status messages of cells, and of nothing else (design rule 6).

Completions, inspections, comms and our own reading also make a kernel say busy; only an ``execute_request`` counts.
Nothing is ever sent to the kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, Protocol

import msgspec

Phase = Literal["start", "end"]
DELIMITER = b"<IDS|MSG>"


class _Header(msgspec.Struct):
    msg_type: str = ""
    msg_id: str = ""


class _Status(msgspec.Struct):
    execution_state: str = ""


class Publisher(Protocol):
    """What is used of a kernel manager."""

    def connect_iopub(self) -> Any: ...


def cell_status(frames: Sequence[bytes]) -> tuple[str, str] | None:
    """(cell, execution state) of a status message about a cell; None for any other message.

    Most messages are told apart by a search in the raw frames, so a kernel that prints much costs little.
    """
    try:
        _, header, parent, _, content = frames[list(frames).index(DELIMITER) + 1 :][:5]
    except ValueError:
        return None
    if b'"status"' not in header or b'"execute_request"' not in parent:
        return None
    try:
        about, asked = msgspec.json.decode(header, type=_Header), msgspec.json.decode(parent, type=_Header)
        if about.msg_type != "status" or asked.msg_type != "execute_request":
            return None
        return asked.msg_id, msgspec.json.decode(content, type=_Status).execution_state
    except msgspec.DecodeError:
        return None


class Activity:
    """Watches the present process of one kernel and tells when its bursts start and end.

    A new process is a new Activity: what the last one said is not carried over (jupyter_server#1395).
    """

    def __init__(self, kernel: Publisher, tell: Callable[[Phase], None]) -> None:
        self._tell = tell
        self._running: set[str] = set()
        self._stream = kernel.connect_iopub()
        self._stream.on_recv(self.see)

    def see(self, frames: Sequence[bytes]) -> None:
        status = cell_status(frames)
        if status is None:
            return
        cell, state = status
        before = bool(self._running)
        if state == "busy":
            self._running.add(cell)
        elif state == "idle":
            self._running.discard(cell)
        if before != bool(self._running):
            self._tell("start" if self._running else "end")

    def close(self) -> None:
        """Stops watching; a burst that ran with the process has ended with it."""
        if not self._stream.closed():
            self._stream.close()
        if self._running:
            self._running.clear()
            self._tell("end")
