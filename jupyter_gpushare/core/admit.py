"""Who gets devices now: new sessions are bound, waiting cells and whole demands are leased, parked sessions come back.

Everybody is asked in fair order. A binding holds nothing, so it is given at once; a lease commits a guarantee, so it
waits for room. The first in line of each server that has to wait keeps what it will need there: those behind may
fill other gaps, and that one only if they will be gone in time: backfilling with one reservation (`backfill.py`).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ..model import STATES, Place, Refuse, ResumeSession
from . import backfill, fairness
from .advise import ADVICE, advised
from .choose import choose, place
from .draft import Draft
from .fitness import fitness
from .policy import Policy
from .room import EPS, least_of, need_of, reachable, restoring, sum_at, view_of
from .state import DEAD, LOST, PARKED, PARKING, RESUMING, WAITING, Bools, Floats, Ints, State

# Sessions x devices scored per call and kind of wish, so that a decision stays short; the next call goes on (cf.
# bf_max_job_test of Slurm).
PAIRS = 250_000
GIVEN_BACK = 1.25  # a reservation prefers what is given back at once to what is idle, and that to what is in use
OPEN = np.ones(len(STATES), np.bool_)  # states in which a session can be given something
OPEN[[LOST, DEAD, PARKING, RESUMING]] = False
SLACK = 1024.0  # bytes; promises are fractions of a device's memory, and those are rounded


def admit(draft: Draft, now: float, policy: Policy) -> Draft:
    """Binds, leases and resumes whom there is room for; the others are `draft.blocked`, in order."""
    state = draft.state
    held = held_by_user(draft)
    left = {"bind": PAIRS, "lease": PAIRS}
    placed = np.zeros(len(state.sessions.id), np.bool_)
    placed[state.placements.session] = True
    told = state.sessions.whole & (state.sessions.duration_s > 0)
    advice = advised(draft, told & waits(state), now, policy) if told.any() else {}
    for session in _line(state, held, now, policy):
        starts = not placed[session]
        wish = "bind" if starts and not _must_lease(state, session) else "lease"
        if left[wish] <= 0:
            continue
        devices = candidates(draft, session)
        left[wish] -= devices.size
        reason = refusal(state, session) if starts else None
        if reason is not None:
            draft.decisions.append(Refuse(session=state.sessions.id[session], why=reason))
        elif wish == "bind":
            _bind(draft, session, devices, policy)
        elif (over := _over_cap(draft, session, held)) > EPS:
            draft.over_cap[session] = over
        elif not _lease(draft, session, devices, held, policy, advice.get(session)):
            draft.blocked.append(session)
            _reserve(draft, session, now, policy)
    return draft


def refusal(state: State, session: int) -> str | None:
    """Why no device can ever be given for this demand as the cluster is; None when one can."""
    asks, have = state.sessions, state.devices
    allowed = np.flatnonzero(state.allowed[asks.allowed[session]])
    count = int(asks.count[session])
    if count * asks.guarantee[session] > state.users.cap[asks.user[session]] + EPS:
        return "over_limit"
    if allowed.size == 0:
        return "no_such_device"
    together = 1 if asks.gang(session) else count
    if _most_together(have.server, allowed, together) < count:
        return "too_few_devices" if together == count else "too_few_in_all"
    small = have.memory_total[allowed] < asks.memory[session]
    if small.any() and _most_together(have.server, allowed[~small], together) < count:
        return "memory_too_large"
    if state.hosts is not None:
        short = state.hosts.cpus < asks.cpus[session]
        short |= state.hosts.memory < asks.host_memory[session]
        if short[have.server[allowed]].all():
            return "host_too_small"
    return None


def _most_together(server: Ints, devices: Ints, count: int) -> int:
    """How many of these devices one server has, counted only where more than one is asked for."""
    return devices.size if count <= 1 else int(np.bincount(server[devices]).max(initial=0))


def fits(draft: Draft, session: int, devices: Ints) -> tuple[Bools, Bools]:
    """On which of these devices (rows, ascending) a lifted session can be leased: with its guarantee; on lent room."""
    state, room = draft.state, draft.room
    asks, have = state.sessions, state.devices
    guarantee = float(asks.guarantee[session])
    at = view_of(state, devices)
    alone = room.holders[at] < 0.5
    unmanaged = have.blocked[at]
    ahead, ahead_lent, ahead_memory = draft.ahead[at], draft.ahead_lent[at], draft.ahead_memory[at]
    if draft.ahead_in.any():
        needed = ~backfill.ends_in_time(draft, session, devices)
        ahead, ahead_lent, ahead_memory = ahead * needed, ahead_lent * needed, ahead_memory * needed
    limit, promised = room.capacity[at], room.memory[at] + ahead_memory
    open_ = promised + resident(draft, session, devices) <= limit + SLACK
    # Where the memory's size is not told nobody else's is at stake while nobody is there.
    open_ |= alone & np.isnan(limit) & (draft.ahead[at] == 0)
    open_ &= have.offered[at] & (room.closed[at] < 0.5)
    if state.hosts is not None:
        short = room.cpus < asks.cpus[session] - EPS
        short |= room.host_memory < asks.host_memory[session] - SLACK
        open_ &= ~short[have.server[at]]
    single = have.single[at]
    open_ &= ~single | (alone & ~unmanaged)
    if asks.exclusive[session]:
        open_ &= alone
    if asks.whole[session]:
        open_ &= ~unmanaged
    mine = [row for row in draft.rows(session) if draft.lease[row] and not draft.borrowed[row]]
    if mine:  # its guarantee there is its own already
        elsewhere = ~np.isin(devices, draft.device[mine])
        ahead, ahead_lent = ahead * elsewhere, ahead_lent * elsewhere
    own = open_ & (room.committed[at] + ahead + guarantee <= 1.0 + EPS)
    computes = bool(asks.gated[session] or asks.bursting[session])
    if draft.parked[session] or (asks.whole[session] and not computes):
        return own, np.zeros_like(own)
    return own, open_ & (room.bursting[at] + ahead_lent + least_of(state, session) <= 1.0 + EPS)


def likelihood(draft: Draft, session: int, devices: Ints, own: Bools, lent: Bools) -> Floats:
    """(C,) what goes before fitness where a session is only bound: how likely its first cell is to find room there."""
    beside_all = draft.room.expected[devices] + draft.state.sessions.guarantee[session] <= 1.0 + EPS
    return np.asarray(40.0 * own + 20.0 * lent + 10.0 * beside_all, dtype=np.float64)


def resident(draft: Draft, session: int, devices: Ints) -> Floats:
    """(C,) bytes that must be free on each device for the session to run there."""
    limits = draft.room.capacity[view_of(draft.state, devices)]
    need = need_of(draft.state, session, limits)
    if draft.state.sessions.parked_bytes[session] == 0.0:
        return need
    back = restoring(draft.state.sessions, np.array([session]), limits)
    return np.asarray(np.maximum(need, back), dtype=np.float64)


def candidates(draft: Draft, session: int) -> Ints:
    """Rows of the devices it could be leased on: all that are allowed, or its own where its mask or memory ties it."""
    state, asks = draft.state, draft.state.sessions
    own = draft.devices(session)
    if draft.parked[session]:
        # a checkpoint returns to its machine and to the same kind of device
        there = reachable(state, session)
        alike = np.isin(state.devices.server[there], state.devices.server[own])
        return there[alike & np.isin(state.devices.model[there], state.devices.model[own])]
    tied = own.size > 0 and (asks.context[session] or asks.bursting[session] or not asks.cooperative[session])
    return own if tied else reachable(state, session)


def waits(state: State) -> Bools:
    """(S,) wants a place, a lease, or its memory back."""
    asks, held = state.sessions, state.placements
    size = len(asks.id)
    placed, leased = np.zeros(size, np.bool_), np.zeros(size, np.bool_)
    placed[held.session] = True
    leased[held.session[held.lease]] = True
    alive = (asks.count > 0) & OPEN[asks.state]
    computes = asks.gated | asks.bursting
    start = ~placed & ((asks.state == WAITING) | computes) & ~asks.context
    cell = placed & (asks.gated | (asks.bursting & ~leased))
    back = placed & (asks.state == PARKED) & computes
    result: Bools = alive & np.where(asks.state == PARKED, back, start | cell)
    return result


def _line(state: State, held: Floats, now: float, policy: Policy) -> Iterator[int]:
    """Sessions that want something, who is next first."""
    wanting = waits(state)
    if wanting.sum() <= 1:  # there is nothing to order
        yield from np.flatnonzero(wanting).tolist()
        return
    capacity = float(state.devices.offered.sum())
    order = fairness.order(state.sessions, state.users, held, capacity, now, policy)
    for session in order.tolist():
        if wanting[session]:
            wanting[session] = False
            yield session
    yield from sorted(np.flatnonzero(wanting).tolist(), key=state.sessions.id.__getitem__)


def _must_lease(state: State, session: int) -> bool:
    asks = state.sessions
    return bool(asks.whole[session] or asks.gated[session] or asks.bursting[session])


def held_by_user(draft: Draft) -> Floats:
    """(U,) devices that each user's leases commit."""
    rows = np.flatnonzero(draft.lease)
    asks = draft.state.sessions
    sessions = draft.session[rows]
    return sum_at(asks.user[sessions], asks.guarantee[sessions], len(draft.state.users.name))


def _over_cap(draft: Draft, session: int, held: Floats) -> float:
    """Devices by which a new lease would exceed the user's cap; one that computes already is charged, not stopped."""
    state, asks = draft.state, draft.state.sessions
    if asks.bursting[session] or draft.lease[draft.rows(session)].any():
        return 0.0
    user = asks.user[session]
    return float(held[user] + asks.guarantee[session] * asks.count[session] - state.users.cap[user])


def _bind(draft: Draft, session: int, devices: Ints, policy: Policy) -> None:
    """Chooses devices for a new session. They hold nothing yet, so room is a preference and not a condition."""
    own, lent = fits(draft, session, devices)
    scored = fitness(draft, session, devices, policy)
    chosen = choose(draft.state, session, devices, scored.total + likelihood(draft, session, devices, own, lent))
    if chosen is not None:
        place(draft, session, scored, chosen, own | lent, why="bound", lease=False)


def _lease(draft: Draft, session: int, devices: Ints, held: Floats, policy: Policy, model: int | None) -> bool:
    """Grants a lease, or the way back from host memory, if there is room now; on the advised model if there can be."""
    asks = draft.state.sessions
    rows = draft.rows(session)
    user, wanted = asks.user[session], float(asks.guarantee[session] * asks.count[session])
    running = bool(asks.bursting[session])
    fresh = not draft.lease[rows].any()
    if not fresh and not draft.borrowed[rows].any() and asks.context[session]:
        _admit_holder(draft, session)
        return True
    draft.lift(session)
    own, lent = fits(draft, session, devices)
    if max(np.count_nonzero(own), np.count_nonzero(lent)) < asks.count[session] and not running:  # nothing to score
        draft.settle(session)
        return False
    scored = fitness(draft, session, devices, policy)
    order = scored.total
    if rows.size:
        stays = np.isin(devices, draft.device[rows])
        order = order + 0.1 * stays
        if draft.parked[session]:
            order = order + 10.0 * stays
    if asks.exclusive[session]:
        order = order - draft.room.placed[devices]
    if model is not None:
        order = order + ADVICE * (draft.state.devices.model[devices] == model)
    borrowed = False
    chosen = choose(draft.state, session, devices, np.where(own, order, -np.inf))
    if chosen is None:
        chosen, borrowed = choose(draft.state, session, devices, np.where(lent, order, -np.inf)), True
    if chosen is None and running and rows.size and not draft.parked[session]:
        chosen = np.arange(devices.size)  # it computes already and cannot wait
    if chosen is None:
        draft.settle(session)
        return False
    draft.bursting[session] = _computes(draft, session)
    if draft.parked[session]:
        _resume(draft, session, devices[chosen])
    else:
        why = "lent" if borrowed else "room"
        place(draft, session, scored, chosen, own | lent, why=why, lease=True, borrowed=borrowed)
    if fresh:
        held[user] += wanted
    return True


def _computes(draft: Draft, session: int) -> bool:
    asks = draft.state.sessions
    return bool(asks.gated[session] or asks.bursting[session])


def _admit_holder(draft: Draft, session: int) -> None:
    """Lets the cell of a session run whose guarantee and memory are there: only its time was lent."""
    draft.lift(session)
    draft.bursting[session] = True
    draft.settle(session)
    devices = draft.uuids(draft.devices(session))
    draft.grant(session, Place(session=draft.state.sessions.id[session], why="guarantee", devices=devices, lease=True))


def _resume(draft: Draft, session: int, devices: Ints) -> None:
    """Brings a lifted parked session back, each part to its old device where it can be."""
    old = draft.devices(session)
    moved = [device for device in devices.tolist() if device not in old]
    new = [device if device in devices else moved.pop(0) for device in old.tolist()]
    draft.parked[session] = False
    draft.put(session, devices, lease=True)
    draft.settle(session)
    names = draft.state.devices.uuid
    draft.grant(
        session,
        ResumeSession(
            session=draft.state.sessions.id[session],
            why="room",
            devices={names[a]: names[b] for a, b in zip(old.tolist(), new, strict=True)},
            memory=int(restoring(draft.state.sessions, np.array([session]), draft.room.capacity[devices]).min()),
        ),
    )


def _reserve(draft: Draft, session: int, now: float, policy: Policy) -> None:
    """Keeps what this session will need on the devices it is likeliest to get, once per server."""
    state, room = draft.state, draft.room
    devices = candidates(draft, session)
    devices = devices[~(state.devices.blocked[devices] & bool(state.sessions.whole[session]))]
    kept = sum_at(state.devices.server, draft.ahead, len(state.servers)) > 0
    devices = devices[~kept[state.devices.server[devices]]]
    if devices.size == 0:
        return
    taken = room.bursting[devices] + 0.5 * room.committed[devices]
    chosen = choose(state, session, devices, GIVEN_BACK * beyond_asked(draft)[devices] - taken)
    if chosen is None:
        return
    draft.kept[session] = devices[chosen]
    draft.keep(session, devices[chosen])
    draft.ahead_in[devices[chosen]] = backfill.starts_in_s(draft, session, devices[chosen], now, policy)


def beyond_asked(draft: Draft) -> Floats:
    """(D,) 1 on the devices of sessions that have more than they asked for, and give them back (`widen`)."""
    asks, size = draft.state.sessions, len(draft.state.devices.uuid)
    if not asks.most.any():
        return np.zeros(size)
    rows = np.flatnonzero(draft.lease)
    wide = np.bincount(draft.session[rows], minlength=len(asks.id)) > asks.count
    return np.minimum(sum_at(draft.device[rows], wide[draft.session[rows]], size), 1.0)
