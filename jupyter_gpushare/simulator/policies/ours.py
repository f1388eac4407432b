"""Ours on arrivals that never leave: every demand is put to the core, and what it decides is done."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np

from ...core import packing
from ...core.decide import decide
from ...core.mix import Mix, Shape, renewed
from ...core.policy import Policy
from ...core.state import ACTIVE, LONG, WAITING, Bools, Devices, Hosts, Ints, Placements, Sessions, State, Users
from ...model import Place
from ..arrivals import GPU_W, MILLI, SOCKET_MILLI, SOCKET_W, UNKNOWN_W, Packer, Room
from ..arrivals import Place as Placed
from ..workloads.openb import Trace

MIB = 2**20
DEVICE_MEMORY = 2.0**34  # the trace does not say what its devices have; a share asks for that share of it


def gpushare(trace: Trace, seed: int, policy: Policy | None = None) -> Packer:
    """Ours with default weights: nothing is moved, what typically comes is learned as it comes."""
    cluster = _Cluster(trace, policy or Policy(reclaim="never"))
    return cluster.place


class _Cluster:
    """The state of the cluster as the core wants it, one more session at a time."""

    def __init__(self, trace: Trace, policy: Policy) -> None:
        self.trace, self.policy = trace, policy
        servers, most = trace.servers, trace.demands.size
        self.names = tuple(f"{row:05d}" for row in range(len(servers.name)))  # equals go by the order of servers
        self.models = tuple(sorted(set(servers.model)))
        self.devices, self.of_server = _devices(trace, self.models)
        self.row = {uuid: row for row, uuid in enumerate(self.devices.uuid)}
        self.processor_w = np.full(len(servers.name), SOCKET_W[1] - SOCKET_W[0])
        self.allowed, self.allowed_row = _allowed(trace, self.devices)
        self.shapes = [
            Shape(int(count), milli / MILLI, cpu / MILLI, float(memory) * MIB, models or None)
            for count, milli, cpu, memory, models in zip(
                trace.shapes.count.tolist(),
                trace.shapes.milli.tolist(),
                trace.shapes.cpu.tolist(),
                trace.shapes.memory.tolist(),
                trace.shapes.models,
                strict=True,
            )
        ]
        self.users = Users(name=("all",), weight=np.ones(1), usage=np.zeros(1), cap=np.full(1, np.inf))
        self.seen: Counter[Shape] = Counter()
        self.mix: Mix | None = None
        self.sessions = _sessions(most)
        self.placements = _placements(int(trace.shapes.count[trace.demands].sum()))
        self.held = self.placed = 0

    def place(self, room: Room, shape: int) -> Placed | None:
        """What the core decides for one more demand of this shape."""
        asks = self.shapes[shape]
        self.seen[asks] += 1
        self.mix = renewed(self.mix, self.seen, self.models, self.policy.seed)
        if asks.devices == 0:
            server = packing.seat(self._state(room, 0), asks.cpus, asks.host_memory, self.policy)
            return None if server is None else (server, np.zeros(0, np.int64))
        self._ask(asks, self.allowed_row[shape])
        for decision in decide(self._state(room, 1), 0.0, self.policy):
            if isinstance(decision, Place) and decision.lease:
                return self._hold(np.array([self.row[uuid] for uuid in decision.devices]))
        return None

    def _ask(self, asks: Shape, allowed: int) -> None:
        """Writes the next demand into the row after those that hold devices; one that got nothing is written over."""
        mine, columns = self.held, self.sessions
        columns["count"][mine], columns["guarantee"][mine] = asks.devices, asks.share
        columns["whole"][mine], columns["gated"][mine] = asks.share >= 1, asks.share < 1
        columns["cpus"][mine], columns["host_memory"][mine] = asks.cpus, asks.host_memory
        columns["allowed"][mine] = allowed
        columns["state"][mine], columns["waiting_since"][mine] = WAITING, 0.0
        columns["bursting"][mine] = columns["context"][mine] = False

    def _hold(self, devices: Ints) -> Placed:
        """Takes down that the session last asked for computes on these devices now."""
        mine, columns = self.held, self.sessions
        columns["state"][mine], columns["waiting_since"][mine] = ACTIVE, np.nan
        columns["bursting"][mine], columns["context"][mine], columns["gated"][mine] = True, True, False
        share = columns["guarantee"][mine]
        rows = slice(self.placed, self.placed + devices.size)
        self.placements["session"][rows], self.placements["device"][rows] = mine, devices
        self.placements["share"][rows] = self.placements["target"][rows] = share
        self.held, self.placed = self.held + 1, self.placed + devices.size
        server = int(self.devices.server[devices[0]])
        return server, devices - self.of_server[server]

    def _state(self, room: Room, asking: int) -> State:
        servers, size = self.trace.servers, self.held + asking
        return State(
            devices=self.devices,
            sessions=Sessions(**{name: column[:size] for name, column in self.sessions.items()}),
            placements=Placements(**{name: column[: self.placed] for name, column in self.placements.items()}),
            users=self.users,
            servers=self.names,
            models=self.models,
            allowed=self.allowed,
            transfer_s=np.zeros((0, len(servers.name))),
            hosts=Hosts(
                cpus=servers.cpu / MILLI,
                memory=servers.memory * float(MIB),
                cpus_free=room.cpu / MILLI,
                memory_free=room.memory * float(MIB),
                processor_cpus=np.full(len(servers.name), SOCKET_MILLI / MILLI),
                processor_w=self.processor_w,
            ),
            mix=self.mix,
        )


def _devices(trace: Trace, models: tuple[str, ...]) -> tuple[Devices, Ints]:
    """The devices of all servers, one server after another; (V,) the row of each server's first."""
    servers = trace.servers
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


def _sessions(most: int) -> dict[str, Any]:
    """Columns of `Sessions` for so many jobs that compute from when they are placed."""
    false, zero, unknown = np.zeros(most, np.bool_), np.zeros(most), np.full(most, np.nan)
    fixed = {
        "id": tuple(f"demand-{row}" for row in range(most)),
        "limit": np.ones(most),
        "user": zero.astype(np.int64),
        "near": np.full(most, -1),
        "horizon": np.full(most, LONG),
        "warned_rung": np.full(most, -1),
        "gaps": np.zeros((most, 0)),
        "confidence": zero,
        "parked_bytes": zero,
        "compute_p": np.full(most, 0.5),
        **dict.fromkeys(("exclusive", "cooperative", "unparkable"), false),
        **dict.fromkeys(("pinned_until", "protected_until"), np.full(most, -np.inf)),
        **dict.fromkeys(("memory", "duration_s", "idle_since", "warned_until"), unknown),
    }
    written = {
        **{name: np.zeros(most, np.int64) for name in ("state", "count", "allowed")},
        **{name: np.zeros(most) for name in ("guarantee", "waiting_since", "cpus", "host_memory")},
        **{name: np.zeros(most, np.bool_) for name in ("whole", "gated", "bursting", "context")},
    }
    return {**fixed, **written}


def _placements(most: int) -> dict[str, Any]:
    """Columns of `Placements` for so many leases."""
    return {
        **{name: np.zeros(most, np.int64) for name in ("session", "device")},
        **{name: np.zeros(most) for name in ("share", "target", "share_since")},
        **{name: np.full(most, np.nan) for name in ("use", "memory_used")},
        "lease": np.ones(most, np.bool_),
        "borrowed": np.zeros(most, np.bool_),
    }


POLICIES: dict[str, Callable[[Trace, int], Packer]] = {"gpushare": gpushare}
