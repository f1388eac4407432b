"""Tasks end, also those that lose a cancellation."""

from __future__ import annotations

import asyncio

from jupyter_gpushare.tasks import end


async def test_a_task_that_loses_its_first_cancellation_ends_all_the_same(jp_asyncio_loop):
    lost = 0

    async def stubborn() -> None:
        nonlocal lost
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                lost += 1
                if lost > 1:
                    raise

    async def failing() -> None:
        raise OSError("away")

    tasks = [asyncio.ensure_future(stubborn()), asyncio.ensure_future(failing())]
    await asyncio.sleep(0)
    await asyncio.wait_for(end(*tasks), 10)
    assert (lost, [task.done() for task in tasks]) == (2, [True, True])


async def test_ending_nothing_is_done_at_once(jp_asyncio_loop):
    await asyncio.wait_for(end(), 10)
