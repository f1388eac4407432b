"""Records -> the state matrix that the core decides on."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

import numpy as np

from ..core.fairness import decay
from ..core.mix import Mix, Shape, renewed
from ..core.policy import Policy
from ..core.state import Bools, Devices, Floats, Ints, Placements, Sessions, State, Users
from ..model import Demand
from . import room
from .columns import OF_SESSION, DeviceColumns, SessionColumns
from .places import Places
from .port import Settings
from .records import Cluster, Session, Usage
from .transfer import topology_of, transfer_s

T = TypeVar("T", str, tuple[str, ...])
NOTHING = Usage()


@dataclass(slots=True)
class Columns:
    """What is kept from one state to the next. It only saves time: nothing depends on it."""

    devices: DeviceColumns = field(default_factory=DeviceColumns)
    sessions: SessionColumns = field(default_factory=SessionColumns)
    of: tuple[object, ...] = ()  # what all rows of sessions depend on

    def update(self, cluster: Cluster, sessions: list[Session], policy: Policy, now: float) -> None:
        self.devices.update(cluster)
        of = (self.devices.places, self.devices.lost, policy.window_s)
        names = len(self.sessions.users) + len(self.sessions.nears)
        if of != self.of or names > 2 * len(self.sessions.rows) + 64:  # most of those named have gone
            self.sessions, self.of = SessionColumns(), of
        self.sessions.update(cluster, sessions, self.devices.places, policy, now)


def build(cluster: Cluster, settings: Settings, policy: Policy, now: float, columns: Columns | None = None) -> State:
    """The cluster as of `now`. Ended sessions are not in it: what they left shows as their devices' leftovers."""
    columns = columns or Columns()
    live = [session for session in cluster.sessions.values() if session.ended is None]
    sessions = [session for session in live if now >= session.aside_until]
    columns.update(cluster, sessions, policy, now)
    places, known = columns.devices.places, columns.sessions
    table = known.rows.tables[0][known.order]
    users, user = _named(_ints(table, "user"), known.users, cluster.usage)
    nears, near = _named(_ints(table, "near"), known.nears)
    bounds, allowed = np.unique(_ints(table, "allowed"), return_inverse=True)
    may = [known.allowed[row] for row in bounds.tolist()]
    aside = [session for session in live if now < session.aside_until] if len(live) > len(sessions) else []
    return State(
        devices=_devices(cluster, columns.devices, settings, _kept_aside(aside, places), now),
        sessions=_sessions(
            cluster,
            known,
            table,
            user=user,
            allowed=allowed.ravel(),
            near=near,
            places=places,
        ),
        placements=_placements(known),
        users=_users(cluster, settings, policy, users, now),
        servers=places.servers,
        models=places.models,
        allowed=np.array(may, dtype=bool).reshape(len(may), len(places.row)),
        transfer_s=_transfers(cluster, settings, nears, places.servers),
        mix=_mix(cluster, sessions, places.models) if _bools(table, "keeps").any() else None,
        links=topology_of(settings, places.servers).gb_s if _bools(table, "spread").any() else np.zeros((0, 0)),
    )


def _named(numbers: Ints, known: Mapping[T, int], also: Iterable[T] = ()) -> tuple[tuple[T, ...], Ints]:
    """The names that these (N,) are the numbers of, `also` others, in order; and (N,) the row of each, -1 stays."""
    names = list(known)
    used, at = np.unique(numbers, return_inverse=True)
    found = tuple(sorted({*(names[one] for one in used.tolist() if one >= 0), *also}))
    row = {name: row for row, name in enumerate(found)}
    rows = [row[names[one]] if one >= 0 else -1 for one in used.tolist()]
    return found, np.array(rows, dtype=np.int64)[at.ravel()]


def _ints(table: Floats, name: str) -> Ints:
    return table[:, OF_SESSION[name]].astype(np.int64)


def _bools(table: Floats, name: str) -> Bools:
    return table[:, OF_SESSION[name]] > 0


def _floats(table: Floats, name: str) -> Floats:
    return table[:, OF_SESSION[name]].copy()


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
        weight=np.array([settings.weights.get(user, 1.0) for user in users], dtype=float),
        usage=_usages(cluster, users, policy, now),
        cap=np.full(len(users), float(settings.max_devices_per_user or math.inf)),
        group=np.array([group_row[group] for group in of_user], dtype=np.int64),
        group_weight=np.array([settings.group_weights.get(group, 1.0) for group in groups], dtype=float),
    )


def _mix(cluster: Cluster, sessions: list[Session], models: tuple[str, ...]) -> Mix:
    """What the sessions that live ask for, taken for what typically comes."""
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
    return float(_usages(cluster, (user,), policy, now)[0])


def _usages(cluster: Cluster, users: tuple[str, ...], policy: Policy, now: float) -> Floats:
    """(U,) `usage_of` each."""
    found = [cluster.usage.get(user, NOTHING) for user in users]
    age_s = now - np.array([usage.updated for usage in found], dtype=float)
    return decay(np.array([usage.seconds for usage in found], dtype=float), age_s, policy.half_life_s)


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


def _kept_aside(aside: list[Session], places: Places) -> Floats:
    """(D,) what those hold on whom nothing can be decided: it is nobody else's (rule 3)."""
    kept = np.zeros(len(places.row))
    for session in aside:
        for uuid, placement in session.placements.items():
            if uuid in places.row and placement.lease and not session.parked:
                kept[places.row[uuid]] += session.demand.guarantee if session.demand.guarantee >= 0 else 1.0  # NaN: all
    return np.minimum(kept, 1.0)


def _sessions(
    cluster: Cluster,
    known: SessionColumns,
    table: Floats,
    *,
    user: Ints,
    allowed: Ints,
    near: Ints,
    places: Places,
) -> Sessions:
    floats, ints, bools = partial(_floats, table), partial(_ints, table), partial(_bools, table)
    _, gaps, ran = known.rows.tables
    host_free = room.host_free(cluster)
    free = np.array([*(host_free.get(server, math.inf) for server in places.servers), math.inf])
    held = bools("parks") | (floats("on_devices") <= free[ints("server")])
    return Sessions(
        id=known.ids,
        user=user,
        state=ints("state"),
        count=ints("count"),
        most=ints("most"),
        guarantee=floats("guarantee"),
        limit=floats("limit"),
        exclusive=bools("exclusive"),
        whole=bools("whole"),
        memory=floats("memory"),
        allowed=allowed,
        near=near,
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
        gaps=gaps[known.order],
        parked_bytes=floats("parked_bytes"),
        cpus=floats("cpus"),
        host_memory=floats("host_memory"),
        ran=ran[known.order],
        burst_since=floats("burst_since"),
        spread=bools("spread"),
    )


def _placements(known: SessionColumns) -> Placements:
    table = known.placed.tables[0][known.devices]
    device, lease, borrowed, share, target, share_since, use, memory_used, steady = table.T.copy()
    return Placements(
        session=np.repeat(np.arange(len(known.order)), known.counts),
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
