"""The leader's key: who commands, for how long, and that a leader that slept knows it does no more."""

from __future__ import annotations

import asyncio
import logging
from typing import Protocol

from nats.errors import Error
from nats.js.errors import KeyWrongLastSequenceError

from ..tasks import end

log = logging.getLogger(__name__)


class Bucket(Protocol):
    async def update(self, key: str, value: bytes, last: int) -> int: ...

    async def delete(self, key: str, last: int) -> bool: ...


class Leadership:
    """Held from its making until `lost` is set: by somebody else's leading, or because it could not be renewed in time.

    `term` grows with every leader: agents refuse commands of a lower one, also from a leader that was paused and does
    not know yet. Time is this process's own monotonic clock.
    """

    def __init__(self, bucket: Bucket, name: str, term: int, ttl_s: float) -> None:
        self.term = term
        self.lost = asyncio.Event()
        self._bucket, self._name, self._revision, self._ttl_s = bucket, name, term, ttl_s
        self._keeping = asyncio.create_task(self._keep(), name="gpushare-leader")

    async def release(self) -> None:
        """Gives the place up at once: the next one need not wait until it runs out."""
        await end(self._keeping)
        if not self.lost.is_set():
            self.lost.set()
            try:
                await asyncio.wait_for(self._bucket.delete("leader", last=self._revision), self._ttl_s)
            except (Error, OSError, asyncio.TimeoutError) as error:
                log.debug("The leader's key runs out by itself: %r", error)

    async def _keep(self) -> None:
        clock = asyncio.get_running_loop().time
        renewed = clock()
        while True:
            await asyncio.sleep(self._ttl_s / 6)
            asked = clock()
            if asked - renewed >= self._ttl_s:
                break
            try:
                updating = self._bucket.update("leader", self._name.encode(), last=self._revision)
                self._revision = await asyncio.wait_for(updating, self._ttl_s - (asked - renewed))
                renewed = asked
            except KeyWrongLastSequenceError:
                break  # somebody else has it
            except (Error, OSError, asyncio.TimeoutError) as error:
                log.debug("The leader's key was not renewed: %r", error)
        log.warning("%s leads no more (term %d)", self._name, self.term)
        self.lost.set()
