"""The state matrix of a simulated cluster, changed in place as things happen, so that a state costs no rebuilding.

Rows are those of the workload's scripts from beginning to end; what has not started or has ended asks for nothing.
"""

from __future__ import annotations

from dataclasses import fields

import numpy as np

from ..core import fairness
from ..core.elastic import smooth
from ..core.probe import UNKNOWN, Belief, Burst, observe
from ..core.state import (
    BOUND,
    BURSTY,
    DEAD,
    IDLE,
    NONE,
    SETTLED_WINDOWS,
    WAITING,
    Devices,
    Placements,
    Sessions,
    State,
    Users,
)
from ..model import HORIZONS
from .cluster import Cluster
from .script import Script

GAPS = 16  # as many as the broker keeps
USE_WINDOW_S = 30.0  # smoothing of what is measured, as the broker's
SETTLED_S = SETTLED_WINDOWS * USE_WINDOW_S
_KIND = {"compute": 1.0, "data": 0.0, "mixed": 0.5}


class World:
    """Devices, sessions, placements and users, and what they do now.

    Attributes
    ----------
    devices, sessions, users : the core's arrays, changed in place
    slots : one row for every device that a session may ever hold; `device` is -1 where it holds none
    on : (S,) lists of device rows, in the order in which they were given
    leases : (D,) how many leases each device carries
    held : devices that carry any
    computed, moved : (D,) fractions of its time and bandwidth in use now
    burst_since : (S,) when the burst that runs began
    using : for each slot, the fraction of its device's time that its session computes now
    """

    def __init__(self, scripts: tuple[Script, ...], cluster: Cluster) -> None:
        self.cluster, self.devices = cluster, _copy(cluster.devices)
        size, count = len(scripts), np.array([script.demand.devices for script in scripts], dtype=np.int64)
        users = tuple(sorted({script.user for script in scripts}))
        row = {user: index for index, user in enumerate(users)}
        self.count = count
        self.guarantee = np.array([script.demand.guarantee for script in scripts])
        self.sessions = _asleep(scripts, np.array([row[script.user] for script in scripts], dtype=np.int64))
        self.users = Users(
            name=users,
            weight=np.ones(len(users)),
            usage=np.zeros(len(users)),
            cap=np.full(len(users), np.inf),
        )
        self.first = np.concatenate([[0], np.cumsum(count)])
        self.slots = _no_placements(int(self.first[-1]), np.repeat(np.arange(size), count))
        servers = len(cluster.servers)
        here = self.devices.server == np.arange(servers)[:, None]
        self.allowed = np.concatenate([np.ones((1, here.shape[1]), np.bool_), here])  # row 0: anywhere
        self.nowhere = np.zeros((0, servers))
        self.on: list[list[int]] = [[] for _ in scripts]
        self.leases, self.held = [0] * here.shape[1], 0
        self.computed, self.moved = np.zeros(here.shape[1]), np.zeros(here.shape[1])
        self.burst_since = np.full(size, np.nan)
        self.using = np.zeros(int(self.first[-1]))
        self.beliefs: list[Belief] = [UNKNOWN] * size
        self._worth = fairness.worth(self.devices)
        self._measured_s = 0.0

    def state(self) -> State:
        """What the core may look at now. It shares this world's arrays, so it holds until the next change."""
        rows = np.flatnonzero(self.slots.device >= 0)
        return State(
            devices=self.devices,
            sessions=self.sessions,
            placements=Placements(**{name: getattr(self.slots, name)[rows] for name in _SLOTS}),
            users=self.users,
            servers=self.cluster.servers,
            models=self.cluster.models,
            allowed=self.allowed,
            transfer_s=self.nowhere,
        )

    def measure(self, now: float, half_life_s: float) -> None:
        """Reads every device and charges every user for the time since the last reading."""
        dt_s = now - self._measured_s
        if dt_s <= 0:
            return
        self._measured_s = now
        devices, slots = self.devices, self.slots
        spread = np.abs(self.computed - devices.utilization)
        for mean, sample in (
            (devices.utilization, self.computed),
            (devices.memory_utilization, self.moved),
            (devices.utilization_sd, spread),
        ):
            mean[:] = smooth(mean, sample, dt_s, USE_WINDOW_S)
        devices.power_w[:] = devices.power_idle_w + self.computed * (devices.power_limit_w - devices.power_idle_w)
        placed = np.flatnonzero(slots.lease)
        slots.use[placed] = smooth(slots.use[placed], self.using[placed], dt_s, USE_WINDOW_S)
        self._settle(now)
        waiting = self.sessions.waiting_since == self.sessions.waiting_since
        self.users.usage[:] = fairness.decay(self.users.usage, dt_s, half_life_s)
        if waiting.any():
            wanted = self.allowed[self.sessions.allowed[waiting]].any(axis=0)
            device = slots.device[placed]
            self.users.usage[:] = fairness.charge(
                self.users.usage,
                self.sessions.user[slots.session[placed]],
                slots.share[placed],
                self._worth[device],
                wanted[device],
                dt_s,
            )

    def _settle(self, now: float) -> None:
        """What bursts use is known once they have lasted for some windows."""
        slots = self.slots
        young = now - self.burst_since < SETTLED_S - 1e-6
        slots.steady[:] = np.where(self.sessions.bursting & ~young, 1.0, np.nan)[slots.session] * slots.use

    # --- sessions come, are given devices, and go ---------------------------------------------------------------

    def open(self, session: int, now: float) -> None:
        """Its kernel starts and asks for its place."""
        asks = self.sessions
        asks.count[session], asks.guarantee[session], asks.limit[session] = (
            self.count[session],
            self.guarantee[session],
            1.0,
        )
        asks.state[session], asks.waiting_since[session] = WAITING, now

    def close(self, session: int) -> None:
        """Its kernel ended; everything it held is free."""
        self.leave(session)
        asks = self.sessions
        asks.count[session], asks.guarantee[session], asks.limit[session] = 0, 0.0, 0.0
        asks.state[session] = DEAD
        asks.waiting_since[session] = asks.idle_since[session] = np.nan
        asks.gated[session] = asks.bursting[session] = False
        asks.parked_bytes[session] = 0.0

    def place(self, session: int, devices: list[int], *, lease: bool, borrowed: bool, share: float) -> None:
        """Binds or leases; a device that it keeps keeps its target."""
        slots, at = self.slots, int(self.first[session])
        same = self.on[session] == devices
        if not same:
            self.leave(session)
            self.on[session] = devices
        for slot, device in enumerate(devices, at):
            if slots.lease[slot] != lease:
                self._count_lease(device, 1 if lease else -1)
            slots.device[slot], slots.lease[slot], slots.borrowed[slot] = device, lease, borrowed
            slots.share[slot] = share if lease else 0.0
            if lease and np.isnan(slots.target[slot]):
                slots.target[slot], slots.share_since[slot] = self.guarantee[session], 0.0
        self.sessions.allowed[session] = 1 + int(self.devices.server[devices[0]])  # where its kernel runs from now on

    def end_lease(self, session: int) -> None:
        """It stays placed, for where it comes from, and holds nothing."""
        at = slice(int(self.first[session]), int(self.first[session]) + len(self.on[session]))
        for slot in range(at.start, at.stop):
            if self.slots.lease[slot]:
                self._count_lease(int(self.slots.device[slot]), -1)
        self.slots.lease[at] = self.slots.borrowed[at] = False
        self.slots.share[at] = 0.0
        self.occupy(session, 0.0)
        self.sessions.context[session] = False

    def leave(self, session: int) -> None:
        """Ends its placements."""
        if not self.on[session]:
            return
        self.end_lease(session)
        at = slice(int(self.first[session]), int(self.first[session]) + len(self.on[session]))
        self.slots.device[at] = -1
        self.slots.target[at] = self.slots.share_since[at] = self.slots.use[at] = self.slots.memory_used[at] = np.nan
        self.on[session] = []

    def occupy(self, session: int, memory: float) -> None:
        """What it has on each of its devices from now on, in bytes."""
        for slot, device in enumerate(self.on[session], int(self.first[session])):
            before = self.slots.memory_used[slot]
            self.devices.memory_used[device] += memory - (0.0 if np.isnan(before) else before)
            self.slots.memory_used[slot] = memory

    def _count_lease(self, device: int, change: int) -> None:
        self.leases[device] += change
        if self.leases[device] == max(change, 0):  # the first came, or the last went
            self.held += change

    def anyone_waits(self) -> bool:
        waiting = self.sessions.waiting_since
        return bool((waiting == waiting).any())

    def leased(self, session: int) -> bool:
        return bool(self.on[session]) and bool(self.slots.lease[self.first[session]])

    def borrowed(self, session: int) -> bool:
        return bool(self.on[session]) and bool(self.slots.borrowed[self.first[session]])

    def rest(self, session: int, now: float) -> None:
        """Its burst has ended."""
        asks = self.sessions
        asks.bursting[session], asks.idle_since[session] = False, now
        since = asks.burst_since[session]
        if since == since:
            asks.ran[session, :-1] = asks.ran[session, 1:]
            asks.ran[session, -1], asks.burst_since[session] = now - since, np.nan
        asks.state[session] = IDLE if self.on[session] else NONE

    def begin(self, session: int, now: float) -> float:
        """It wants to compute, after a gap that is kept and returned; NaN where there was none. Notices are off."""
        asks = self.sessions
        gap = now - float(asks.idle_since[session]) if asks.context[session] or asks.parked_bytes[session] else np.nan
        if gap == gap:
            asks.gaps[session, :-1] = asks.gaps[session, 1:]
            asks.gaps[session, -1] = gap
        asks.warned_rung[session], asks.warned_until[session] = -1, np.nan
        return float(gap)

    def learn(self, session: int, burst: Burst, named: bool) -> None:
        """What a burst told of the session's kind, where nobody named it, and horizon."""
        belief = self.beliefs[session] = observe(self.beliefs[session], burst)
        asks = self.sessions
        asks.horizon[session] = HORIZONS.index(belief.horizon)
        if not named:
            asks.compute_p[session], asks.confidence[session] = belief.compute_p, belief.confidence

    def bind(self, session: int) -> None:
        """It has its place and nothing there yet."""
        self.sessions.state[session], self.sessions.waiting_since[session] = BOUND, np.nan


_SLOTS = tuple(field.name for field in fields(Placements))


def _copy(devices: Devices) -> Devices:
    arrays = {field.name: getattr(devices, field.name).copy() for field in fields(Devices) if field.name != "uuid"}
    return Devices(uuid=devices.uuid, **arrays)


def _asleep(scripts: tuple[Script, ...], user: np.ndarray) -> Sessions:
    """Sessions that have not started."""
    size = len(scripts)
    demands = [script.demand for script in scripts]

    def full(value: float, dtype: type = np.float64) -> np.ndarray:
        return np.full(size, value, dtype=dtype)

    return Sessions(
        id=tuple(script.id for script in scripts),
        user=user,
        state=full(NONE, np.int64),
        count=full(0, np.int64),
        guarantee=full(0.0),
        limit=full(0.0),
        exclusive=np.array([demand.exclusive for demand in demands], dtype=np.bool_),
        whole=np.array([demand.whole for demand in demands], dtype=np.bool_),
        memory=np.array([np.nan if d.memory is None else d.memory for d in demands], dtype=np.float64),
        allowed=full(0, np.int64),
        near=full(-1, np.int64),
        compute_p=np.array([_KIND.get(demand.kind or "", 0.5) for demand in demands]),
        confidence=np.array([1.0 if demand.kind else 0.0 for demand in demands]),
        horizon=np.array([HORIZONS.index(d.horizon) if d.horizon else BURSTY for d in demands], dtype=np.int64),
        duration_s=np.array([np.nan if d.duration_s is None else d.duration_s for d in demands], dtype=np.float64),
        bursting=full(False, np.bool_),
        gated=full(False, np.bool_),
        cooperative=full(True, np.bool_),
        context=full(False, np.bool_),
        waiting_since=full(np.nan),
        idle_since=full(np.nan),
        pinned_until=full(-np.inf),
        protected_until=full(-np.inf),
        unparkable=full(False, np.bool_),
        warned_rung=full(-1, np.int64),
        warned_until=full(np.nan),
        gaps=np.full((size, GAPS), np.nan),
        parked_bytes=full(0.0),
        ran=np.full((size, GAPS), np.nan),
        burst_since=full(np.nan),
    )


def _no_placements(size: int, session: np.ndarray) -> Placements:
    unknown = [np.full(size, np.nan) for _ in range(5)]
    return Placements(
        session=session,
        device=np.full(size, -1, dtype=np.int64),
        lease=np.zeros(size, dtype=np.bool_),
        borrowed=np.zeros(size, dtype=np.bool_),
        share=np.zeros(size),
        target=unknown[0],
        share_since=unknown[1],
        use=unknown[2],
        memory_used=unknown[3],
        steady=unknown[4],
    )
