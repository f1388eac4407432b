"""Runs the broker in this process: its ledger, its devices' agents, and its door for this user's other servers."""

from __future__ import annotations

import asyncio
import importlib
import logging
import os
import socket
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, suppress
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ..config import GPUShare, Policy
from ..errors import Unavailable
from ..model import Caller
from ..tasks import end
from .client import STANDBY

if TYPE_CHECKING:
    from ..broker.broker import Broker
    from ..broker.ledger import Ledger
    from ..broker.port import Reply, Settings, StreamEvent
    from ..bus.base import Bus
    from ..bus.leader import Leadership
    from ..bus.nats import NatsBus
    from ..node.agent import Agent
    from ..node.checkpoint import CheckpointMechanism

# Heavy to import (numpy, SQLAlchemy, NVML): in a thread, while the server already answers.
HEAVY = (
    "broker.broker",
    "broker.ledger",
    "broker.metrics",
    "bus.local",
    "server.agents",
)
FIRST_LOOK_S = 1.0  # a driver that takes longer is there, and its devices are shown when it answers
UNREAD_S = 60.0  # whoever takes over while the database is away waits so long to know what its predecessor lent
LOOK_S = 0.5  # between two looks whether another broker writes the ledger
SCHEDULE_S = 30.0  # how late a change of the policy's schedule may take effect
PACKAGE = __package__.rpartition(".")[0]
STANDS_BY = "Another GPU broker leads; this one stands by until that has gone."


class Host:
    """A BrokerPort whose broker runs here, from `start` to `stop`."""

    def __init__(
        self,
        config: GPUShare,
        policy: Policy,
        user: str,
        folder: Path | None,
        version: str,
        log: logging.Logger,
        *,
        first_report_s: float = 0.0,
        mode: Literal["embedded", "socket", "hub"] = "embedded",
    ) -> None:
        """`folder` is where this user's servers meet; None: it cannot be made, so nobody joins.

        `first_report_s`: how long the start waits until a device is known here; those who join do not wait for that.
        """
        self.config, self.policy, self.user, self.folder, self.version, self.log = (
            config, policy, user, folder, version, log,
        )  # fmt: skip
        self.broker: Broker | None = None
        self._first_report_s, self._mode = first_report_s, mode
        self._some_devices = False
        self._examining: asyncio.Future[object] | None = None
        self._parking: CheckpointMechanism | None = None  # of real devices
        self._nats: NatsBus | None = None
        self._leading: Leadership | None = None  # among the brokers of one bus between machines
        self._ledger: Ledger | None = None
        self._ends = AsyncExitStack()

    async def start(self) -> None:
        """Returns when it decides. On a bus between machines that waits until no other broker leads."""
        loop = asyncio.get_running_loop()
        for module in HEAVY:
            await loop.run_in_executor(None, importlib.import_module, f"{PACKAGE}.{module}")
        from ..broker.ledger import Ledger

        bus = await (self._between_machines() if self.config.bus_url else self._within())
        ledger = await Ledger.open(self.config.ledger_url, broker=self._name(), alone=self._leading is not None)
        self._ledger = ledger
        self._ends.push_async_callback(self._close, ledger)
        agents = [] if self._nats is not None else await loop.run_in_executor(None, self._agents, bus)
        if agents and self.config.devices == "auto" and await agents[0].nothing_here(FIRST_LOOK_S):
            self.log.info("No GPU is lent: this machine has none.")
            await agents.pop().stop()
        self._some_devices = bool(agents) or self._nats is not None
        await self._decide(bus, ledger)
        reported = asyncio.Event()
        bus.on_report(lambda _: reported.set())
        for agent in agents:
            await agent.start()
            self._ends.push_async_callback(agent.stop)
        if self._nats is not None:
            calling = asyncio.create_task(self._nats.greet(), name="gpushare-greeting")
            self._ends.callback(calling.cancel)
        if self.folder is not None:
            self._open_door(self.folder / "broker.sock")
        if agents and self._first_report_s:
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(reported.wait(), self._first_report_s)

    async def _close(self, ledger: Ledger) -> None:
        """What waits to be written is the next leader's matter once it may have begun."""
        await ledger.close(write=self._leading is None or not self._leading.lost.is_set())

    async def _within(self) -> Bus:
        """A bus inside this process, whose agents are here."""
        from ..bus.local import LocalBus

        return LocalBus()

    async def _between_machines(self) -> Bus:
        """The bus to agents that are programs of their own, once this broker leads: only then is the ledger its own."""
        from .program import nats_bus

        await asyncio.get_running_loop().run_in_executor(None, importlib.import_module, f"{PACKAGE}.broker.database")
        self._nats = nats_bus(self.config, f"broker on {socket.gethostname()}", creates=True)
        self._ends.push_async_callback(self._nats.close)
        await self._nats.start()
        self._leading = await self._nats.lead(f"{socket.gethostname()}:{os.getpid()}")
        return self._nats

    async def _decide(self, bus: Bus, ledger: Ledger) -> None:
        """Makes the broker, and keeps its policy by the schedule."""
        from ..broker.broker import Broker
        from ..broker.metrics import Metrics

        self.broker = Broker(
            bus,
            ledger,
            self.policy.frozen(datetime.now()),
            time.monotonic,
            self._settings(some_devices=self._some_devices),
            metrics=Metrics(),
            doctor=self._doctor,
        )
        await self.broker.start()
        self._ends.push_async_callback(self.broker.stop)
        if self.policy.schedule:
            keeping = asyncio.create_task(self._keep_schedule(self.broker))
            self._ends.callback(keeping.cancel)

    @property
    def waits_for(self) -> str | None:
        """Why it does not answer yet, or no more, where that is nothing of its own."""
        if self._nats is None or (self._leading is not None and not self._leading.lost.is_set()):
            return None
        return self._nats.trouble or STANDS_BY

    async def over(self) -> None:
        """Returns when it may decide no more, because another broker leads; never where there can be none."""
        waiting = asyncio.ensure_future((asyncio.Event() if self._leading is None else self._leading.lost).wait())
        try:
            while not (waiting.done() or (self._ledger is not None and self._ledger.superseded)):
                await asyncio.wait([waiting], timeout=LOOK_S)
        finally:
            await end(waiting)

    async def stop(self) -> None:
        """In the order opposite to the start's. Leases stay in the ledger: kernels may run on."""
        await self._ends.aclose()
        self.broker = None

    async def call(
        self, caller: Caller, method: str, path: str, query: Mapping[str, str] = {}, body: bytes = b""
    ) -> Reply:
        return await self._there().call(caller, method, path, query, body)

    def stream(self, caller: Caller, last_id: int | None = None) -> AsyncIterator[StreamEvent]:
        return self._there().stream(caller, last_id)

    def _there(self) -> Broker:
        """Raises Unavailable for a request that was on its way here when it stopped."""
        if self.broker is None:
            raise Unavailable(self.waits_for or "The GPU broker stopped here; ask again in a moment.", reason=STANDBY)
        return self.broker

    def regroup(self) -> None:
        """Takes over what changed in `policy.groups`, without a restart."""
        assert self.broker is not None, "not started"
        self.broker.settings = self._settings(some_devices=self._some_devices)
        self.broker.touch()

    def _settings(self, *, some_devices: bool) -> Settings:
        """The configuration's numbers. On a machine without any GPU nobody gets in line for one unasked."""
        from ..broker.port import Link, Settings

        config, copies = self.config, self.policy.data_copies()
        return Settings(
            version=self.version,
            mode=self._mode,
            simulated=config.devices == "simulated",
            unread_s=UNREAD_S if config.bus_url else 0.0,
            default_gpus=config.default_gpus if some_devices else 0.0,
            default_exclusive=config.default_exclusive,
            off_lease=self.policy.off_lease,
            when_full=config.when_full,
            start_wait_s=config.start_wait_s,
            max_devices_per_user=int(config.max_devices_per_user),
            mps_burst=config.mps_burst,
            mps_memory_limit=config.mps_memory_limit,
            lease_ttl_s=config.lease_ttl_s,
            weights=self.policy.user_weights(),
            groups=self.policy.user_groups(),
            group_weights=self.policy.group_weights(),
            data={path: servers for path, (servers, _) in copies.items()},
            data_bytes={path: size for path, (_, size) in copies.items() if size is not None},
            links=tuple(Link(link.gb_s, link.latency_s, link.between) for link in self.policy.server_links()),
        )

    def _agents(self, bus: Bus) -> list[Agent]:
        """One per simulated server, or one for this machine. Blocks a little: files are read."""
        from . import agents

        if self.config.devices == "off":
            return []
        prove = self._mode != "embedded"  # whoever tells of a kernel's process may be any user
        if self.config.devices == "simulated":
            return agents.simulated(self.config, bus, self.folder, self._ends.callback, salt=self._salt(), prove=prove)
        agent, self._parking = agents.of_this_machine(
            self.config, bus, self.user, self.folder, self._ends.callback, prove=prove
        )
        return [agent]

    def _name(self) -> str:
        """Keeps brokers on one database apart. Whoever takes this one's place has the same: it meets in this folder, or
        on the bus between machines."""
        if self.config.bus_url:
            return "bus"
        kind = "simulated" if self.config.devices == "simulated" else "real"
        return f"{kind}:{self.folder or self.user}"

    def _salt(self) -> str:
        return str(self.folder or self.user)

    async def _doctor(self) -> object:
        """The findings of one examination at a time, however many ask for it."""
        if self._examining is None or self._examining.done():
            from .. import doctor
            from ..node.commands import off_loop

            parking = self._parking and self._parking.switched_off()
            self._examining = asyncio.ensure_future(off_loop(doctor.run, parking, self.config))
        return await asyncio.shield(self._examining)

    async def _keep_schedule(self, broker: Broker) -> None:
        while True:
            await asyncio.sleep(SCHEDULE_S)
            broker.policy = self.policy.frozen(datetime.now())

    def _open_door(self, path: Path) -> None:
        from .socket import Door

        try:
            door = Door(path, self, self.user)
        except OSError as error:
            self.log.warning("This user's other servers cannot join the broker here: %s", error)
        else:
            self._ends.push_async_callback(door.close)
