"""How asyncio tasks are ended for certain."""

from __future__ import annotations

import asyncio
from typing import Any

AGAIN_S = 0.5


async def end(*tasks: asyncio.Task[Any]) -> None:
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
