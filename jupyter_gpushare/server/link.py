"""This server's way to a broker: runs one, or joins the one that runs, and takes its place when it goes away."""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Protocol

from ..broker.port import BrokerPort, Reply, StreamEvent
from ..errors import GPUShareError, Unavailable
from ..model import Caller
from ..tasks import end
from .client import STANDBY, Client

PATIENCE_S = 5.0  # how long a request waits for a broker that starts or is being replaced
RETRY_S = 0.2  # between two tries of all that wait for a broker, and before one is run here again
RETRY_MAX_S = 30.0
LOOK_S = 0.5  # between two looks whether the broker that was joined still lives


class Here(BrokerPort, Protocol):
    """A broker that can run in this process. `waits_for`: why it does not decide yet, or no more, where that is nothing
    of its own. `over` returns when another broker leads."""

    waits_for: str | None

    async def start(self) -> None: ...

    async def over(self) -> None: ...

    async def stop(self) -> None: ...


class Link:
    """A BrokerPort that outlives brokers."""

    def __init__(
        self,
        make: Callable[[], Here] | None,
        folder: Path | None,
        log: logging.Logger,
        *,
        url: str = "",
        token: str | None = None,
        starting_s: float = 0.0,
    ) -> None:
        """`make` None: never a broker here. `folder`: where its lock and socket are; None: alone. `url`: only that.

        `starting_s`: until so long after `start` requests wait for a first answer, even beyond `PATIENCE_S`.
        """
        self._make, self._folder, self.log = make, folder, log
        self._url, self._token = url, token
        self._starting_s, self._starting_until = (0.0 if url else starting_s), 0.0
        self._port: BrokerPort | None = None
        self._here: Here | None = None
        self._found = asyncio.Event()
        self._answered: asyncio.Future[None] | None = None  # the next answer, while somebody waits for it
        self._next_try = 0.0  # when the next of those who wait may try
        self._keeping: asyncio.Task[None] | None = None
        self.leads = False

    def start(self) -> None:
        self._starting_until = asyncio.get_running_loop().time() + self._starting_s
        self._keeping = asyncio.create_task(self._keep(), name="gpushare-link")

    async def stop(self) -> None:
        if self._keeping is not None:
            await end(self._keeping)

    async def ready(self) -> None:
        await self._found.wait()

    def check(self) -> None:
        """Raises Unavailable at once where there is no broker now: for who looks, and looks again by itself."""
        if not self._found.is_set():
            self._check_standing_by()
            raise Unavailable("The GPU service is starting; ask again in a moment.", reason="starting")

    def _check_standing_by(self) -> None:
        """Raises Unavailable at once where another broker has to be asked, or NATS is away: it will take its time."""
        if self._here is not None and self._here.waits_for is not None:
            raise Unavailable(self._here.waits_for, reason=STANDBY)

    async def call(
        self, caller: Caller, method: str, path: str, query: Mapping[str, str] = {}, body: bytes = b""
    ) -> Reply:
        """The broker's answer. Raises its error, or Unavailable when there is no broker for `PATIENCE_S`."""
        loop = asyncio.get_running_loop()
        deadline = max(loop.time() + PATIENCE_S, self._starting_until)
        while True:
            port = await self._there(deadline - loop.time())
            try:
                reply = await port.call(caller, method, path, query, body)
            except Unavailable:  # every request can be repeated without harm
                if self.leads or loop.time() >= deadline:
                    raise
                await self._pause(deadline)
            except GPUShareError:
                self._is_back()
                raise
            else:
                self._starting_until = 0.0
                self._is_back()
                return reply

    async def _pause(self, deadline: float) -> None:
        """Until this request may try again. However many wait, one of them tries every `RETRY_S`, and all do once it
        was answered: what every kernel of a hub would ask meanwhile is what keeps a broker from coming back."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        self._next_try = max(self._next_try, now) + RETRY_S
        self._answered = self._answered or loop.create_future()
        await asyncio.wait([self._answered], timeout=max(min(self._next_try, deadline) - now, 0.0))

    def _is_back(self) -> None:
        answered, self._answered, self._next_try = self._answered, None, 0.0
        if answered is not None:
            answered.set_result(None)

    async def stream(self, caller: Caller, last_id: int | None = None) -> AsyncIterator[StreamEvent]:
        port = await self._there(PATIENCE_S)
        async for event in port.stream(caller, last_id):
            yield event

    async def _there(self, patience_s: float) -> BrokerPort:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + patience_s
        while self._port is None:  # one that was found may be gone again before whoever waits for it has its turn
            self._check_standing_by()
            try:
                await asyncio.wait_for(self._found.wait(), max(deadline - loop.time(), 0.01))
            except asyncio.TimeoutError:
                raise Unavailable("The GPU service is not there; it comes back by itself.") from None
        return self._port

    def _use(self, port: BrokerPort | None, *, leads: bool = False) -> None:
        self._port, self.leads = port, leads
        (self._found.set if port is not None else self._found.clear)()

    async def _keep(self) -> None:
        if self._url:
            client = Client(self._url, self._token)
            try:
                self._use(client)
                await asyncio.Event().wait()
            finally:
                client.close()
        pause = RETRY_S
        while True:
            lock: int | None = None
            try:
                lock = self._lock()
                if lock is None:
                    await self._join()
                else:
                    await self._lead()
                pause = RETRY_S
            except Exception:  # whatever it is, kernels must go on starting, and it is tried again (rule 12)
                self.log.exception("The GPU broker could not run here; it is tried again in %.1f s.", pause)
                await asyncio.sleep(pause)
                pause = min(2 * pause, RETRY_MAX_S)
            finally:
                self._use(None)
                if lock is not None and lock >= 0:
                    os.close(lock)

    def _lock(self) -> int | None:
        """The lock of the one who runs the broker, None while somebody else does; -1: there is nobody to share with."""
        if self._folder is None:
            return -1
        if self._make is None:
            return None
        file = os.open(self._folder / "broker.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(file)
            return None
        return file

    async def _lead(self) -> None:
        assert self._make is not None
        self._here = here = self._make()
        try:
            await here.start()
            self.log.info("The GPU broker runs in this process.")
            self._use(here, leads=True)
            await here.over()
            self.log.warning("The GPU broker stops here: another one leads, or the bus is away.")
        finally:
            self._use(None)
            await asyncio.shield(here.stop())
            self._here = None

    async def _join(self) -> None:
        """Until the one who runs the broker is gone."""
        assert self._folder is not None
        client = Client(f"unix://{self._folder / 'broker.sock'}")
        self.log.debug("Joining the GPU broker at %s", client.address)
        self._use(client)
        try:
            while True:
                await asyncio.sleep(LOOK_S)
                if self._make is not None and not self._taken():
                    return
        finally:
            client.close()

    def _taken(self) -> bool:
        lock = self._lock()
        if lock is None:
            return True
        os.close(lock)
        return False
