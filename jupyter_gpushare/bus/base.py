"""How broker and nodes talk. In process (`local.py`) or over NATS; the rest of the code sees only this."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Protocol

from ..model import AnyCommand, CommandResult, NodeReport

log = logging.getLogger(__name__)


class Bus(Protocol):
    """Reports flow up, commands flow down. A handler's error is logged and answered, never lost."""

    async def report(self, report: NodeReport) -> float | None:
        """Node to broker; ordered per server. In how many seconds the next is soon enough, if nothing changes."""

    def on_report(self, handler: Callable[[NodeReport], float | None]) -> None:
        """The broker's end: the handler answers with that number of seconds, or leaves it to the node."""

    async def command(self, server: str, command: AnyCommand, timeout_s: float = 5.0) -> CommandResult:
        """Broker to node and back. A silent or unknown node answers CommandResult(ok=False, reason="unreachable")."""

    def serve(self, server: str, handler: Callable[[AnyCommand], Awaitable[CommandResult]]) -> None:
        """A node's end; the last one to serve a name has it."""

    async def close(self) -> None: ...


def hear(listeners: Iterable[Callable[[NodeReport], float | None]], report: NodeReport) -> float | None:
    """Has each take a report in; the longest time that one of them can wait for the next."""
    waits = []
    for handler in listeners:
        try:
            waits.append(handler(report))
        except Exception:  # whatever it is, the node that reported cannot mend it
            log.exception("A report of %s could not be taken in", report.server)
    return max((wait for wait in waits if wait is not None), default=None)
