"""How asyncio tasks are kept alive, and ended for certain."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, TypeVar

AGAIN_S = 0.5
T = TypeVar("T")


def own(tasks: set[asyncio.Future[T]], work: Awaitable[T]) -> asyncio.Future[T]:
    """Runs it, kept in `tasks` until it ends: the event loop itself keeps no task alive."""
    task = asyncio.ensure_future(work)
    tasks.add(task)
    task.add_done_callback(tasks.discard)
    return task


async def end(*tasks: asyncio.Future[Any]) -> None:
    """Cancels tasks and returns when all have ended, however they did.

    It asks again and again: before Python 3.12 `asyncio.wait_for` loses a cancellation that meets the result it waits
    for (https://github.com/python/cpython/issues/86296), and a loop around it would go on for ever.
    """
    left = set(tasks)
    while left:
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=AGAIN_S)
    await asyncio.gather(*tasks, return_exceptions=True)  # what they raised was asked for
