"""A cluster for the broker's tests: a node that does as it is told, a ledger in memory, time that a test moves."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import msgspec
import numpy as np
import pytest

from jupyter_gpushare.broker import maps, state, view
from jupyter_gpushare.broker.broker import Broker
from jupyter_gpushare.broker.loop import turn
from jupyter_gpushare.broker.port import Settings
from jupyter_gpushare.broker.rows import Wish
from jupyter_gpushare.broker.status import Status
from jupyter_gpushare.bus.local import LocalBus
from jupyter_gpushare.core.policy import Policy
from jupyter_gpushare.model import (
    AnyCommand,
    Attach,
    Caller,
    CommandResult,
    Detach,
    Device,
    Held,
    NodeReport,
    Park,
    Process,
    Resume,
    Stop,
)
from jupyter_gpushare.units import GIB


class MemoryLedger:
    """What the ledger was told, without a database."""

    def __init__(self) -> None:
        self.open: dict[str, Any] = {}
        self.ended: list[tuple[str, str]] = []
        self.decisions: list[Any] = []
        self.rows: list[Any] = []
        self.audits: list[tuple[str, str, str]] = []
        self.saved: dict[str, float] = {}
        self.wished_for: dict[tuple[str, str], Wish] = {}
        self.degraded = None

    def lease_granted(self, row) -> None:
        self.open[row.session] = row

    lease_changed = lease_granted

    def lease_ended(self, session: str, why: str) -> None:
        self.open.pop(session, None)
        self.ended.append((session, why))

    def decision(self, row) -> None:
        self.decisions.append(row)

    def usage(self, *rows) -> None:
        self.rows += rows

    def usage_saved(self, usage: dict[str, float]) -> None:
        self.saved = usage

    def audit(self, caller: Caller, verb: str, target: str, outcome: str, message: str = "") -> None:
        self.audits.append((caller.user, verb, outcome))

    async def flushed(self, timeout_s: float = 1.0) -> bool:
        return True

    async def leases(self) -> list[Any]:
        return list(self.open.values())

    def wished(self, kind: str, key: str, value: str | None = "", for_s: float | None = None) -> None:
        self.wished_for.pop((kind, key), None)
        if value is not None:
            self.wished_for[(kind, key)] = Wish(kind=kind, key=key, value=value, left_s=for_s)

    async def wishes(self) -> list[Wish]:
        return list(self.wished_for.values())

    async def fair_usage(self) -> dict[str, Any]:
        return {}


class Node:
    """One machine. Its processes, contexts and memory are what a test says; commands change them."""

    def __init__(self, bus: LocalBus, name: str = "alpha", devices: int = 2) -> None:
        self.bus, self.name, self.epoch, self.seq = bus, name, "1", 0
        self.uuids = [f"GPU-{name}-{index}" for index in range(devices)]
        self.states: dict[str, str] = {}
        self.memory: dict[str, int] = {}  # of devices that have not the usual
        self.held: dict[str, Held] = {}
        self.left: dict[str, list[Process]] = {}
        self.pids: dict[str, int] = {}
        self.attached: set[str] = set()
        self.refuse: set[type] = set()
        self.commands: list[AnyCommand] = []
        self.can_park = True
        self.facts: dict[str, dict[str, Any]] = {}  # of devices that have not the usual
        self.host_memory_free: int | None = None
        bus.serve(name, self.obey)

    async def obey(self, command: AnyCommand) -> CommandResult:
        self.commands.append(command)
        if type(command) in self.refuse:
            return CommandResult(ok=False, reason="busy", message="It would not.")
        session = command.session
        if isinstance(command, Attach):
            if self.pids.get(session) != command.pid:
                return CommandResult(ok=False, reason="gone", message="No such process.")
            self.attached.add(session)
            self.held.setdefault(session, Held(session=session))
        elif isinstance(command, Park | Resume) and session not in self.held:
            return CommandResult(ok=False, reason="gone", message="Its processes are gone.")
        elif isinstance(command, Park):
            held = self.held[session]
            size = sum(value or 0 for value in held.memory_used.values())
            self.held[session] = Held(session=session, parked_bytes=size)
            return CommandResult(ok=True, bytes=size)
        elif isinstance(command, Resume):
            size = self.held[session].parked_bytes
            self.held[session] = Held(
                session=session,
                devices=tuple(command.devices.values()),
                memory_used=dict.fromkeys(command.devices.values(), size),
            )
        elif isinstance(command, Detach):
            self.attached.discard(session)
            self.held.pop(session, None)
        elif isinstance(command, Stop):
            for processes in self.left.values():
                processes[:] = [process for process in processes if process.session != session]
        return CommandResult(ok=True)

    def uses(self, session: str, uuid: str, memory: int = GIB, busy: float = 0.0, idle_s: float = 0.0) -> None:
        """The session's tree has a context there."""
        self.held[session] = Held(
            session=session,
            devices=(uuid,),
            memory_used={uuid: memory},
            utilization={uuid: busy},
            gpu_idle_s=idle_s,
        )

    def quiet(self, session: str, idle_s: float) -> None:
        self.held[session] = msgspec.structs.replace(
            self.held[session], gpu_idle_s=idle_s, utilization=dict.fromkeys(self.held[session].devices, 0.0)
        )

    def dies(self, session: str) -> None:
        self.pids.pop(session, None)
        self.held.pop(session, None)

    def report(self, *, full: bool = True, gone: tuple[str, ...] = ()) -> NodeReport:
        self.seq += 1
        devices = []
        for index, uuid in enumerate(self.uuids):
            used = sum(held.memory_used.get(uuid) or 0 for held in self.held.values())
            devices.append(
                Device(
                    uuid=uuid,
                    index=index,
                    model="NVIDIA A100-SXM4-80GB",
                    state=self.states.get(uuid, "healthy"),
                    can_park=self.can_park,
                    memory_total=self.memory.get(uuid, 80 * GIB),
                    memory_used=used,
                    memory_unaccounted=0,
                    utilization=0.1,
                    memory_utilization=0.1,
                    temperature_c=50.0,
                    temperature_limit_c=92.0,
                    power_w=90.0,
                    power_idle_w=50.0,
                    power_limit_w=400.0,
                    tflops=312.0,
                    bandwidth_gb_s=2039.0,
                    clock_fraction=1.0,
                    processes=tuple(self.left.get(uuid, ())),
                )
            )
        return NodeReport(
            server=self.name,
            epoch=self.epoch,
            seq=self.seq,
            full=full,
            simulated=True,
            devices=tuple(msgspec.structs.replace(one, **self.facts.get(one.uuid, {})) for one in devices),
            held=tuple(held for name, held in self.held.items() if name in self.attached),
            gone=gone,
            link_gb_s=25.0,
            host_memory_free=self.host_memory_free,
        )


class World:
    """A broker with one node, driven by hand: every step settles all that it set off."""

    def __init__(self, clock, policy: Policy, settings: Settings, devices: int = 2) -> None:
        self.clock, self.policy, self.settings = clock, policy, settings
        self.bus, self.ledger = LocalBus(), MemoryLedger()
        self.node = Node(self.bus, devices=devices)
        self.drawn_for_nobody, self.drawn_for_all = maps.Servers(maps.NOBODY), maps.Servers(maps.EVERYTHING)
        self.broker: Broker
        self.make()

    def make(self) -> None:
        self.broker = Broker(self.bus, self.ledger, self.policy, self.clock, self.settings)

    async def start(self, by_hand: bool = False) -> None:
        """`by_hand`: nothing happens but what the test sets off."""
        await self.broker.start()
        for task in self.broker._tasks if by_hand else ():
            task.cancel()
        await self.settle()

    async def settle(self) -> None:
        """Reports, decides and obeys until nothing more happens at this instant."""
        for _ in range(3):
            await asyncio.sleep(0)  # requests that were just made reach the broker
            await self.bus.report(self.node.report())
            turn(self.broker)
            while self.broker.applier.tasks:
                await asyncio.wait(self.broker.applier.tasks)
                await asyncio.sleep(0)
                turn(self.broker)
        assert self.broker.failing is None, "a turn failed; the log has it"
        self.remembers_rightly()

    def remembers_rightly(self) -> None:
        """What the broker keeps from turn to turn is what it would work out afresh."""
        what = self.broker.cluster, self.settings, self.policy, self.clock()
        afresh, kept = state.build(*what), state.build(*what, self.broker.columns)
        for rows in ("devices", "sessions", "placements", "users"):
            for name in set(getattr(afresh, rows).__slots__) - {"allowed"}:
                new, old = (np.asarray(getattr(getattr(one, rows), name)) for one in (afresh, kept))
                np.testing.assert_array_equal(new, old, f"{rows}.{name}")
        may = [one.allowed[one.sessions.allowed] for one in (afresh, kept)]
        np.testing.assert_array_equal(*may)
        frame = self.broker.frame()
        for caller in (Caller(user="alice"), Caller(user="bob"), Caller(user="root", admin=True)):
            drawn = self.drawn_for_all if caller.admin else self.drawn_for_nobody
            assert maps.status(frame, caller, drawn) == as_maps(view.status(frame, caller))

    async def wait(self, seconds: float, step: float = 1.0, alive: bool = True) -> None:
        """Time goes by, idle kernels idle on."""
        while seconds > 0:
            passed = min(step, seconds)
            self.clock.advance(passed)
            seconds -= passed
            for name, held in self.node.held.items():
                if held.gpu_idle_s is not None:
                    self.node.held[name] = msgspec.structs.replace(held, gpu_idle_s=held.gpu_idle_s + passed)
            if alive:
                for session in self.broker.cluster.sessions.values():
                    session.last_alive = self.clock()
            await self.settle()

    async def call(self, method: str, path: str, caller: Caller, body: object = None, **query: str) -> Any:
        raw = b"" if body is None else json.dumps(body).encode()
        reply = await self.broker.call(caller, method, path, query, raw)
        return json.loads(msgspec.json.encode(reply.body))

    async def open(self, name: str, user: str = "alice", **spec: Any) -> Any:
        body = {"id": name, "user": user, "origin": f"{user}-lab", "label": f"{name}.ipynb"}
        body |= {"server": self.node.name, **spec}
        return await self.call("PUT", f"sessions/{name}", server(user), body)

    async def started(self, name: str, user: str = "alice") -> None:
        self.node.pids[name] = 1000 + len(self.node.pids)
        body = {"pid": self.node.pids[name], "started": 1.0}
        await self.call("POST", f"sessions/{name}/started", server(user), body)
        await self.settle()

    async def kernel(self, name: str, user: str = "alice", **spec: Any) -> Any:
        """A kernel that was started."""
        binding = await self.open(name, user, **spec)
        await self.started(name, user)
        return binding

    async def cell(self, name: str, user: str = "alice", memory: int = GIB, busy: float = 0.9) -> None:
        """A cell begins and uses the device."""
        await self.call("POST", f"sessions/{name}/burst", server(user), {"phase": "start"})
        await self.settle()
        session = self.broker.cluster.sessions[name]
        if session.leased:
            self.node.uses(name, session.devices[0], memory, busy)
            await self.settle()

    async def cell_ends(self, name: str, user: str = "alice") -> None:
        await self.call("POST", f"sessions/{name}/burst", server(user), {"phase": "end"})
        if name in self.node.held:
            self.node.quiet(name, 0.0)
        await self.settle()

    async def ends(self, name: str, user: str = "alice", why: str = "cleanup") -> None:
        self.node.dies(name)
        await self.call("POST", f"sessions/{name}/ended", server(user), {"why": why})
        await self.settle()

    async def status(self, user: str = "alice", admin: bool = False) -> Any:
        return await self.call("GET", "status", Caller(user=user, admin=admin))

    async def seen(self, name: str, user: str = "alice") -> Any:
        return next(session for session in (await self.status(user))["sessions"] if session["id"] == name)


def as_maps(status: Status) -> Any:
    plain = msgspec.to_builtins(status)
    servers = {one["name"]: one | {"devices": {d["uuid"]: d for d in one["devices"]}} for one in plain["servers"]}
    return plain | {"servers": servers, "sessions": {one["id"]: one for one in plain["sessions"]}}


def server(user: str) -> Caller:
    return Caller(user=user, role="server", origin=f"{user}-lab")


def kernel(user: str, session: str) -> Caller:
    return Caller(user=user, role="kernel", session=session)


@pytest.fixture
def world(clock, jp_asyncio_loop):
    """Makes worlds: `await world(policy, devices=2, lease_ttl_s=…)`."""
    made: list[World] = []

    async def make(policy: Policy | None = None, devices: int = 2, **settings: Any) -> World:
        world = World(clock, policy or Policy(), Settings(version="0", tick_s=0.05, **settings), devices)
        made.append(world)
        await world.start()
        return world

    yield make
    for world in made:
        jp_asyncio_loop.run_until_complete(world.broker.stop())
