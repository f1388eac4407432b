"""How broker and nodes talk. In process (`local.py`) or over NATS; the rest of the code sees only this."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

from ..model import AnyCommand, CommandResult, NodeReport


class Bus(Protocol):
    """Reports flow up, commands flow down. A handler's error is logged and answered, never lost."""

    async def report(self, report: NodeReport) -> None:
        """Node to broker; ordered per server."""

    def on_report(self, handler: Callable[[NodeReport], None]) -> None:
        """The broker's end."""

    async def command(self, server: str, command: AnyCommand, timeout_s: float = 5.0) -> CommandResult:
        """Broker to node and back. A silent or unknown node answers CommandResult(ok=False, reason="unreachable")."""

    def serve(self, server: str, handler: Callable[[AnyCommand], Awaitable[CommandResult]]) -> None:
        """A node's end; the last one to serve a name has it."""

    async def close(self) -> None: ...
