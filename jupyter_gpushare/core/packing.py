"""What a placement costs those who come after: the expected displaced fill, for demands that keep what they get.

``dW + price x share + slots + RESIDUAL x left on the device``, in devices:

- *dW*: how much more of the server typical demands would leave unused afterwards than before (`fill.py`);
- *price* of its model: what will be asked of it alone while AHEAD x the idle room is asked for, over its idle room;
- *slots*: room for n whole devices on one server that it breaks up, by how short such room is;
- what stays free on the chosen devices settles what is equal so far.

dW depends on the server's free vector alone, so it is worked out once per vector and remembered with the mix.
Why this and not a fragmentation gradient: docs/decisions/0010-packing-score.md.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from .draft import Draft, glance_at
from .fill import CPU_UNIT, MANY, MEMORY_UNIT, SLOTS, Streams, left
from .mix import MILLI, Mix, milli
from .policy import Policy
from .room import Room
from .state import LONG, Floats, Ints, State

AHEAD = 2.0  # demand is expected for so many times the idle room
SLOT = 0.1  # weight of a broken slot, per device of it
RESIDUAL = 0.03
CPU_STEP, MEMORY_STEP = 50, 64  # servers are told apart in steps of half a CPU and 4 GiB (units of fill.py)
BATCH = 256  # free vectors worked out at once
REMEMBERED = 500_000  # free vectors, before all are forgotten


@dataclass(slots=True, eq=False)
class Table:
    """What one shape costs on each server, as far as known.

    Attributes
    ----------
    vector : (V, 1 + G + 2) model, free devices in descending order, CPUs, memory: what `cost` was worked out for
    cost : (V, G) dW of taking from the device of that rank
    """

    vector: Ints
    cost: Floats


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
    cpus, memory = _host_needs(state, session)
    free, slot = _free(draft)
    vector, at = _vectors(state, draft.room, free)
    cost = np.zeros(free.shape)
    known = _table(mix, vector, count, share, cpus, memory, counted=state.hosts is not None)
    np.put_along_axis(cost, at, known, axis=1)

    server = state.devices.server[devices]
    level = free[server, slot[devices]]
    idle = np.bincount(vector[:, 0], free.sum(axis=1), len(state.models)).astype(np.float64)
    each = share * prices(mix, idle)[state.devices.model[devices]]
    residual = RESIDUAL * (level - share)
    whole = np.where(level == MILLI, _broken(mix, free, count, float(idle.sum()))[server], 0.0)
    return np.asarray(((cost[server, slot[devices]] + whole) / count + each + residual) / MILLI)


def watts(draft: Draft, session: int, devices: Ints) -> Floats:
    """(C,) at most 0: how much more power the cluster draws with the session on each of these devices.

    What comes out of idling with it, devices and processors, over what the hungriest device takes; times the square of
    the idle part of all devices, because where nearly everything will be in use anyway only room can be saved. The
    watts are those of the PWR plug-in (github.com/Fr4nz83/PWR-plugin-kubernetes). Unknown watts are 0.
    """
    state, room, have = draft.state, draft.room, draft.state.devices
    more = np.nan_to_num(have.power_limit_w - have.power_idle_w)
    most = float(more.max(initial=0.0))
    if most <= 0:
        return np.zeros(devices.size)
    idle = 1.0 - float(room.committed[have.offered].sum()) / max(int(have.offered.sum()), 1)
    host = _processor_w(state, room, float(np.nan_to_num(state.sessions.cpus[session])) if state.hosts else 0.0)
    drawn = np.where(room.holders[devices] < 0.5, more[devices], 0.0)
    drawn += host[have.server[devices]] / state.sessions.count[session]
    return np.asarray(-(max(idle, 0.0) ** 2) * drawn / most)


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
    free, _ = _free(draft)
    needs = int(np.ceil(cpus / CPU_UNIT)), int(np.ceil(host_memory / MEMORY_UNIT))
    cost = _table(mix, _vectors(state, room, free)[0], 0, 0, *needs, counted=True)[:, 0] / MILLI
    more = np.nan_to_num(state.devices.power_limit_w - state.devices.power_idle_w).max(initial=0.0)
    if more > 0:
        idle = free.mean() / MILLI
        cost = cost + policy.weights.energy * idle**2 * _processor_w(state, room, cpus) / more
    best = np.where(fits, np.round(cost, 9), np.inf)
    return int(min(np.flatnonzero(best == best.min()).tolist(), key=state.servers.__getitem__))


def _processor_w(state: State, room: Room, cpus: float) -> Floats:
    """(V,) watts of the processors that come out of idling for so many more CPUs; 0 where that is unknown."""
    hosts = state.hosts
    if hosts is None:
        return np.zeros(len(state.servers))
    used = hosts.cpus - room.cpus
    woken = np.ceil((used + cpus) / hosts.processor_cpus) - np.ceil(used / hosts.processor_cpus)
    return np.nan_to_num(woken * hosts.processor_w)


def prices(mix: Mix, idle: Floats) -> Floats:
    """(M,) 0..1 for each model with so much idle (M,): what the demand restricted to it asks, over what it has.

    Demands that may go to several models are poured over them to one level, those with the least room first.
    """
    asked = mix.seen * mix.count * mix.milli
    restricted = np.flatnonzero((mix.count > 0) & ~mix.models.all(axis=1))
    load = np.zeros(idle.size)
    if restricted.size == 0 or idle.sum() <= 0:
        return load
    scale = AHEAD * idle.sum() / asked.sum()
    sets, part = np.unique(mix.models[restricted], axis=0, return_inverse=True)
    amounts = np.bincount(part.ravel(), asked[restricted]) * scale
    for models in np.argsort(sets @ idle, kind="stable").tolist():
        into = np.flatnonzero(sets[models] & (idle > 0))
        load[into] = _poured(load[into], idle[into], float(amounts[models]))
    return np.asarray(np.minimum(np.divide(load, idle, out=np.zeros(idle.size), where=idle > 0), 1.0))


def _poured(load: Floats, room: Floats, amount: float) -> Floats:
    """Loads after `amount` more was poured over these so that the lowest load / room is highest."""
    if load.size == 0:
        return load
    order = np.argsort(load / room, kind="stable")
    levels = (amount + np.cumsum(load[order])) / np.cumsum(room[order])
    reached = np.append(load[order][1:] / room[order][1:], np.inf)
    level = levels[np.argmax(levels <= reached)]
    return np.asarray(np.maximum(load, level * room))


def _broken(mix: Mix, free: Ints, count: int, idle: float) -> Floats:
    """(V,) what the slots for several whole devices are worth that taking whole devices there breaks up."""
    empty = (free == MILLI).sum(axis=1)
    cost = np.zeros(empty.size)
    asked = (mix.seen * mix.count * mix.milli).sum()
    for size in np.unique(mix.count[mix.count > 1]).tolist():
        wanted = mix.seen[mix.count == size].sum() * AHEAD * idle / asked
        pressure = min(wanted / max(float((empty // size).sum()), 1.0), 1.0)
        cost += SLOT * MILLI * size * pressure * (empty // size - np.maximum(empty - count, 0) // size)
    return cost


def _free(draft: Draft) -> tuple[Ints, Ints]:
    """(V, G) 1/1000 free on each device of each server, 0 where there is none or it takes nobody; (D,) its column."""
    have, room = draft.state.devices, draft.room
    open_ = have.offered & ~have.blocked & (room.closed < 0.5)
    level = np.rint(MILLI * np.where(open_, 1.0 - room.committed - draft.ahead, 0.0)).astype(np.int64)
    order = np.argsort(have.server, kind="stable")
    number = np.bincount(have.server, minlength=len(draft.state.servers))
    slot = np.empty(order.size, np.int64)
    slot[order] = np.arange(order.size) - np.repeat(np.cumsum(number) - number, number)
    free = np.zeros((number.size, max(int(number.max(initial=0)), 1)), np.int64)
    free[have.server, slot] = np.clip(level, 0, MILLI)
    return free, slot


def _vectors(state: State, room: Room, free: Ints) -> tuple[Ints, Ints]:
    """(V, 1 + G + 2) each server's model, its emptiest devices, and its CPUs and memory in steps; (V, G) the columns
    of those devices in `free`."""
    have, width = state.devices, free.shape[1]
    model = np.zeros(free.shape[0], np.int64)
    model[have.server[::-1]] = have.model[::-1]  # of the server's first device
    ranked = np.sort(free * width + np.arange(width), axis=1)[:, : -SLOTS - 1 : -1]
    vector = np.empty((free.shape[0], ranked.shape[1] + 3), np.int64)
    vector[:, 0] = model
    vector[:, 1:-2] = ranked // width
    vector[:, -2] = _steps(room.cpus, CPU_UNIT, CPU_STEP)
    vector[:, -1] = _steps(room.host_memory, MEMORY_UNIT, MEMORY_STEP)
    return vector, ranked % width


def _steps(free: Floats, unit: float, step: int) -> Ints | int:
    """(V,) what is free in units of fill.py, rounded down to steps; MANY where it is not counted."""
    if free.size == 0:
        return MANY
    amount = np.floor(free / unit + 1e-6)
    return np.where(amount < MANY, amount // step * step, MANY).astype(np.int64)  # NaN is not less


def _table(mix: Mix, vector: Ints, count: int, share: int, cpus: int, memory: int, *, counted: bool) -> Floats:
    """(V, G) dW of a demand on each server from the device of each rank; only what changed is worked out."""
    key = "table", count, share, cpus, memory, counted
    table = mix.known.get(key)
    if table is None or table.vector.shape != vector.shape:
        table = mix.known[key] = Table(np.full_like(vector, -1), np.zeros((vector.shape[0], vector.shape[1] - 3)))
    changed = np.flatnonzero((table.vector != vector).any(axis=1))
    if changed.size:
        table.vector[changed] = vector[changed]
        table.cost[changed] = _costs(mix, vector[changed], count, share, cpus, memory, counted=counted)
    return table.cost


def _costs(mix: Mix, vector: Ints, count: int, share: int, cpus: int, memory: int, *, counted: bool) -> Floats:
    """(R, G) dW for servers of these free vectors; 0 where it does not fit."""
    kind = {key: index for index, key in enumerate(dict.fromkeys(_keys(vector)))}
    kinds = _vectors_of(kind, vector)
    free = kinds[:, 1:-2]
    usable = free >= share
    first = usable & ((kinds[:, -2] >= cpus) & (kinds[:, -1] >= memory) & (usable.sum(axis=1) >= count))[:, None]
    first[:, 1:] &= (free[:, 1:] != free[:, :-1]) & (count == 1)  # of several there is one way, of equal devices too
    row, rank = np.nonzero(first)
    after = kinds[row]
    if count == 1:
        after[np.arange(row.size), 1 + rank] -= share
        after[:, 1:-2] = -np.sort(-after[:, 1:-2], axis=1)
    else:  # the empty ones are in front
        after[:, 1:-2] = np.roll(np.where(np.arange(free.shape[1]) < count, 0, after[:, 1:-2]), -count, axis=1)
    for column, need, step in ((-2, cpus, CPU_STEP), (-1, memory, MEMORY_STEP)):
        amount = after[:, column]
        after[:, column] = np.where(amount < MANY, np.maximum(amount - need, 0) // step * step, MANY)
    cost = np.zeros(free.shape)
    fits = np.flatnonzero(first.any(axis=1))
    before = np.zeros(len(kinds))
    before[fits] = _left(mix, kinds[fits], counted=counted)
    cost[row, rank] = _left(mix, after, counted=counted) - before[row]
    ranks = np.maximum.accumulate(np.where(first, np.arange(free.shape[1]), 0), axis=1)  # equals share their cost
    return np.take_along_axis(cost, ranks, axis=1)[[kind[key] for key in _keys(vector)]]


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
            values = left(streams, part[:, 0], part[:, 1:-2], part[:, -2], part[:, -1])
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


def _host_needs(state: State, session: int) -> tuple[int, int]:
    """CPUs and memory that a session asks of its server, in units of fill.py."""
    if state.hosts is None:
        return 0, 0
    cpus, memory = state.sessions.cpus[session], state.sessions.host_memory[session]
    return int(np.ceil(np.nan_to_num(cpus) / CPU_UNIT)), int(np.ceil(np.nan_to_num(memory) / MEMORY_UNIT))
