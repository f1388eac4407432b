"""The bus inside one process: broker and agents share an event loop and call each other."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from ..model import AnyCommand, CommandResult, NodeReport
from .base import hear

log = logging.getLogger(__name__)


class LocalBus:
    """Reports reach every handler in the order they were given; commands to one node run side by side."""

    def __init__(self) -> None:
        self._listeners: list[Callable[[NodeReport], float | None]] = []
        self._nodes: dict[str, Callable[[AnyCommand], Awaitable[CommandResult]]] = {}

    def on_report(self, handler: Callable[[NodeReport], float | None]) -> None:
        self._listeners.append(handler)

    async def report(self, report: NodeReport) -> float | None:
        return hear(self._listeners, report)

    def serve(self, server: str, handler: Callable[[AnyCommand], Awaitable[CommandResult]]) -> None:
        self._nodes[server] = handler

    async def command(self, server: str, command: AnyCommand, timeout_s: float = 5.0) -> CommandResult:
        handler = self._nodes.get(server)
        if handler is None:
            return CommandResult(ok=False, reason="unreachable", message=f"No agent serves {server}.")
        try:
            return await asyncio.wait_for(handler(command), timeout_s)
        except asyncio.TimeoutError:
            message = f"{server} did not answer within {timeout_s:g} s."
            return CommandResult(ok=False, reason="unreachable", message=message)
        except Exception:  # answered as a failure: the broker must not fall over a node's bug
            log.exception("%s failed to carry out %r", server, command)
            return CommandResult(ok=False, reason="error", message=f"{server} failed; its log says why.")

    async def close(self) -> None:
        self._listeners.clear()
        self._nodes.clear()
