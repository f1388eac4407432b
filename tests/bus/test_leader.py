"""The leader's key, whose answers may be lost on their way."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

from nats.js.errors import KeyNotFoundError, KeyWrongLastSequenceError

from jupyter_gpushare.bus.leader import Leadership

TTL_S = 0.9


class Bucket:
    """One key, held by `me` at first."""

    def __init__(self) -> None:
        self.value, self.revision, self.deaf, self.away = b"me", 1, 0, False

    async def update(self, key, value, last):
        if self.away:
            await asyncio.Event().wait()
        if last != self.revision:
            raise KeyWrongLastSequenceError
        self.value, self.revision = value, self.revision + 1
        if self.deaf > 0:
            self.deaf -= 1
            await asyncio.Event().wait()  # its answer is lost
        return self.revision

    async def get(self, key):
        if self.value is None:
            raise KeyNotFoundError
        return SimpleNamespace(value=self.value, revision=self.revision)

    async def delete(self, key, last):
        return True


async def still_leads(leading: Leadership, seconds: float) -> bool:
    done, _ = await asyncio.wait([asyncio.ensure_future(leading.lost.wait())], timeout=seconds)
    return not done


async def test_an_answer_that_is_lost_does_not_cost_the_leader_its_place(jp_asyncio_loop):
    bucket = Bucket()
    leading = Leadership(bucket, "me", 1, TTL_S)
    bucket.deaf = 1
    assert await still_leads(leading, 3 * TTL_S)
    assert bucket.revision > 3
    await leading.release()


async def test_a_key_that_somebody_else_has_or_that_ran_out_is_lost_at_once(jp_asyncio_loop):
    for value in (b"other", None):
        bucket = Bucket()
        leading = Leadership(bucket, "me", 1, TTL_S)
        bucket.value, bucket.revision = value, 7
        await asyncio.wait_for(leading.lost.wait(), 30)
        await leading.release()


async def test_a_key_that_cannot_be_renewed_is_lost_when_it_has_run_out(jp_asyncio_loop):
    bucket = Bucket()
    leading = Leadership(bucket, "me", 1, TTL_S)
    bucket.away = True
    await asyncio.wait_for(leading.lost.wait(), 30)
    await leading.release()
