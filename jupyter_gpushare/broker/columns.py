"""The state matrix's columns, kept from turn to turn: only the rows of records that changed are worked out again.

A record is told to have changed by what it holds, so nothing has to say so: to compare is many times cheaper than to
work out. What time alone changes is worked out again from the instant on at which it does.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

import numpy as np
from msgspec.structs import replace

from ..core.policy import Policy
from ..core.state import SETTLED_WINDOWS, Bools, Floats
from ..model import HORIZONS, STATES, Device
from . import room
from .places import Bounds, Places, bounds_of, placeable, places_of
from .records import GAPS, USE_WINDOW_S, Cluster, DeviceRecord, Placement, Session

LONG_PROTECTION_S = 4 * 3600.0  # a long session that names no duration is left alone this long
UNACCOUNTED_MIN = 2**29  # bytes: drivers keep some memory for themselves; more than that is somebody's
RUNGS = ("trim", "unbind", "park", "stop")
JUST_S = 1e-6  # so long before its instant a row is worked out again: sums of instants are rounded

RECORD = attrgetter("server", "seen", "received", "utilization", "utilization_sd", "memory_utilization", "drained")
SEEN = (
    "tflops", "bandwidth_gb_s", "clock_fraction", "memory_total", "memory_used", "memory_unaccounted",
    "temperature_c", "temperature_limit_c", "power_w", "power_idle_w", "power_limit_w",
)  # fmt: skip
SMOOTHED = ("utilization", "utilization_sd", "memory_utilization")
FLAGS = ("usable", "known", "single", "blocked", "can_park", "leaving")
OF_DEVICE = {name: column for column, name in enumerate((*SEEN, *SMOOTHED, *FLAGS, "read_at"))}
READ_SEEN, READ_SMOOTHED = attrgetter(*SEEN), attrgetter(*SMOOTHED)

SESSION = attrgetter(
    "demand", "server", "home", "reach", "pool", "pid", "recovering", "cooperative", "mask", "mps_pipe", "ceiling",
    "ended", "opened",
    "cells", "over_since", "gated", "admitted_at", "waiting_since", "lease_since", "burst", "idle_before",
    "last_burst_end", "last_use", "belief", "memory_peak", "pinned_until", "unparkable_until", "warned", "warned_until",
    "held", "parked_bytes", "doing", "harmed", "retry_at", "released_at", "refused", "wants_back", "gaps", "ran",
)  # fmt: skip
PLACEMENT = attrgetter("device", "lease", "borrowed", "share", "target", "share_since", "use", "memory_used")
OF_SESSION = {
    name: column
    for column, name in enumerate(
        (
            "state", "count", "most", "guarantee", "limit", "exclusive", "whole", "memory", "compute_p", "confidence",
            "horizon", "duration_s", "bursting", "gated", "cooperative", "context", "waiting_since", "idle_since",
            "pinned_until", "protected_until", "unparkable", "warned_rung", "warned_until", "parked_bytes", "cpus",
            "host_memory", "burst_since", "on_devices", "server", "parks", "spread",
        )
    )
}  # fmt: skip
OF_PLACEMENT = ("device", "lease", "borrowed", "share", "target", "share_since", "use", "memory_used", "steady")


@dataclass(slots=True)
class DeviceColumns:
    """Row d is the d-th device of the cluster.

    Attributes
    ----------
    known : (D,) what each record held when its row was worked out
    table : (D, OF_DEVICE)
    places : where they are; another object when a device came, went, or is offered in another way
    lost : those that are
    """

    known: list[tuple[object, ...]] = field(default_factory=list)
    table: Floats = field(default_factory=lambda: np.zeros((0, len(OF_DEVICE))))
    places: Places = field(default_factory=lambda: places_of([]))
    lost: frozenset[str] = frozenset()

    def update(self, cluster: Cluster) -> None:
        records = list(cluster.devices.values())
        now = [RECORD(record) for record in records]
        changed = range(len(now))
        if len(now) == len(self.known):
            changed = [row for row, (new, old) in enumerate(zip(now, self.known, strict=True)) if new != old]
        if len(now) != len(self.known) or any(_place(now[row]) != _place(self.known[row]) for row in changed):
            self.places, self.table = places_of(records), np.empty((len(records), len(OF_DEVICE)))
            changed = range(len(now))
        if changed:
            self.table[list(changed)] = np.array([_device_row(records[row]) for row in changed], dtype=float)
            self.lost = frozenset(record.seen.uuid for record in records if record.seen.state == "lost")
        self.known = now

    def floats(self, name: str) -> Floats:
        return self.table[:, OF_DEVICE[name]].copy()

    def bools(self, name: str) -> Bools:
        return self.table[:, OF_DEVICE[name]] > 0


def _place(known: tuple[Any, ...]) -> tuple[object, ...]:
    """What `Places` depends on."""
    seen: Device = known[1]
    return known[0], seen.uuid, seen.model, seen.sharing, seen.mps


def _device_row(record: DeviceRecord) -> tuple[float | None, ...]:
    """In the order of OF_DEVICE."""
    seen, taken = record.seen, room.taken(record.seen)
    told = seen if taken == seen.memory_unaccounted else replace(seen, memory_unaccounted=taken)
    return (
        *READ_SEEN(told),
        *READ_SMOOTHED(record),
        seen.state == "healthy" and seen.in_pool and not record.drained,
        seen.state != "unknown",
        seen.sharing == "exclusive",
        blocked(seen),
        seen.can_park,
        record.drained or seen.state in ("draining", "failing"),
        record.received - seen.age_s,
    )


def blocked(seen: Device) -> bool:
    """Holds what no session of ours accounts for (rule 4)."""
    unaccounted = seen.memory_unaccounted or 0
    return unaccounted > UNACCOUNTED_MIN or any(process.why in ("leftover", "foreign") for process in seen.processes)


@dataclass(slots=True, eq=False)
class Known:
    """What was worked out of one session.

    Attributes
    ----------
    session, held : the record, and what it held then
    until : from then on time alone has changed it
    row : its row in the tables
    allowed : row into `SessionColumns.allowed`: where it may go
    placed : one row of OF_PLACEMENT for each device it is on
    """

    session: Session
    held: tuple[object, ...]
    until: float
    row: int
    allowed: int
    placed: list[tuple[float | None, ...]]


@dataclass(slots=True)
class SessionColumns:
    """Tables of which each session keeps its row while it lives.

    Attributes
    ----------
    table : (R, OF_SESSION)
    gaps, ran : (R, GAPS) NaN padded
    known : by id
    bounds, allowed : the row of these bounds, and (D,) where they let a session go, while `places` holds
    """

    table: Floats = field(default_factory=lambda: np.zeros((0, len(OF_SESSION))))
    gaps: Floats = field(default_factory=lambda: np.zeros((0, GAPS)))
    ran: Floats = field(default_factory=lambda: np.zeros((0, GAPS)))
    known: dict[str, Known] = field(default_factory=dict)
    bounds: dict[Bounds, int] = field(default_factory=dict)
    allowed: list[Bools] = field(default_factory=list)
    _spare: list[int] = field(default_factory=list)
    _of: tuple[object, ...] = ()  # what all rows depend on

    def update(
        self, cluster: Cluster, sessions: list[Session], devices: DeviceColumns, policy: Policy, now: float
    ) -> list[Known]:
        """What is known of each of these sessions, in their order."""
        of = (devices.places, devices.lost, policy.window_s)
        if of != self._of:
            self._of, self.known, self._spare = of, {}, list(range(len(self.table)))
            self.bounds, self.allowed = {}, []
        found = []
        for session in sessions:
            held = (SESSION(session), tuple(map(PLACEMENT, session.placements.values())))
            known = self.known.get(session.id)
            if known is None or known.session is not session or now >= known.until or known.held != held:
                known = self._worked_out(cluster, session, held, devices.places, policy, now)
            found.append(known)
        if len(self.known) > len(sessions):
            live = {session.id for session in sessions}
            for gone in [name for name in self.known if name not in live]:
                self._spare.append(self.known.pop(gone).row)
        return found

    def _allowed(self, places: Places, bounds: Bounds) -> int:
        row = self.bounds.get(bounds)
        if row is None:
            row = self.bounds[bounds] = len(self.allowed)
            self.allowed.append(placeable(places, bounds))
        return row

    def _worked_out(
        self,
        cluster: Cluster,
        session: Session,
        held: tuple[object, ...],
        places: Places,
        policy: Policy,
        now: float,
    ) -> Known:
        steady = settled(session, policy, now)
        values, (gaps, ran) = _session_row(cluster, session, places, now), padded((session.gaps, session.ran))
        placed = [
            _placement_row(placement, places, steady)
            for placement in session.placements.values()
            if placement.device in places.row
        ]
        before = self.known.get(session.id)
        row = self._new_row() if before is None else before.row
        self.table[row], self.gaps[row], self.ran[row] = values, gaps, ran
        known = self.known[session.id] = Known(
            session=session,
            held=held,
            until=_changes_at(session, policy, now) - JUST_S,
            row=row,
            allowed=self._allowed(places, bounds_of(cluster, session, some_mps=bool(places.mps))),
            placed=placed,
        )
        return known

    def _new_row(self) -> int:
        if not self._spare:
            size = len(self.table)
            more = max(size, 64)
            self._spare = list(range(size + more - 1, size - 1, -1))
            self.table = np.concatenate([self.table, np.empty((more, len(OF_SESSION)))])
            self.gaps = np.concatenate([self.gaps, np.empty((more, GAPS))])
            self.ran = np.concatenate([self.ran, np.empty((more, GAPS))])
        return self._spare.pop()


def _session_row(cluster: Cluster, session: Session, places: Places, now: float) -> list[float | None]:
    """In the order of OF_SESSION."""
    demand, asks = session.demand, now >= session.retry_at  # a refused resume is not asked for before its time
    return [
        STATES.index(cluster.state_of(session, now)),
        demand.devices if session.placements or (session.wants and not session.refused) else 0,
        demand.gpus_max or 0,
        demand.guarantee,
        session.limit,
        demand.exclusive,
        demand.whole,
        demand.memory if demand.memory is not None else session.memory_peak,
        compute_p(session),
        1.0 if demand.kind else session.belief.confidence,
        HORIZONS.index(demand.horizon or session.belief.horizon),
        demand.duration_s,
        session.bursting(now) and asks,
        (session.gated or session.wants_back) and asks,
        session.cooperative,
        session.context,
        session.waiting_since,
        session.idle_since(now),
        # What a restart brought back is left alone until its server or node confirms it.
        math.inf if session.recovering else _or(session.pinned_until, -math.inf),
        protected_until(session),
        # The driver does not checkpoint clients of MPS.
        (session.unparkable_until is not None and now < session.unparkable_until)
        or session.mps_pipe is not None
        or demand.spread,
        -1 if session.warned is None else RUNGS.index(session.warned),
        session.warned_until,
        session.parked_bytes or 0,
        demand.cpus,
        demand.host_memory,
        None if session.burst is None else session.burst.since,
        room.on_devices(session),
        places.server_row.get(cluster.server_of(session) or "", -1),
        session.doing == "park",
        demand.spread,
    ]


def _placement_row(placement: Placement, places: Places, steady: bool) -> tuple[float | None, ...]:
    """In the order of OF_PLACEMENT."""
    return (
        places.row[placement.device],
        placement.lease,
        placement.borrowed,
        placement.share,
        placement.target,
        placement.share_since,
        placement.use,
        placement.memory_used,
        placement.use if steady else None,
    )


def _changes_at(session: Session, policy: Policy, now: float) -> float:
    """When time alone changes its row; inf: never."""
    uses = [at + USE_WINDOW_S for at in (session.last_use, session.admitted_at) if at is not None]
    settles = [] if session.burst is None else [_settled_at(session.burst.since, policy)]
    others = [at for at in (session.retry_at, session.unparkable_until) if at is not None]
    return min((at for at in (*uses, *settles, *others) if at > now), default=math.inf)


def settled(session: Session, policy: Policy, now: float) -> bool:
    """Its burst has lasted so long that what is smoothed tells of this burst alone."""
    return session.burst is not None and now >= _settled_at(session.burst.since, policy)


def _settled_at(since: float, policy: Policy) -> float:
    return since + SETTLED_WINDOWS * policy.window_s


def compute_p(session: Session) -> float:
    """Probability that it is bound by FLOPS: named by its owner, else learned."""
    named = {"compute": 1.0, "data": 0.0, "mixed": 0.5}
    return named.get(session.demand.kind or "", session.belief.compute_p)


def protected_until(session: Session) -> float:
    """A long session's protection ends with its named duration, or LONG_PROTECTION_S after it got its device."""
    if session.recovering:
        return math.inf
    if session.demand.horizon != "long" or session.lease_since is None:
        return -math.inf
    return session.lease_since + _or(session.demand.duration_s, LONG_PROTECTION_S)


def padded(rows: Iterable[Collection[float]]) -> Floats:
    """(N, GAPS) what each row has, NaN padded."""
    full = [[*row, *[math.nan] * (GAPS - len(row))] for row in rows]
    return np.array(full, dtype=float).reshape(len(full), GAPS)


def _or(value: float | None, otherwise: float) -> float:
    return otherwise if value is None else value
