"""Records -> the state matrix that the core decides on. Rebuilt whole each time: one pass over each record."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ..core.fairness import decay
from ..core.mix import Mix, Shape, renewed
from ..core.policy import Policy
from ..core.state import SETTLED_WINDOWS, Bools, Devices, Floats, Ints, Placements, Sessions, State, Users
from ..model import HORIZONS, STATES, Demand, Mps
from ..units import GIB
from . import room
from .port import Settings
from .records import GAPS, Cluster, DeviceRecord, Session
from .transfer import topology_of, transfer_s

LONG_PROTECTION_S = 4 * 3600.0  # a long session that names no duration is left alone this long
UNACCOUNTED_MIN = GIB // 2  # drivers keep some memory for themselves; more than that is somebody's
RUNGS = ("trim", "unbind", "park", "stop")


def build(cluster: Cluster, settings: Settings, policy: Policy, now: float) -> State:
    """The cluster as of `now`. Ended sessions are not in it: what they left shows as their devices' leftovers."""
    records = list(cluster.devices.values())
    live = [session for session in cluster.sessions.values() if session.live]
    sessions = [session for session in live if now >= session.aside_until]
    servers = tuple(sorted({record.server for record in records}))
    models = tuple(sorted({record.seen.model for record in records}))
    places = places_of(records, servers, models)
    users = tuple(sorted({session.user for session in sessions} | set(cluster.usage)))
    allowed: dict[Bounds, int] = {}
    allowed_rows: list[Bools] = []
    near: dict[tuple[str, ...], int] = {}

    def allowed_row(session: Session) -> int:
        key = placeable_key(cluster, session, some_mps=bool(places.mps))
        if key not in allowed:
            allowed[key] = len(allowed_rows)
            allowed_rows.append(placeable(places, key))
        return allowed[key]

    session_rows = _sessions(
        cluster,
        sessions,
        users,
        now,
        allowed=_ints(allowed_row(session) for session in sessions),
        near=_ints(
            near.setdefault(session.demand.near, len(near)) if session.demand.near else -1 for session in sessions
        ),
    )
    return State(
        devices=_devices(cluster, records, places, settings, _kept_aside(live, records, now), now),
        sessions=session_rows,
        placements=_placements(sessions, places, policy, now),
        users=_users(cluster, settings, policy, users, now),
        servers=servers,
        models=models,
        allowed=np.array(allowed_rows, dtype=bool).reshape(len(allowed_rows), len(records)),
        transfer_s=_transfers(cluster, settings, tuple(near), servers),
        mix=_mix(cluster, sessions, models),
    )


def _transfers(
    cluster: Cluster, settings: Settings, near: tuple[tuple[str, ...], ...], servers: tuple[str, ...]
) -> Floats:
    """(N, V) seconds until what is asked for nearby is on each server."""
    if not near:
        return np.zeros((0, len(servers)))
    links = topology_of(settings, servers)
    return np.array([transfer_s(cluster, settings, links, wanted, servers) for wanted in near], dtype=float)


def _users(cluster: Cluster, settings: Settings, policy: Policy, users: tuple[str, ...], now: float) -> Users:
    of_user = [settings.groups.get(user, "") for user in users]
    groups = sorted(set(of_user))
    group_row = {group: row for row, group in enumerate(groups)}
    return Users(
        name=users,
        weight=_floats(settings.weights.get(user, 1.0) for user in users),
        usage=_floats(usage_of(cluster, user, policy, now) for user in users),
        cap=np.full(len(users), float(settings.max_devices_per_user or math.inf)),
        group=_ints(group_row[group] for group in of_user),
        group_weight=_floats(settings.group_weights.get(group, 1.0) for group in groups),
    )


def _mix(cluster: Cluster, sessions: list[Session], models: tuple[str, ...]) -> Mix | None:
    """What the sessions that live ask for, taken for what typically comes; only where one keeps what it gets."""
    if not any(session.demand.whole or session.demand.horizon == "long" for session in sessions):
        return None
    seen = Counter(_shape(session.demand, models) for session in sessions if session.demand.gpus > 0)
    cluster.mix = renewed(cluster.mix, seen, models)
    return cluster.mix


def _shape(demand: Demand, models: tuple[str, ...]) -> Shape:
    asked = demand.constraints.model
    return Shape(
        devices=demand.devices,
        share=demand.guarantee,
        cpus=_or(demand.cpus, 0.0),
        host_memory=_or(demand.host_memory, 0.0),
        models=None if asked is None else frozenset(name for name in models if asked.lower() in name.lower()),
    )


def usage_of(cluster: Cluster, user: str, policy: Policy, now: float) -> float:
    """A user's contended device-seconds, decayed to now."""
    usage = cluster.usage.get(user)
    return 0.0 if usage is None else float(decay(usage.seconds, max(0.0, now - usage.updated), policy.half_life_s))


def fresh(record: DeviceRecord, settings: Settings, now: float) -> bool:
    return record.age_s(now) <= settings.stale_after_s and record.seen.state != "unknown"


def blocked(record: DeviceRecord) -> bool:
    """Holds what no session of ours accounts for (rule 4)."""
    unaccounted = record.seen.memory_unaccounted or 0
    return unaccounted > UNACCOUNTED_MIN or any(
        process.why in ("leftover", "foreign") for process in record.seen.processes
    )


class Bounds(NamedTuple):
    """What limits where a session may go. None: nothing does."""

    pool: tuple[str, ...] | None
    server: str | None
    model: str | None  # asked for
    wanted_server: str | None
    mask: tuple[str, ...] | None
    several: bool  # needs more than one device
    user: str | None  # under MPS: whom the server must serve
    without_mps: tuple[str, ...] | None  # under MPS: runs, no client of any server, with this mask


def placeable_key(cluster: Cluster, session: Session, *, some_mps: bool = True) -> Bounds:
    """What limits where a session may go. `some_mps`: a device has an MPS server.

    A running kernel's mask is fixed unless it cooperates and has no context; what lies in its memory can be moved to
    any device of the same server. A kernel that runs with an empty mask may reserve anything: it needs a restart.
    A client of MPS stays with its server, and who runs without it becomes none before a restart.
    """
    constraints = session.demand.constraints
    moves = session.context or session.parked
    client = session.mps_pipe is not None
    runs = session.pid is not None and bool(session.mask)
    fixed = runs and (client or not (moves or session.cooperative))
    return Bounds(
        pool=session.pool,
        server=cluster.server_of(session) if moves else session.server,
        model=constraints.model,
        wanted_server=constraints.server,
        mask=session.mask if fixed else None,
        several=session.demand.devices > 1,
        user=session.user if some_mps else None,
        without_mps=session.mask if some_mps and runs and not client else None,
    )


@dataclass(slots=True, eq=False)
class Places:
    """The devices, as `placeable` looks at them.

    Attributes
    ----------
    row, server_row : by uuid and by server's name
    server, model : (D,) rows
    alone : (D,) one process can use only one such device
    mps : the rows under MPS, with what its clients need to know
    """

    row: dict[str, int]
    server_row: dict[str, int]
    server: Ints
    model: Ints
    models: tuple[str, ...]
    alone: Bools
    mps: tuple[tuple[int, Mps], ...]

    def among(self, uuids: tuple[str, ...]) -> Bools:
        """(D,) the devices of these names."""
        rows = np.zeros(len(self.row), dtype=bool)
        rows[[self.row[uuid] for uuid in uuids if uuid in self.row]] = True
        return rows


def places_of(records: list[DeviceRecord], servers: tuple[str, ...], models: tuple[str, ...]) -> Places:
    server_row = {server: row for row, server in enumerate(servers)}
    model_row = {model: row for row, model in enumerate(models)}
    return Places(
        row={record.seen.uuid: row for row, record in enumerate(records)},
        server_row=server_row,
        server=_ints(server_row[record.server] for record in records),
        model=_ints(model_row[record.seen.model] for record in records),
        models=models,
        alone=_bools(record.seen.sharing in ("mps", "mig") for record in records),
        mps=tuple((row, record.seen.mps) for row, record in enumerate(records) if record.seen.mps is not None),
    )


def placeable(places: Places, bounds: Bounds) -> Bools:
    """(D,) where a session of these bounds may go."""
    may = ~places.alone if bounds.several else np.ones(len(places.row), dtype=bool)
    for server in (bounds.server, bounds.wanted_server):
        if server is not None:
            may &= places.server == places.server_row.get(server, -1)
    for uuids in (bounds.pool, bounds.mask):
        if uuids is not None:
            may &= places.among(uuids)
    if bounds.model is not None:
        may &= _bools(bounds.model.lower() in model.lower() for model in places.models)[places.model]
    for row, mps in places.mps:
        may[row] &= mps.owner in (None, bounds.user)
    if bounds.without_mps is not None:
        without = places.among(bounds.without_mps)
        for row, _ in places.mps:
            may[row] &= without[row]
    return may


def _devices(
    cluster: Cluster,
    records: list[DeviceRecord],
    places: Places,
    settings: Settings,
    promised: Floats,
    now: float,
) -> Devices:
    seen = [record.seen for record in records]
    is_fresh = [fresh(record, settings, now) for record in records]
    return Devices(
        uuid=tuple(places.row),
        server=places.server,
        model=places.model,
        offered=_bools(
            device.state == "healthy" and device.in_pool and not record.drained and ok
            for record, device, ok in zip(records, seen, is_fresh, strict=True)
        ),
        fresh=_bools(is_fresh),
        single=_bools(device.sharing == "exclusive" for device in seen),
        blocked=_bools(blocked(record) for record in records),
        can_park=_bools(device.can_park for device in seen),
        leaving=_bools(
            record.drained or device.state in ("draining", "failing")
            for record, device in zip(records, seen, strict=True)
        ),
        tflops=_floats(device.tflops for device in seen),
        bandwidth_gb_s=_floats(device.bandwidth_gb_s for device in seen),
        clock_fraction=_floats(device.clock_fraction for device in seen),
        memory_total=_floats(device.memory_total for device in seen),
        memory_used=_floats(device.memory_used for device in seen),
        memory_unaccounted=_floats(device.memory_unaccounted for device in seen),
        utilization=_floats(record.utilization for record in records),
        utilization_sd=_floats(record.utilization_sd for record in records),
        memory_utilization=_floats(record.memory_utilization for record in records),
        temperature_c=_floats(device.temperature_c for device in seen),
        temperature_limit_c=_floats(device.temperature_limit_c for device in seen),
        power_w=_floats(device.power_w for device in seen),
        power_idle_w=_floats(device.power_idle_w for device in seen),
        power_limit_w=_floats(device.power_limit_w for device in seen),
        link_gb_s=_floats(cluster.servers[record.server].link_gb_s for record in records),
        promised=promised,
    )


def _kept_aside(live: list[Session], records: list[DeviceRecord], now: float) -> Floats:
    """(D,) what those hold whom nothing can be decided on: it is nobody else's (rule 3)."""
    kept = dict.fromkeys((record.seen.uuid for record in records), 0.0)
    for session in live:
        if now >= session.aside_until or session.parked:
            continue
        for uuid, placement in session.placements.items():
            if uuid in kept and placement.lease:
                kept[uuid] += session.demand.guarantee if session.demand.guarantee >= 0 else 1.0  # NaN: all of it
    return _floats(min(share, 1.0) for share in kept.values())


def _sessions(
    cluster: Cluster, sessions: list[Session], users: tuple[str, ...], now: float, *, allowed: Ints, near: Ints
) -> Sessions:
    row = {user: index for index, user in enumerate(users)}
    demands = [session.demand for session in sessions]
    # A resume that was refused is not asked for again before its time.
    asks = [now >= session.retry_at for session in sessions]
    host_free = room.host_free(cluster)
    return Sessions(
        id=tuple(session.id for session in sessions),
        user=_ints(row[session.user] for session in sessions),
        state=_ints(STATES.index(cluster.state_of(session, now)) for session in sessions),
        count=_ints(
            session.demand.devices if session.placements or (session.wants and not session.refused) else 0
            for session in sessions
        ),
        most=_ints(demand.gpus_max or 0 for demand in demands),
        guarantee=_floats(demand.guarantee for demand in demands),
        limit=_floats(session.limit for session in sessions),
        exclusive=_bools(demand.exclusive for demand in demands),
        whole=_bools(demand.whole for demand in demands),
        memory=_floats(
            demand.memory if demand.memory is not None else session.memory_peak
            for session, demand in zip(sessions, demands, strict=True)
        ),
        allowed=allowed,
        near=near,
        compute_p=_floats(compute_p(session) for session in sessions),
        confidence=_floats(1.0 if session.demand.kind else session.belief.confidence for session in sessions),
        horizon=_ints(HORIZONS.index(session.demand.horizon or session.belief.horizon) for session in sessions),
        duration_s=_floats(demand.duration_s for demand in demands),
        bursting=_bools(session.bursting(now) and ask for session, ask in zip(sessions, asks, strict=True)),
        gated=_bools(
            (session.gated or session.wants_back) and ask for session, ask in zip(sessions, asks, strict=True)
        ),
        cooperative=_bools(session.cooperative for session in sessions),
        context=_bools(session.context for session in sessions),
        waiting_since=_floats(session.waiting_since for session in sessions),
        idle_since=_floats(session.idle_since(now) for session in sessions),
        # What a restart brought back is left alone until its server or node confirms it.
        pinned_until=_floats(
            math.inf if session.recovering else _or(session.pinned_until, -math.inf) for session in sessions
        ),
        protected_until=_floats(protected_until(session) for session in sessions),
        unparkable=_bools(
            (session.unparkable_until is not None and now < session.unparkable_until)
            or session.mps_pipe is not None  # the driver does not checkpoint clients of MPS
            or not room.host_holds(cluster, session, host_free)
            for session in sessions
        ),
        warned_rung=_ints(-1 if session.warned is None else RUNGS.index(session.warned) for session in sessions),
        warned_until=_floats(session.warned_until for session in sessions),
        gaps=padded(session.gaps for session in sessions),
        parked_bytes=_floats(session.parked_bytes or 0 for session in sessions),
        cpus=_floats(demand.cpus for demand in demands),
        host_memory=_floats(demand.host_memory for demand in demands),
        ran=padded(session.ran for session in sessions),
        burst_since=_floats(None if session.burst is None else session.burst.since for session in sessions),
    )


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


def _placements(sessions: list[Session], places: Places, policy: Policy, now: float) -> Placements:
    rows = [
        (index, places.row[placement.device], placement)
        for index, session in enumerate(sessions)
        for placement in session.placements.values()
        if placement.device in places.row
    ]
    placed = [placement for _, _, placement in rows]
    return Placements(
        session=_ints(session for session, _, _ in rows),
        device=_ints(device for _, device, _ in rows),
        lease=_bools(placement.lease for placement in placed),
        borrowed=_bools(placement.borrowed for placement in placed),
        share=_floats(placement.share for placement in placed),
        target=_floats(placement.target for placement in placed),
        share_since=_floats(placement.share_since for placement in placed),
        use=_floats(placement.use for placement in placed),
        memory_used=_floats(placement.memory_used for placement in placed),
        steady=_floats(placement.use if settled(sessions[row], policy, now) else None for row, _, placement in rows),
    )


def settled(session: Session, policy: Policy, now: float) -> bool:
    """Its burst has lasted so long that what is smoothed tells of this burst alone."""
    return session.burst is not None and now - session.burst.since >= SETTLED_WINDOWS * policy.window_s


def padded(rows: Iterable[Collection[float]]) -> Floats:
    """(S, GAPS) what each row has, NaN padded."""
    rows = list(rows)
    padded = np.full((len(rows), GAPS), np.nan)
    for index, row in enumerate(rows):
        padded[index, : len(row)] = row
    return padded


def _or(value: float | None, otherwise: float) -> float:
    return otherwise if value is None else value


def _floats(values) -> Floats:
    return np.array([math.nan if value is None else value for value in values], dtype=float)


def _ints(values) -> Ints:
    return np.array(list(values), dtype=np.int64)


def _bools(values) -> Bools:
    return np.array(list(values), dtype=bool)
