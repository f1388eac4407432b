"""Ours on arrivals that never leave: every demand is put to the core, and what it decides is done.

What was placed before never changes again, so the core is told of it as shares promised for good, not lease by lease.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from ...core import packing
from ...core.decide import decide
from ...core.mix import Mix, Shape, renewed
from ...core.policy import Policy, Weights
from ...core.state import LONG, WAITING, Bools, Devices, Hosts, Ints, Placements, Sessions, State, Users
from ...model import Place
from ..arrivals import GPU_W, MILLI, SOCKET_MILLI, SOCKET_W, UNKNOWN_W, Packer, Room
from ..arrivals import Place as Placed
from ..workloads.openb import Servers, Trace

MIB = 2**20
DEVICE_MEMORY = 2.0**34  # the trace does not say what its devices have; a share asks for that share of it


def gpushare(trace: Trace, seed: int, policy: Policy | None = None) -> Packer:
    """Ours with default weights: nothing is moved, what typically comes is learned as it comes."""
    return _Cluster(trace, policy or Policy(reclaim="never")).place


def frugal(trace: Trace, seed: int) -> Packer:
    """Ours with power weighing more, for clusters that are seldom full."""
    return gpushare(trace, seed, Policy(reclaim="never", weights=Weights(energy=4.0)))


class _Cluster:
    """The cluster as the core wants it, and what has come so far."""

    def __init__(self, trace: Trace, policy: Policy) -> None:
        servers, shapes = trace.servers, trace.shapes
        self.policy = policy
        self.seen: Counter[Shape] = Counter()
        self.shapes = [
            Shape(
                devices=int(shapes.count[row]),
                share=float(shapes.milli[row]) / MILLI,
                cpus=float(shapes.cpu[row]) / MILLI,
                host_memory=float(shapes.memory[row]) * MIB,
                models=models or None,
            )
            for row, models in enumerate(shapes.models)
        ]
        models = tuple(sorted(set(servers.model)))
        devices, self.first = _devices(servers, models)
        slot = np.arange(devices.server.size) - self.first[devices.server]
        self.slots = devices.server * int(servers.gpus.max()) + slot  # in `Room.gpu`, flat
        self.row = {uuid: row for row, uuid in enumerate(devices.uuid)}
        allowed, allowed_row = _allowed(trace, devices)
        self.sessions = [_session(asks, int(row)) for asks, row in zip(self.shapes, allowed_row, strict=True)]
        self.hosts = _hosts(servers)
        self.base = State(
            devices=devices,
            sessions=self.sessions[0],
            placements=NO_PLACEMENTS,
            users=Users(name=("all",), weight=np.ones(1), usage=np.zeros(1), cap=np.full(1, np.inf)),
            servers=tuple(f"{row:05d}" for row in range(len(servers.name))),  # equals go by the order of servers
            models=models,
            allowed=allowed,
            transfer_s=np.zeros((0, len(servers.name))),
        )
        self.mix: Mix | None = None

    def place(self, room: Room, shape: int) -> Placed | None:
        """What the core decides for one more demand of this shape."""
        asks = self.shapes[shape]
        self.seen[asks] += 1
        self.mix = renewed(self.mix, self.seen, self.base.models, self.policy.seed)
        state = self._state(room, shape)
        if asks.devices == 0:
            server = packing.seat(state, asks.cpus, asks.host_memory, self.policy)
            return None if server is None else (server, np.zeros(0, np.int64))
        for decision in decide(state, 0.0, self.policy):
            if isinstance(decision, Place) and decision.lease:
                devices = np.array([self.row[uuid] for uuid in decision.devices])
                server = int(state.devices.server[devices[0]])
                return server, devices - self.first[server]
        return None

    def _state(self, room: Room, shape: int) -> State:
        """One session that waits; the rest is promised."""
        promised = 1.0 - room.gpu.take(self.slots) / MILLI
        return replace(
            self.base,
            devices=replace(self.base.devices, promised=promised, memory_unaccounted=promised * DEVICE_MEMORY),
            sessions=self.sessions[shape],
            hosts=replace(self.hosts, cpus_free=room.cpu / MILLI, memory_free=room.memory * float(MIB)),
            mix=self.mix,
        )


def _hosts(servers: Servers) -> Hosts:
    """The servers' CPUs and memory when nothing is placed."""
    cpus, memory, size = servers.cpu / MILLI, servers.memory * float(MIB), len(servers.name)
    return Hosts(
        cpus=cpus,
        memory=memory,
        cpus_free=cpus,
        memory_free=memory,
        processor_cpus=np.full(size, SOCKET_MILLI / MILLI),
        processor_w=np.full(size, SOCKET_W[1] - SOCKET_W[0]),
    )


def _devices(servers: Servers, models: tuple[str, ...]) -> tuple[Devices, Ints]:
    """The devices of all servers, one server after another; (V,) the row of each server's first."""
    server = np.repeat(np.arange(servers.gpus.size), servers.gpus)
    first = np.cumsum(servers.gpus) - servers.gpus
    size = server.size
    model = np.array([models.index(name) for name in servers.model])[server]
    watts = np.array([GPU_W.get(name, UNKNOWN_W) for name in models])[model]
    unknown, zero, yes, no = np.full(size, np.nan), np.zeros(size), np.ones(size, np.bool_), np.zeros(size, np.bool_)
    return Devices(
        uuid=tuple(f"{row:05d}-{slot:02d}" for row, slot in zip(server, np.arange(size) - first[server], strict=True)),
        server=server,
        model=model,
        offered=yes,
        fresh=yes,
        single=no,
        blocked=no,
        can_park=no,
        leaving=no,
        tflops=unknown,  # the trace names some models by letters only, so speeds are not compared
        bandwidth_gb_s=unknown,
        clock_fraction=unknown,
        memory_total=np.full(size, DEVICE_MEMORY),
        memory_used=zero,
        memory_unaccounted=zero,
        utilization=unknown,
        utilization_sd=unknown,
        memory_utilization=unknown,
        temperature_c=unknown,
        temperature_limit_c=unknown,
        power_w=unknown,
        power_idle_w=watts[:, 0],
        power_limit_w=watts[:, 1],
        link_gb_s=unknown,
    ), first


def _allowed(trace: Trace, devices: Devices) -> tuple[Bools, Ints]:
    """(A, D) the distinct sets of devices that models leave, and (H,) the row of each shape's."""
    rows, row = np.unique(trace.shapes.allowed(trace.servers), axis=0, return_inverse=True)
    return rows[:, devices.server], row.ravel()


def _session(asks: Shape, allowed: int) -> Sessions:
    """A job that waits for its devices and will keep them."""
    one, unknown, never, no = np.zeros(1, np.int64), np.full(1, np.nan), np.full(1, -np.inf), np.zeros(1, np.bool_)
    whole = np.full(1, asks.share >= 1)
    return Sessions(
        id=("demand",),
        user=one,
        state=np.full(1, WAITING),
        count=np.full(1, asks.devices),
        guarantee=np.full(1, asks.share),
        limit=np.ones(1),
        exclusive=no,
        whole=whole,
        memory=unknown,
        allowed=np.full(1, allowed),
        near=np.full(1, -1),
        compute_p=np.full(1, 0.5),
        confidence=np.zeros(1),
        horizon=np.full(1, LONG),
        duration_s=unknown,
        bursting=no,
        gated=~whole,
        cooperative=no,
        context=no,
        waiting_since=np.zeros(1),
        idle_since=unknown,
        pinned_until=never,
        protected_until=never,
        unparkable=no,
        warned_rung=np.full(1, -1),
        warned_until=unknown,
        gaps=np.zeros((1, 0)),
        parked_bytes=np.zeros(1),
        cpus=np.full(1, asks.cpus),
        host_memory=np.full(1, asks.host_memory),
    )


_NONE = np.zeros(0)
NO_PLACEMENTS = Placements(
    session=_NONE.astype(np.int64),
    device=_NONE.astype(np.int64),
    lease=_NONE.astype(np.bool_),
    borrowed=_NONE.astype(np.bool_),
    share=_NONE,
    target=_NONE,
    share_since=_NONE,
    use=_NONE,
    memory_used=_NONE,
)
POLICIES: dict[str, Callable[[Trace, int], Packer]] = {"gpushare": gpushare, "gpushare+energy": frugal}
