"""Records -> the state matrix that the core decides on."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import chain

import numpy as np

from ..core.fairness import decay
from ..core.mix import Mix, Shape, renewed
from ..core.policy import Policy
from ..core.state import Bools, Devices, Floats, Ints, Placements, Sessions, State, Users
from ..model import Demand
from . import room
from .columns import OF_PLACEMENT, OF_SESSION, DeviceColumns, Known, SessionColumns
from .places import Places
from .port import Settings
from .records import Cluster, DeviceRecord, Session
from .transfer import topology_of, transfer_s


@dataclass(slots=True)
class Columns:
    """What is kept from one state to the next. It only saves time: nothing depends on it."""

    devices: DeviceColumns = field(default_factory=DeviceColumns)
    sessions: SessionColumns = field(default_factory=SessionColumns)


def build(cluster: Cluster, settings: Settings, policy: Policy, now: float, columns: Columns | None = None) -> State:
    """The cluster as of `now`. Ended sessions are not in it: what they left shows as their devices' leftovers."""
    columns = columns or Columns()
    records = list(cluster.devices.values())
    live = [session for session in cluster.sessions.values() if session.live]
    sessions = [session for session in live if now >= session.aside_until]
    users = tuple(sorted({session.user for session in sessions} | set(cluster.usage)))
    columns.devices.update(cluster)
    known = columns.sessions.update(cluster, sessions, columns.devices, policy, now)
    places = columns.devices.places
    rows, allowed = np.unique(_ints(one.allowed for one in known), return_inverse=True)
    near = {places: row for row, places in enumerate(dict.fromkeys(s.near for s in sessions if s.near))}
    may = [columns.sessions.allowed[row] for row in rows.tolist()]
    return State(
        devices=_devices(cluster, columns.devices, settings, _kept_aside(live, records, now), now),
        sessions=_sessions(cluster, sessions, columns.sessions, known, users, allowed, near, places),
        placements=_placements(known),
        users=_users(cluster, settings, policy, users, now),
        servers=places.servers,
        models=places.models,
        allowed=np.array(may, dtype=bool).reshape(len(may), len(records)),
        transfer_s=_transfers(cluster, settings, tuple(near), places.servers),
        mix=_mix(cluster, sessions, places.models),
        links=_links(settings, sessions, places.servers),
    )


def _links(settings: Settings, sessions: list[Session], servers: tuple[str, ...]) -> Floats:
    """(V, V) GB/s between servers, only where somebody's devices may lie on several."""
    if not any(session.demand.spread for session in sessions):
        return np.zeros((0, 0))
    return topology_of(settings, servers).gb_s


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
        cpus=demand.cpus or 0.0,
        host_memory=demand.host_memory or 0.0,
        models=None if asked is None else frozenset(name for name in models if asked.lower() in name.lower()),
    )


def usage_of(cluster: Cluster, user: str, policy: Policy, now: float) -> float:
    """A user's contended device-seconds, decayed to now."""
    usage = cluster.usage.get(user)
    return 0.0 if usage is None else float(decay(usage.seconds, max(0.0, now - usage.updated), policy.half_life_s))


def _devices(cluster: Cluster, known: DeviceColumns, settings: Settings, promised: Floats, now: float) -> Devices:
    places, floats, bools = known.places, known.floats, known.bools
    fresh = (now - floats("read_at") <= settings.stale_after_s) & bools("known")
    link_gb_s = np.array([cluster.servers[server].link_gb_s for server in places.servers], dtype=float)
    return Devices(
        uuid=tuple(places.row),
        server=places.server,
        model=places.model,
        offered=bools("usable") & fresh,
        fresh=fresh,
        single=bools("single"),
        blocked=bools("blocked"),
        can_park=bools("can_park"),
        leaving=bools("leaving"),
        tflops=floats("tflops"),
        bandwidth_gb_s=floats("bandwidth_gb_s"),
        clock_fraction=floats("clock_fraction"),
        memory_total=floats("memory_total"),
        memory_used=floats("memory_used"),
        memory_unaccounted=floats("memory_unaccounted"),
        utilization=floats("utilization"),
        utilization_sd=floats("utilization_sd"),
        memory_utilization=floats("memory_utilization"),
        temperature_c=floats("temperature_c"),
        temperature_limit_c=floats("temperature_limit_c"),
        power_w=floats("power_w"),
        power_idle_w=floats("power_idle_w"),
        power_limit_w=floats("power_limit_w"),
        link_gb_s=link_gb_s[places.server],
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
    cluster: Cluster,
    sessions: list[Session],
    columns: SessionColumns,
    known: list[Known],
    users: tuple[str, ...],
    allowed: Ints,
    near: dict[tuple[str, ...], int],
    places: Places,
) -> Sessions:
    order = _ints(one.row for one in known)
    table = columns.table[order]
    user_row = {user: row for row, user in enumerate(users)}

    def floats(name: str) -> Floats:
        return table[:, OF_SESSION[name]].copy()

    def ints(name: str) -> Ints:
        return table[:, OF_SESSION[name]].astype(np.int64)

    def bools(name: str) -> Bools:
        return table[:, OF_SESSION[name]] > 0

    host_free = room.host_free(cluster)
    free = np.array([*(host_free.get(server, math.inf) for server in places.servers), math.inf])
    held = bools("parks") | (floats("on_devices") <= free[ints("server")])
    return Sessions(
        id=tuple(session.id for session in sessions),
        user=_ints(user_row[session.user] for session in sessions),
        state=ints("state"),
        count=ints("count"),
        most=ints("most"),
        guarantee=floats("guarantee"),
        limit=floats("limit"),
        exclusive=bools("exclusive"),
        whole=bools("whole"),
        memory=floats("memory"),
        allowed=allowed.ravel(),
        near=_ints(near.get(session.near, -1) for session in sessions) if near else np.full(len(known), -1),
        compute_p=floats("compute_p"),
        confidence=floats("confidence"),
        horizon=ints("horizon"),
        duration_s=floats("duration_s"),
        bursting=bools("bursting"),
        gated=bools("gated"),
        cooperative=bools("cooperative"),
        context=bools("context"),
        waiting_since=floats("waiting_since"),
        idle_since=floats("idle_since"),
        pinned_until=floats("pinned_until"),
        protected_until=floats("protected_until"),
        unparkable=bools("unparkable") | ~held,
        warned_rung=ints("warned_rung"),
        warned_until=floats("warned_until"),
        gaps=columns.gaps[order],
        parked_bytes=floats("parked_bytes"),
        cpus=floats("cpus"),
        host_memory=floats("host_memory"),
        ran=columns.ran[order],
        burst_since=floats("burst_since"),
        spread=bools("spread"),
    )


def _placements(known: list[Known]) -> Placements:
    count = [len(one.placed) for one in known]
    rows = list(chain.from_iterable(one.placed for one in known))
    table = np.array(rows, dtype=float).reshape(len(rows), len(OF_PLACEMENT))
    device, lease, borrowed, share, target, share_since, use, memory_used, steady = table.T
    return Placements(
        session=np.repeat(np.arange(len(known)), count),
        device=device.astype(np.int64),
        lease=lease > 0,
        borrowed=borrowed > 0,
        share=share,
        target=target,
        share_since=share_since,
        use=use,
        memory_used=memory_used,
        steady=steady,
    )


def _floats(values: Iterable[float | None]) -> Floats:
    return np.array(list(values), dtype=float)  # None becomes NaN


def _ints(values: Iterable[int]) -> Ints:
    return np.array(list(values), dtype=np.int64)
