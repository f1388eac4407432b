"""The leader's key: who commands, for how long, and that a leader that slept knows it does no more."""

from __future__ import annotations

import asyncio
import logging
from typing import Protocol

from nats.errors import Error
from nats.js.errors import KeyNotFoundError, KeyWrongLastSequenceError

from ..tasks import end

log = logging.getLogger(__name__)


class Entry(Protocol):
    value: bytes | None
    revision: int | None


class Bucket(Protocol):
    async def get(self, key: str) -> Entry: ...

    async def update(self, key: str, value: bytes, last: int) -> int: ...

    async def delete(self, key: str, last: int) -> bool: ...


class Leadership:
    """Held from its making until `lost` is set: by somebody else's leading, or because it could not be renewed in time.

    `name` is what its maker put under the key, and nobody else's. `term` grows with every leader: agents refuse
    commands of a lower one, also from a leader that was paused and does not know yet. Time is this process's own
    monotonic clock.
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
        """An answer may be lost, or late, while NATS starts anew: it is tried several times before the key runs out."""
        clock = asyncio.get_running_loop().time
        renewed = clock()
        why = still = "this process stood still"
        while True:
            await asyncio.sleep(self._ttl_s / 6)
            asked = clock()
            left_s = self._ttl_s - (asked - renewed)
            if left_s <= 0:
                break
            try:
                await asyncio.wait_for(self._renew(), min(left_s, self._ttl_s / 3))
                renewed, why = asked, still
            except KeyWrongLastSequenceError:
                why = "another one does"
                break
            except (Error, OSError, asyncio.TimeoutError) as error:
                why = f"its key could not be renewed ({error!r})"
        log.warning("%s leads no more (term %d): %s", self._name, self.term, why)
        self.lost.set()

    async def _renew(self) -> None:
        """Raises KeyWrongLastSequenceError where somebody else has the key, or it ran out."""
        value = self._name.encode()
        try:
            self._revision = await self._bucket.update("leader", value, last=self._revision)
        except KeyWrongLastSequenceError as error:
            try:
                found = await self._bucket.get("leader")
            except KeyNotFoundError:
                raise error from None
            if found.value != value or found.revision is None:
                raise
            # Renewed before, only the answer was lost; the time that the key has left counts from now.
            self._revision = await self._bucket.update("leader", value, last=found.revision)
