"""Runs the broker in this process: its ledger, its devices' agents, and its door for this user's other servers."""

from __future__ import annotations

import asyncio
import importlib
import logging
import os
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, suppress
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ..config import GPUShare, Policy
from ..model import Caller

if TYPE_CHECKING:
    from ..broker.broker import Broker
    from ..broker.port import Reply, Settings, StreamEvent
    from ..node.agent import Agent
    from ..node.checkpoint import CheckpointMechanism

# Heavy to import (numpy, SQLAlchemy, NVML): in a thread, while the server already answers.
HEAVY = (
    "broker.broker",
    "broker.ledger",
    "broker.metrics",
    "bus.local",
    "node.agent",
    "node.simulated",
    "node.nvml",
    "node.checkpoint",
)
FIRST_LOOK_S = 1.0  # a driver that takes longer is there, and its devices are shown when it answers
SCHEDULE_S = 30.0  # how late a change of the policy's schedule may take effect
PACKAGE = __package__.rpartition(".")[0]


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
        self._ends = AsyncExitStack()

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        for module in HEAVY:
            await loop.run_in_executor(None, importlib.import_module, f"{PACKAGE}.{module}")
        from ..broker.broker import Broker
        from ..broker.ledger import Ledger
        from ..broker.metrics import Metrics
        from ..bus.local import LocalBus

        bus = LocalBus()
        ledger = await Ledger.open(self.config.ledger_url, broker=self._name())
        self._ends.push_async_callback(ledger.close)
        agents = await loop.run_in_executor(None, self._agents, bus)
        if self.config.devices == "auto" and await agents[0].nothing_here(FIRST_LOOK_S):
            self.log.info("No GPU is lent: this machine has none.")
            await agents.pop().stop()
        self._some_devices = bool(agents)
        settings = self._settings(some_devices=self._some_devices)
        self.broker = Broker(
            bus,
            ledger,
            self.policy.frozen(datetime.now()),
            time.monotonic,
            settings,
            metrics=Metrics(),
            doctor=self._doctor,
        )
        await self.broker.start()
        self._ends.push_async_callback(self.broker.stop)
        reported = asyncio.Event()
        bus.on_report(lambda _: reported.set())
        for agent in agents:
            await agent.start()
            self._ends.push_async_callback(agent.stop)
        if self.policy.schedule:
            keeping = asyncio.create_task(self._keep_schedule(self.broker))
            self._ends.callback(keeping.cancel)
        if self.folder is not None:
            self._open_door(self.folder / "broker.sock")
        if agents and self._first_report_s:
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(reported.wait(), self._first_report_s)

    async def stop(self) -> None:
        """In the order opposite to the start's. Leases stay in the ledger: kernels may run on."""
        await self._ends.aclose()
        self.broker = None

    async def call(
        self, caller: Caller, method: str, path: str, query: Mapping[str, str] = {}, body: bytes = b""
    ) -> Reply:
        assert self.broker is not None, "not started"
        return await self.broker.call(caller, method, path, query, body)

    def stream(self, caller: Caller, last_id: int | None = None) -> AsyncIterator[StreamEvent]:
        assert self.broker is not None, "not started"
        return self.broker.stream(caller, last_id)

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
            default_gpus=config.default_gpus if some_devices else 0.0,
            default_exclusive=config.default_exclusive,
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

    def _agents(self, bus: object) -> list[Agent]:
        """One per simulated server, or one for this machine. Blocks a little: files are read."""
        from ..node.agent import Agent
        from ..node.checkpoint import CheckpointMechanism
        from ..node.checkpoint_driver import HelperDriver
        from ..node.inventory import parse_inventory
        from ..node.mps import Servers
        from ..node.nvml import NvmlBackend
        from ..node.sharing import SharedBackend, Wanted
        from ..node.simulated import SimulatedBackend
        from .pool import Pool

        make = partial(Agent, bus=bus, interval_s=self.config.sample_interval_s, prove=self._mode == "hub")
        if self.config.devices == "simulated":
            agents = []
            for server in parse_inventory(self.config.simulated_inventory, salt=self._salt()):
                devices = SimulatedBackend(server)
                pool = Pool(self._place("locks"), devices.sample, masked=False)
                self._ends.callback(pool.close)
                journal = self._journal(server.name)
                agents.append(
                    make(
                        server=server.name,
                        backend=devices,
                        mechanism=devices,
                        declared=devices,
                        offered=pool.why_not,
                        journal=journal,
                    )
                )
            return agents
        place = Path("/run/gpushare/mps") if os.getuid() == 0 else self._place("mps")  # root's serve everybody
        place = Path(self.config.mps_folder) if self.config.mps_folder else place
        wanted = Wanted(self.config.sharing, self.config.sharing_of)
        backend = SharedBackend(NvmlBackend(), wanted, Servers(place), self.user)
        pool = Pool(Path(self.config.lock_dir) if self.config.lock_dir else None, backend.sample)
        self._ends.callback(pool.close)
        name = self.config.server_name
        parked = self._place(f"parked-{name}.json")
        self._parking = CheckpointMechanism(HelperDriver(), parked, many=self.config.park_many)
        self._ends.callback(self._parking.close)
        return [
            make(
                server=name,
                backend=backend,
                mechanism=self._parking,
                offered=pool.why_not,
                journal=self._journal(name),
            )
        ]

    def _name(self) -> str:
        """Keeps brokers on one database apart. Whoever takes this one's place has the same: it meets in this folder."""
        kind = "simulated" if self.config.devices == "simulated" else "real"
        return f"{kind}:{self.folder or self.user}"

    def _salt(self) -> str:
        return str(self.folder or self.user)

    def _place(self, name: str) -> Path | None:
        return self.folder / name if self.folder is not None else None

    def _journal(self, server: str) -> Path | None:
        return self._place(f"agent-{server}.json")

    async def _doctor(self) -> object:
        """The findings of one examination at a time, however many ask for it."""
        if self._examining is None or self._examining.done():
            from .. import doctor
            from ..node.commands import off_loop

            parking = self._parking and self._parking.switched_off()
            self._examining = asyncio.ensure_future(off_loop(doctor.run, parking))
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
