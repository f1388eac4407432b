"""What a placement costs those who come after: the expected displaced fill, for demands that keep what they get.

``dW + price x share + slots + RESIDUAL x left on the device``, in devices:

- *dW*: how much more of the server typical demands would leave unused afterwards than before (`fill.py`);
- *price* of its model: what will be asked of it alone while as much is asked for as is idle, over its idle room;
- *slots*: room for n whole devices on one server that it breaks up, by how short such room is;
- what stays free on the chosen devices settles what is equal so far.

dW depends on the server's free vector alone, so it is worked out once per vector and remembered with the mix.
Why this and not a fragmentation gradient: docs/decisions/0010-packing-score.md.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .draft import Draft, glance_at
from .fill import CPU_UNIT, MANY, SLOTS, Streams, left
from .mix import MILLI, Mix, milli
from .policy import Policy
from .room import Room, view_of, where_known
from .state import LONG, Bools, Floats, Ints, State

SLOT = 0.05  # weight of a broken slot, per device of it
RESIDUAL = 0.03
POWER = 0.25  # of a device: what waking the hungriest one counts in an empty cluster, at a weight of 1
FADES = 0.3, 0.5  # idle parts of the cluster at which power counts nothing, and in full
CPU_STEP = 100  # servers are told apart in steps of one CPU (units of fill.py)
BATCH = 256  # free vectors worked out at once
REMEMBERED = 500_000  # free vectors, before all are forgotten


@dataclass(slots=True, eq=False)
class Table:
    """What one shape costs on each server, as far as known.

    Attributes
    ----------
    kind : (V,) `Servers.kind` as it was when `cost` was worked out
    cost : (V, R) dW of taking from the device of that rank
    """

    kind: Ints
    cost: Floats


@dataclass(slots=True, eq=False)
class Servers:
    """What was last seen of the servers, so that only those that changed are looked at again.

    Attributes
    ----------
    server : (D,) `Devices.server` that this was made for
    cell : (D,) the device's place in `free`, flat
    taken, open : (D,) share that is given or kept, and whether it takes anybody
    level : (D,) 1/1000 free on each device, 0 where it takes nobody
    free : (V, G) the same by server, 0 where there is no device
    total, empty : (V,) sum of `free`, and how many devices are wholly free
    vector : (V, 1 + R + 1) model, the R emptiest devices in descending order, CPUs in steps
    kind : (V,) the same number for servers of the same vector
    rank : (V, G) the device's place in `Table.cost`, flat
    """

    server: Ints
    cell: Ints
    taken: Floats
    open: Bools
    level: Floats
    free: Ints
    total: Ints
    empty: Ints
    vector: Ints
    kind: Ints
    rank: Ints


def keeps(state: State, session: int, policy: Policy) -> bool:
    """Whether a session keeps its devices for long, so that room for those who come later is what counts."""
    asks = state.sessions
    lasting = asks.whole[session] or asks.horizon[session] == LONG
    return bool(policy.packing == "fill" and state.mix is not None and lasting)


def displaced(draft: Draft, session: int, devices: Ints) -> Floats:
    """(C,) what the session would cost on each of these devices, in devices; meaningful where it fits."""
    state, mix = draft.state, draft.state.mix
    assert mix is not None  # `keeps` asked
    count, share = int(state.sessions.count[session]), milli(float(state.sessions.guarantee[session]))
    servers = _servers(draft, mix)
    cpus = where_known(state.sessions.cpus[session]) if state.hosts else 0.0
    dw = _table(mix, servers, count, share, cpus, counted=state.hosts is not None)

    at = view_of(state, devices)
    level, server = servers.level[at], state.devices.server[at]
    idle = np.bincount(servers.vector[:, 0], servers.total, len(state.models)).astype(np.float64)
    each = (share * prices(mix, idle))[state.devices.model[at]]
    residual = RESIDUAL * (level - share)
    whole = np.where(level == MILLI, _broken(mix, servers.empty, count, float(idle.sum()))[server], 0.0)
    return np.asarray(((dw.take(servers.rank.take(servers.cell[at])) + whole) / count + each + residual) / MILLI)


def watts(draft: Draft, session: int, devices: Ints) -> Floats:
    """(C,) at most 0: how much more power the cluster draws with the session on each of these devices.

    What comes out of idling with it, devices and processors, over what the hungriest device takes; times POWER, and
    the less the fuller the cluster is (FADES), because where nearly everything will be in use anyway only room can be
    saved. The watts are those of the PWR plug-in (github.com/Fr4nz83/PWR-plugin-kubernetes). Unknown watts are 0.
    """
    state, room, have = draft.state, draft.room, draft.state.devices
    idle = 1.0 - float(room.committed[have.offered].sum()) / max(int(have.offered.sum()), 1)
    counts = _power_counts(idle)
    if counts <= 0:
        return np.zeros(devices.size)
    more = _known(have.power_limit_w - have.power_idle_w)
    most = float(more.max(initial=0.0))
    if most <= 0:
        return np.zeros(devices.size)
    host = _processor_w(state, room, where_known(state.sessions.cpus[session]) if state.hosts else 0.0)
    at = view_of(state, devices)
    drawn = np.where(room.holders[at] < 0.5, more[at], 0.0)
    drawn += host[have.server[at]] / state.sessions.count[session]
    return np.asarray(-counts * drawn / most)


def seat(state: State, cpus: float, host_memory: float, policy: Policy) -> int | None:
    """The server for a demand without devices: where its CPUs are missed least by what comes later. None: no room.

    Needs the servers' CPUs and a mix in the state. Equals are settled by the server's name.
    """
    mix, draft = state.mix, glance_at(state)
    assert mix is not None
    assert state.hosts is not None
    room = draft.room
    fits = ~((room.cpus < cpus) | (room.host_memory < host_memory))
    if not fits.any():
        return None
    servers = _servers(draft, mix)
    cost = _table(mix, servers, 0, 0, cpus, counted=True)[:, 0] / MILLI
    counts = policy.weights.energy * _power_counts(float(servers.level.mean()) / MILLI)
    more = _known(state.devices.power_limit_w - state.devices.power_idle_w).max(initial=0.0)
    if more > 0 and counts > 0:
        cost = cost + counts * _processor_w(state, room, cpus) / more
    best = np.where(fits, np.round(cost, 9), np.inf)
    return int(min(np.flatnonzero(best == best.min()).tolist(), key=state.servers.__getitem__))


def _power_counts(idle: float) -> float:
    """How much power counts while that part of the cluster is idle."""
    none, full = FADES
    return POWER * min(max((idle - none) / (full - none), 0.0), 1.0)


def _processor_w(state: State, room: Room, cpus: float) -> Floats:
    """(V,) watts of the processors that come out of idling for so many more CPUs; 0 where that is unknown."""
    hosts = state.hosts
    if hosts is None:
        return np.zeros(len(state.servers))
    used = hosts.cpus - room.cpus
    woken = np.ceil((used + cpus) / hosts.processor_cpus) - np.ceil(used / hosts.processor_cpus)
    return _known(woken * hosts.processor_w)


def _known(values: Floats) -> Floats:
    """The values, 0 where unknown."""
    return np.where(np.isnan(values), 0.0, values)


def prices(mix: Mix, idle: Floats) -> Floats:
    """(M,) 0..1 for each model with so much idle (M,): what the demand restricted to it asks, over what it has.

    Demands that may go to several models are poured over them to one level, those with the least room first.
    """
    load = np.zeros(idle.size)
    restricted = mix.known.get("restricted")
    if restricted is None:
        restricted = mix.known["restricted"] = _restricted(mix)
    sets, parts = restricted
    if parts.size == 0 or idle.sum() <= 0:
        return load
    for models in np.argsort(sets @ idle, kind="stable").tolist():
        into = np.flatnonzero(sets[models] & (idle > 0))
        load[into] = _poured(load[into], idle[into], float(parts[models] * idle.sum()))
    return np.asarray(np.minimum(np.divide(load, idle, out=np.zeros(idle.size), where=idle > 0), 1.0))


def _restricted(mix: Mix) -> tuple[NDArray[np.bool_], Floats]:
    """(K, M) the sets of models that some demands are restricted to; (K,) their part of all that is asked for."""
    asked = mix.seen * mix.count * mix.milli
    rows = np.flatnonzero((mix.count > 0) & ~mix.models.all(axis=1))
    sets, of = np.unique(mix.models[rows], axis=0, return_inverse=True)
    return sets, np.bincount(of.ravel(), asked[rows], len(sets)) / max(float(asked.sum()), 1.0)


def _poured(load: Floats, room: Floats, amount: float) -> Floats:
    """Loads after `amount` more was poured over these so that the lowest load / room is highest."""
    if load.size == 0:
        return load
    order = np.argsort(load / room, kind="stable")
    levels = (amount + np.cumsum(load[order])) / np.cumsum(room[order])
    reached = np.append(load[order][1:] / room[order][1:], np.inf)
    level = levels[np.argmax(levels <= reached)]
    return np.asarray(np.maximum(load, level * room))


def _broken(mix: Mix, empty: Ints, count: int, idle: float) -> Floats:
    """(V,) what the slots for several whole devices are worth that taking whole devices there breaks up."""
    number = np.bincount(empty)  # of servers with so many empty devices, each of which costs the same
    have = np.arange(number.size)
    cost = np.zeros(number.size)
    gangs = mix.known.get("gangs")
    if gangs is None:
        sizes = np.unique(mix.count[mix.count > 1]).tolist()
        gangs = mix.known["gangs"] = [(size, mix.seen[mix.count == size].sum()) for size in sizes]
    asked = (mix.seen * mix.count * mix.milli).sum()
    for size, seen in gangs:
        slots = have // size
        wanted = seen * idle / asked
        pressure = min(wanted / max(float(number @ slots), 1.0), 1.0)
        cost += SLOT * MILLI * size * pressure * (slots - np.maximum(have - count, 0) // size)
    return np.asarray(cost[empty])


def _servers(draft: Draft, mix: Mix) -> Servers:
    """The servers as they are in this draft."""
    state, have, room = draft.state, draft.state.devices, draft.room
    if len(mix.known.get("kinds", ())) > REMEMBERED:
        mix.known.clear()  # tables go by the numbers of kinds, which begin anew
    seen = mix.known.get("servers")
    if seen is None or seen.server is not have.server or len(seen.free) != len(state.servers):
        seen = mix.known["servers"] = _unseen(state)
    open_ = have.offered & ~have.blocked & (room.closed < 0.5)
    taken = room.committed + draft.ahead
    devices = np.flatnonzero((taken != seen.taken) | (open_ != seen.open))
    level = np.where(open_[devices], np.rint(MILLI * (1.0 - taken[devices])).clip(0, MILLI), 0.0)
    cpus = _steps(room.cpus)
    other = seen.vector[:, -1] != cpus
    other[have.server[devices]] = True
    changed = np.flatnonzero(other)
    if changed.size:
        width, ranks = seen.free.shape[1], seen.vector.shape[1] - 2
        seen.taken, seen.open, seen.level[devices] = taken, open_, level
        seen.free.reshape(-1)[seen.cell[devices]] = level
        free = seen.free[changed]
        seen.total[changed], seen.empty[changed] = free.sum(axis=1), (free == MILLI).sum(axis=1)
        ordered = np.sort(free * width + np.arange(width), axis=1)[:, ::-1]
        seen.vector[changed, 1:-1] = ordered[:, :ranks] // width
        seen.vector[:, -1] = cpus
        kinds = mix.known.setdefault("kinds", {})
        seen.kind[changed] = [kinds.setdefault(key, len(kinds)) for key in _keys(seen.vector[changed])]
        rank = np.minimum(np.arange(width), ranks - 1) + changed[:, None] * ranks
        seen.rank[changed[:, None], ordered % width] = rank
    return seen


def _unseen(state: State) -> Servers:
    """Servers of which nothing but the devices' places is known."""
    have, size = state.devices, len(state.servers)
    order = np.argsort(have.server, kind="stable")
    number = np.bincount(have.server, minlength=size)
    width = max(int(number.max(initial=0)), 1)
    cell = np.empty(order.size, np.int64)
    cell[order] = np.arange(order.size) - np.repeat(np.cumsum(number) - number, number)
    vector = np.full((size, min(width, SLOTS) + 2), -1)
    vector[:, 0] = 0
    vector[have.server[::-1], 0] = have.model[::-1]  # of the server's first device
    return Servers(
        server=have.server,
        cell=cell + have.server * width,
        taken=np.full(order.size, np.nan),
        open=np.zeros(order.size, np.bool_),
        level=np.zeros(order.size),
        free=np.zeros((size, width), np.int64),
        total=np.zeros(size, np.int64),
        empty=np.zeros(size, np.int64),
        vector=vector,
        kind=np.full(size, -1),
        rank=np.zeros((size, width), np.int64),
    )


def _steps(cpus: Floats) -> Ints | int:
    """(V,) what is free in units of fill.py, rounded down to steps; MANY where it is not counted."""
    if cpus.size == 0:
        return MANY
    amount = np.maximum(np.floor(cpus / CPU_UNIT + 1e-6), 0.0)
    return np.where(amount < MANY, np.floor(amount / CPU_STEP) * CPU_STEP, MANY).astype(np.int64)  # NaN is not less


def _table(mix: Mix, servers: Servers, count: int, share: int, cpus: float, *, counted: bool) -> Floats:
    """(V, R) dW of a demand on each server from the device of each rank; only what changed is worked out."""
    key = "table", count, share, cpus, counted
    table = mix.known.get(key)
    size, ranks = len(servers.vector), servers.vector.shape[1] - 2
    if table is None or table.cost.shape != (size, ranks):
        table = mix.known[key] = Table(np.full(size, -1), np.zeros((size, ranks)))
    changed = np.flatnonzero(table.kind != servers.kind)
    if changed.size:
        table.kind[changed] = servers.kind[changed]
        kind = servers.kind[changed]
        one_of = np.empty(kind.max() + 1, np.int64)
        one_of[kind] = changed
        rows = changed[one_of[kind] == changed]  # one server of each kind
        one_of[servers.kind[rows]] = np.arange(rows.size)
        needs = int(np.ceil(cpus / CPU_UNIT))
        table.cost[changed] = _costs(mix, servers.vector[rows], count, share, needs, counted=counted)[one_of[kind]]
    return table.cost


def _costs(mix: Mix, vector: Ints, count: int, share: int, cpus: int, *, counted: bool) -> Floats:
    """(R, G) dW for servers of these free vectors; 0 where it does not fit."""
    free = vector[:, 1:-1]
    usable = free >= share
    first = usable & ((vector[:, -1] >= cpus // CPU_STEP * CPU_STEP) & (usable.sum(axis=1) >= count))[:, None]
    first[:, 1:] &= (free[:, 1:] != free[:, :-1]) & (count == 1)  # of several there is one way, of equal devices too
    row, rank = np.nonzero(first)
    after = vector[row]
    if count == 1:
        after[np.arange(row.size), 1 + rank] -= share
        after[:, 1:-1] = -np.sort(-after[:, 1:-1], axis=1)
    else:  # the empty ones are in front
        after[:, 1:-1] = np.roll(np.where(np.arange(free.shape[1]) < count, 0, after[:, 1:-1]), -count, axis=1)
    amount = after[:, -1]
    after[:, -1] = np.where(amount < MANY, np.maximum(amount - cpus, 0) // CPU_STEP * CPU_STEP, MANY)
    values = _left(mix, np.concatenate([vector, after]), counted=counted)
    cost = np.zeros(free.shape)
    cost[row, rank] = values[len(vector) :] - values[row]
    ranks = np.maximum.accumulate(np.where(first, np.arange(free.shape[1]), 0), axis=1)  # equals share their cost
    return np.asarray(cost[np.arange(len(cost))[:, None], ranks])


def _left(mix: Mix, vectors: Ints, *, counted: bool) -> Floats:
    """(R,) `fill.left` of each free vector, remembered."""
    known = mix.known.setdefault(("left", counted), {})
    if len(known) > REMEMBERED:
        known.clear()
    keys = _keys(vectors)
    new = [key for key in dict.fromkeys(keys) if key not in known]
    if new:
        streams = mix.known.get(("streams", counted))
        if streams is None:
            streams = mix.known["streams", counted] = Streams(mix, counted=counted)
        wanted = _vectors_of(new, vectors)
        for start in range(0, len(new), BATCH):
            part = wanted[start : start + BATCH]
            values = left(streams, part[:, 0], part[:, 1:-1], part[:, -1])
            known.update(zip(new[start : start + BATCH], values.tolist(), strict=True))
    return np.array([known[key] for key in keys])


def _keys(vectors: Ints) -> list[bytes]:
    """Each row as bytes."""
    if vectors.size == 0:
        return []
    whole_row = np.dtype((np.void, vectors.itemsize * vectors.shape[1]))
    keys: list[bytes] = np.ascontiguousarray(vectors).view(whole_row).ravel().tolist()
    return keys


def _vectors_of(keys: Iterable[bytes], like: Ints) -> Ints:
    """The rows behind the keys."""
    return np.frombuffer(b"".join(keys), dtype=like.dtype).reshape(-1, like.shape[1])
