"""The state matrix's columns, kept from turn to turn: only the rows of records that changed are worked out again.

A record says by its stamp that it changed, so nothing else has to: to compare a number is many times cheaper than to
work a row out. What time alone changes is worked out again from the instant on at which it does.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from itertools import chain
from operator import attrgetter, is_

import numpy as np
from msgspec.structs import replace

from ..core.policy import Policy
from ..core.state import SETTLED_WINDOWS, Bools, Floats, Ints
from ..model import HORIZONS, STATES, Device
from . import room
from .places import Bounds, Places, bounds_of, placeable, places_of
from .records import GAPS, Cluster, DeviceRecord, Placement, Session

LONG_PROTECTION_S = 4 * 3600.0  # a long session that names no duration is left alone this long
UNACCOUNTED_MIN = 2**29  # bytes: drivers keep some memory for themselves; more than that is somebody's
RUNGS = ("trim", "unbind", "park", "stop")
JUST_S = 1e-6  # so long before its instant a row is worked out again: sums of instants are rounded

SEEN = (
    "tflops", "bandwidth_gb_s", "clock_fraction", "memory_total", "memory_used", "memory_unaccounted",
    "temperature_c", "temperature_limit_c", "power_w", "power_idle_w", "power_limit_w",
)  # fmt: skip
SMOOTHED = ("utilization", "utilization_sd", "memory_utilization")
FLAGS = ("usable", "known", "single", "blocked", "can_park", "leaving")
OF_DEVICE = {name: column for column, name in enumerate((*SEEN, *SMOOTHED, *FLAGS, "read_at"))}
READ_SEEN, READ_SMOOTHED = attrgetter(*SEEN), attrgetter(*SMOOTHED)

OF_SESSION = {
    name: column
    for column, name in enumerate(
        (
            "state", "count", "most", "guarantee", "limit", "exclusive", "whole", "memory", "compute_p", "confidence",
            "horizon", "duration_s", "bursting", "gated", "cooperative", "context", "waiting_since", "idle_since",
            "pinned_until", "protected_until", "unparkable", "warned_rung", "warned_until", "parked_bytes", "cpus",
            "host_memory", "burst_since", "on_devices", "server", "parks", "spread", "keeps", "user", "near", "allowed",
        )
    )
}  # fmt: skip
OF_PLACEMENT = ("device", "lease", "borrowed", "share", "target", "share_since", "use", "memory_used", "steady")


@dataclass(slots=True)
class DeviceColumns:
    """Row d is the d-th device of the cluster.

    Attributes
    ----------
    stamps : (D,) of each record when its row was worked out
    located : (D,) what `Places` depends on
    table : (D, OF_DEVICE)
    places : where they are; another object when a device came, went, or is offered in another way
    lost : those that are
    """

    stamps: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    located: list[tuple[object, ...]] = field(default_factory=list)
    table: Floats = field(default_factory=lambda: np.zeros((0, len(OF_DEVICE))))
    places: Places = field(default_factory=lambda: places_of([]))
    lost: frozenset[str] = frozenset()

    def update(self, cluster: Cluster) -> None:
        records = list(cluster.devices.values())
        stamps = np.fromiter((record.stamp for record in records), np.int64, len(records))
        same = len(stamps) == len(self.stamps)
        changed = np.flatnonzero(stamps != self.stamps).tolist() if same else range(len(records))
        if not same or any(_located(records[row]) != self.located[row] for row in changed):
            self.places, self.table = places_of(records), np.empty((len(records), len(OF_DEVICE)))
            self.located, changed = [_located(record) for record in records], range(len(records))
        if changed:
            self.table[changed] = np.array([_device_row(records[row]) for row in changed], dtype=float)
            self.lost = frozenset(record.seen.uuid for record in records if record.seen.state == "lost")
        self.stamps = stamps

    def floats(self, name: str) -> Floats:
        return self.table[:, OF_DEVICE[name]].copy()

    def bools(self, name: str) -> Bools:
        return self.table[:, OF_DEVICE[name]] > 0


def _located(record: DeviceRecord) -> tuple[object, ...]:
    """What `Places` depends on."""
    seen = record.seen
    return record.server, seen.uuid, seen.model, seen.sharing, seen.mps


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
    session, stamp : the record, and its stamp then
    until : from then on time alone has changed it
    row : its row in the tables
    placed : rows into `SessionColumns.placed`, one for each device it is on
    """

    session: Session
    row: int
    stamp: int = -1
    until: float = -math.inf
    placed: list[int] = field(default_factory=list)


class Rows:
    """Which rows of tables that grow together are in use."""

    def __init__(self, *widths: int) -> None:
        self.tables = [np.zeros((0, width)) for width in widths]
        self._spare: list[int] = []

    def take(self) -> int:
        if not self._spare:
            size = len(self.tables[0])
            more = max(size, 64)
            self._spare = list(range(size + more - 1, size - 1, -1))
            self.tables = [np.concatenate([table, np.empty((more, table.shape[1]))]) for table in self.tables]
        return self._spare.pop()

    def give_back(self, *rows: int) -> None:
        self._spare.extend(rows)

    def __len__(self) -> int:
        return len(self.tables[0])


@dataclass(slots=True)
class SessionColumns:
    """Tables of which each session keeps its row while it lives.

    Attributes
    ----------
    rows : (R, OF_SESSION) and twice (R, GAPS), NaN padded: its last gaps and how long its last bursts took
    placed : (P, OF_PLACEMENT)
    known : by id
    sessions : (N,) at the last update
    ids, found, stamps, until : (N,) of these, what is known of each, and its figures
    order, counts : (N,) rows of these in `rows`, and how many placements each has
    devices : the rows in `placed` of all of them
    users, nears : whose numbers stand in the columns of these names
    bounds, allowed : the row of these bounds, and (D,) where they let a session go, while `places` holds
    """

    rows: Rows = field(default_factory=lambda: Rows(len(OF_SESSION), GAPS, GAPS))
    placed: Rows = field(default_factory=lambda: Rows(len(OF_PLACEMENT)))
    known: dict[str, Known] = field(default_factory=dict)
    sessions: list[Session] = field(default_factory=list)
    ids: tuple[str, ...] = ()
    found: list[Known] = field(default_factory=list)
    stamps: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    until: Floats = field(default_factory=lambda: np.zeros(0))
    order: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    counts: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    devices: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    users: dict[str, int] = field(default_factory=dict)
    nears: dict[tuple[str, ...], int] = field(default_factory=dict)
    bounds: dict[Bounds, int] = field(default_factory=dict)
    allowed: list[Bools] = field(default_factory=list)

    def update(self, cluster: Cluster, sessions: list[Session], places: Places, policy: Policy, now: float) -> None:
        """Brings all up to date for these sessions."""
        listed = len(sessions) == len(self.sessions) and all(map(is_, sessions, self.sessions))
        if not listed:
            self._list(sessions)
        stamps = np.fromiter((session.stamp for session in sessions), np.int64, len(sessions))
        moved = not listed
        for at in np.flatnonzero((stamps != self.stamps) | (now >= self.until)).tolist():
            known = self.found[at]
            moved |= self._work_out(cluster, known, places, policy, now)
            self.until[at] = known.until
        self.stamps = stamps
        if moved:
            self.counts = np.fromiter((len(one.placed) for one in self.found), np.int64, len(sessions))
            rows = chain.from_iterable(one.placed for one in self.found)
            self.devices = np.fromiter(rows, np.int64, int(self.counts.sum()))

    def _list(self, sessions: list[Session]) -> None:
        self.sessions, self.ids, self.found = sessions, tuple(session.id for session in sessions), []
        for session in sessions:
            known = self.known.get(session.id)
            if known is None or known.session is not session:
                row = self.rows.take() if known is None else known.row
                known = self.known[session.id] = Known(session, row, placed=[] if known is None else known.placed)
            self.found.append(known)
        if len(self.known) > len(sessions):
            live = set(self.ids)
            for name in [name for name in self.known if name not in live]:
                gone = self.known.pop(name)
                self.rows.give_back(gone.row)
                self.placed.give_back(*gone.placed)
        self.stamps = np.fromiter((one.stamp for one in self.found), np.int64, len(sessions))
        self.until = np.fromiter((one.until for one in self.found), float, len(sessions))
        self.order = np.fromiter((one.row for one in self.found), np.int64, len(sessions))

    def _allowed(self, places: Places, bounds: Bounds) -> int:
        row = self.bounds.get(bounds)
        if row is None:
            row = self.bounds[bounds] = len(self.allowed)
            self.allowed.append(placeable(places, bounds))
        return row

    def _work_out(self, cluster: Cluster, known: Known, places: Places, policy: Policy, now: float) -> bool:
        """Its rows; whether others than before are those of its placements."""
        session = known.session
        known.stamp, known.until = session.stamp, _changes_at(session, policy, now) - JUST_S
        near = session.near
        names = (
            self.users.setdefault(session.user, len(self.users)),
            self.nears.setdefault(near, len(self.nears)) if near else -1,
            self._allowed(places, bounds_of(cluster, session, some_mps=bool(places.mps))),
        )
        table, gaps, ran = self.rows.tables
        table[known.row] = (*_session_row(cluster, session, places, now), *names)
        _pad(gaps[known.row], session.gaps)
        _pad(ran[known.row], session.ran)
        steady = settled(session, policy, now)
        on = [placement for placement in session.placements.values() if placement.device in places.row]
        moved = len(on) != len(known.placed)
        while len(known.placed) < len(on):
            known.placed.append(self.placed.take())
        while len(known.placed) > len(on):
            self.placed.give_back(known.placed.pop())
        for row, placement in zip(known.placed, on, strict=True):
            self.placed.tables[0][row] = _placement_row(placement, places, steady)
        return moved


def _pad(row: Floats, values: Collection[float]) -> None:
    row[: len(values)] = values
    row[len(values) :] = np.nan


def _session_row(cluster: Cluster, session: Session, places: Places, now: float) -> list[float | None]:
    """In the order of OF_SESSION, without the names at its end."""
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
        demand.whole or demand.horizon == "long",
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
    uses = [at + session.window_s for at in (session.last_use, session.admitted_at) if at is not None]
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
