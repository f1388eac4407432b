"""Taking idle devices back, rung by rung: trim caches, unbind, notice, park; notice, stop where an admin allows it.

Work-conserving: only what lets somebody in who waits, and no more of it. The plan is made on a copy of the draft in
which earlier waiters have already been let in, so one victim's room serves as many waiters as fit into it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ..model import ParkSession, Rung, StopKernel, TrimCaches, Unbind, Warn
from . import reclaim
from .admit import candidates, fits, resident
from .choose import choose
from .draft import FREE, Draft, copy_of
from .policy import Policy
from .room import EPS, Room, sum_at
from .state import ACTIVE, BOUND, IDLE, PARKING, WAITING, Bools, Floats, Ints

TRIM, UNBIND, PARK, STOP = range(4)  # as in model.Rung
PATIENCE_S = 120.0  # after this wait what is idle makes room for the first in line one by one
WHOLE_S = 300.0  # what unbinding costs a whole demand: its devices are not there again at its next cell
RUNGS: tuple[Rung, ...] = ("trim", "unbind", "park", "stop")


@dataclass(frozen=True, slots=True, eq=False)
class Takeable:
    """Sessions that hold a device and compute nothing, the one to take first in front.

    Attributes
    ----------
    session : (R,) rows
    rung : (R,) UNBIND, PARK or STOP: how it is taken
    due_s : (R,) seconds until it may be taken, at most 0 now
    in_line : (R,) its place among those who wait themselves, -1 where no cell of it waits
    """

    session: Ints
    rung: Ints
    due_s: Floats
    in_line: Ints


def take_back(draft: Draft, now: float, policy: Policy) -> Draft:
    """Chooses whom to take devices from, and decides the next rung for each; withdraws notices no longer needed."""
    chosen: dict[int, bool] = {}
    idle = takeable(draft, now, policy) if policy.reclaim != "never" and _wanted(draft, policy) else None
    if idle is not None:
        if policy.reclaim == "always":
            chosen = dict.fromkeys(idle.session[idle.in_line < 0].tolist(), False)
        elif idle.session.size:
            chosen = _victims(draft, idle, now, policy) | _own_idle(draft, idle)
        for session, rung, due_s in zip(idle.session.tolist(), idle.rung.tolist(), idle.due_s.tolist(), strict=True):
            if session in chosen:
                why = "idle" if policy.reclaim == "always" else "waiter"
                _step(draft, session, rung, due_s, chosen[session], why, now, policy)
    _withdraw(draft, chosen)
    return draft


def takeable(draft: Draft, now: float, policy: Policy) -> Takeable:
    """Whom devices could be taken from, now or later: never who computes, is kept, protected, or was not read."""
    state, asks = draft.state, draft.state.sessions
    size = len(asks.id)
    rows = np.flatnonzero(draft.session != FREE)
    owner, device = draft.session[rows], draft.device[rows]
    holds = np.zeros(size, np.bool_)
    holds[owner[draft.lease[rows] | asks.context[owner]]] = True
    in_line = np.full(size, -1)
    in_line[draft.blocked] = np.arange(len(draft.blocked))
    rests = np.isin(asks.state, (IDLE, BOUND)) & ~asks.gated
    idle = holds & (rests | (in_line >= 0)) & ~draft.bursting & ~draft.parked
    idle &= (asks.pinned_until <= now) & (asks.protected_until <= now)
    idle &= ~_any(owner[~state.devices.fresh[device]], size)
    idle[draft.moved] = False
    parkable = ~asks.unparkable & ~_any(owner[~state.devices.can_park[device]], size)
    rung = np.where(~asks.context, UNBIND, np.where(parkable, PARK, STOP))
    if not policy.stop_idle_kernels:
        idle &= (rung != STOP) | (asks.spread if asks.spread.size else False)  # a gang's workers are no kernel
    sessions = np.flatnonzero(idle)
    nothing_s = np.where(asks.whole[sessions], WHOLE_S, 0.0)
    cost_s = np.where(rung[sessions] == UNBIND, nothing_s, _park_cost_s(draft, rows)[sessions])
    due_s = reclaim.due_in(replace(asks, gated=np.zeros(size, np.bool_)), sessions, cost_s, now, policy)
    due_s = np.where(
        rung[sessions] == STOP, np.fmax(due_s, policy.stop_after_s - (now - asks.idle_since[sessions])), due_s
    )
    may = np.isfinite(due_s)
    sessions, due_s, cost_s = sessions[may], due_s[may], cost_s[may]
    order = _order(draft, sessions, np.where(in_line[sessions] < 0, rung[sessions], len(RUNGS)), cost_s, now)
    sessions = sessions[order]
    return Takeable(session=sessions, rung=rung[sessions], due_s=due_s[order], in_line=in_line[sessions])


def _order(draft: Draft, sessions: Ints, rung: Ints, cost_s: Floats, now: float) -> Ints:
    """Indices, first to take in front: by rung, then who has had notice (notices do not wander), then by value."""
    asks = draft.state.sessions
    place = np.empty(len(asks.id), np.int64)
    best = reclaim.victims(asks, sessions, cost_s, now)
    place[best] = np.arange(best.size)
    return np.lexsort((place[sessions], asks.warned_rung[sessions] < PARK, rung))


def _any(sessions: Ints, size: int) -> Bools:
    """(S,) whether the session is among these."""
    result = np.zeros(size, np.bool_)
    result[sessions] = True
    return result


def _park_cost_s(draft: Draft, rows: Ints) -> Floats:
    """(S,) seconds to park and resume each session; NaN where its bytes were not read."""
    owner = draft.session[rows]
    cost = reclaim.park_cost_s(draft.memory_used[rows], draft.state.devices.link_gb_s[draft.device[rows]])
    return sum_at(owner, cost, len(draft.state.sessions.id))


def _wanted(draft: Draft, policy: Policy) -> bool:
    return bool(draft.blocked or draft.over_cap) or policy.reclaim == "always"


def _own_idle(draft: Draft, idle: Takeable) -> dict[int, bool]:
    """For a session that its user's cap keeps waiting: their own idle ones whose going brings them under it."""
    asks = draft.state.sessions
    chosen: dict[int, bool] = {}
    for waiter, over in draft.over_cap.items():
        for session in idle.session[asks.user[idle.session] == asks.user[waiter]].tolist():
            if over <= EPS:
                break
            if session not in chosen and draft.lease[draft.rows(session)].any():
                chosen[session] = False
                over -= asks.guarantee[session] * asks.count[session]
    return chosen


def _victims(draft: Draft, idle: Takeable, now: float, policy: Policy) -> dict[int, bool]:
    """Sessions to take from so that those who wait get in, each with whether memory is what is short.

    For a waiter whom nobody's going helps now, later ones are kept for it: nobody behind it is let in by them.

    Two things would let a waiter starve: sessions that compute in turns are never idle together, and those who wait
    behind it may hold what it needs. So after `PATIENCE_S` it may take from those as well, and the first in line takes
    what is idle one by one.
    """
    asks = draft.state.sessions
    later, chosen = copy_of(draft), dict[int, bool]()
    for session in np.flatnonzero(asks.state == PARKING).tolist():
        later.lift(session)  # its room comes free by itself
    soon = idle.due_s <= np.where(idle.rung == STOP, policy.stop_warn_s, policy.warn_before_s)
    left = np.ones(idle.session.size, np.bool_)
    gone = np.zeros(len(asks.id), np.bool_)
    for place, waiter in enumerate(draft.blocked):
        if gone[waiter]:
            continue
        patient = now - asks.waiting_since[waiter] >= PATIENCE_S
        left &= idle.session != waiter
        spare = left & ((idle.in_line < 0) | (patient & (idle.in_line > place)))
        kept = later.kept.get(waiter)
        if kept is not None:
            later.keep(waiter, kept, -1.0)
        later.lift(waiter)
        victims = _let_in(later, waiter, idle.session[spare & soon])
        if victims is not None:
            chosen |= victims
        else:
            victims = _let_in(later, waiter, idle.session[spare])
        if victims is not None:
            gone[list(victims)] = True
        elif kept is not None:
            later.keep(waiter, kept)
            if patient:
                victims = dict.fromkeys(_on(later, kept, idle.session[spare]), True)
                chosen |= victims
        later.settle(waiter)
        left &= ~np.isin(idle.session, list(victims or ()))
    return chosen


def _let_in(later: Draft, waiter: int, spare: Ints) -> dict[int, bool] | None:
    """Lets a lifted waiter into `later` with the fewest of the spare sessions gone; None where that does not help.

    Returns whom it takes, each with whether memory is what is short.
    """
    devices = candidates(later, waiter)
    own, lent = fits(later, waiter, devices)
    victims: dict[int, bool] = {}
    here = choose(later.state, waiter, devices, np.where(own | lent, 0.0, -np.inf))
    if here is None:
        here = _best(later, waiter, devices, spare)
        if here is None:
            return None
        wanted = devices[here]
        short = later.room.memory[wanted] + resident(later, waiter, wanted) > later.room.capacity[wanted]
        victims = dict.fromkeys(_fewest(later, waiter, wanted, spare), bool(short.any()))
    own, _ = fits(later, waiter, devices[here])
    later.bursting[waiter] = True
    later.parked[waiter] = False
    later.put(waiter, devices[here], lease=True, borrowed=not own.all())
    return victims


def _best(later: Draft, waiter: int, devices: Ints, spare: Ints) -> Ints | None:
    """Indices of the devices that could take the waiter if all of `spare` were gone, those that lack least."""
    if spare.size == 0 or devices.size == 0:
        return None
    room = later.room
    lacks = np.nan_to_num(room.committed[devices] + room.memory[devices] / room.capacity[devices])
    later.room = room_without(later, spare)
    own, lent = fits(later, waiter, devices)
    later.room = room
    return choose(later.state, waiter, devices, np.where(own | lent, -lacks, -np.inf))


def room_without(later: Draft, spare: Ints) -> Room:
    """The room there would be if these idle sessions held nothing: `lift` for all of them at once."""
    asks, room, size = later.state.sessions, later.room, len(later.state.devices.uuid)
    rows = np.flatnonzero(_any(spare, len(asks.id))[later.session] & (later.session != FREE))
    session, device, lease = later.session[rows], later.device[rows], later.lease[rows]
    guarantee, context = asks.guarantee[session], asks.context[session]
    asked = asks.memory[session]
    need = np.where(np.isnan(asked), guarantee * room.capacity[device], asked)
    used = np.where(context, np.fmax(later.memory_used[rows], need), 0.0)
    return replace(
        room,
        committed=room.committed - sum_at(device, guarantee * (lease & ~later.borrowed[rows]), size),
        memory=room.memory - sum_at(device, used, size),
        holders=room.holders - sum_at(device, lease | context, size),
        closed=room.closed - sum_at(device, lease & asks.exclusive[session], size),
    )


def _on(later: Draft, devices: Ints, spare: Ints) -> list[int]:
    """Those of `spare`, in their order, that are on any of these devices."""
    there = _any(later.session[np.isin(later.device, devices) & (later.session != FREE)], len(later.state.sessions.id))
    on: list[int] = spare[there[spare]].tolist()
    return on


def _fewest(later: Draft, waiter: int, devices: Ints, spare: Ints) -> list[int]:
    """The smallest set, in order of preference, whose going lets the waiter onto these devices; left lifted."""

    def enough() -> bool:
        own, lent = fits(later, waiter, devices)
        return bool(own.all() or lent.all())

    picked: list[int] = []
    for session in _on(later, devices, spare):
        later.lift(session)
        picked.append(session)
        if enough():
            break
    for session in picked[:-1]:  # what came later may have made an earlier one needless
        later.settle(session)
        if enough():
            picked.remove(session)
        else:
            later.lift(session)
    return picked


def _step(
    draft: Draft, session: int, rung: int, due_s: float, short_of_memory: bool, why: str, now: float, policy: Policy
) -> None:
    """The next rung for a chosen session."""
    asks = draft.state.sessions
    name, noticed = asks.id[session], int(asks.warned_rung[session])
    devices = draft.uuids(draft.devices(session))
    notice_s = policy.stop_warn_s if rung == STOP else policy.warn_before_s
    if rung == UNBIND:
        if due_s <= 0:
            draft.lift(session)
            draft.drop(session)
            draft.decisions.append(Unbind(session=name, why=why, devices=devices))
    elif rung == PARK and short_of_memory and noticed < TRIM and asks.cooperative[session]:
        draft.decisions.extend(TrimCaches(session=name, why=why, device=device) for device in devices)
    elif noticed != rung:
        if due_s <= notice_s:
            draft.decisions.append(Warn(session=name, why=why, rung=RUNGS[rung], in_s=notice_s))
    elif due_s <= 0 and asks.warned_until[session] <= now:
        draft.decisions.append(
            StopKernel(session=name, why=why) if rung == STOP else ParkSession(session=name, why=why, devices=devices)
        )


def _withdraw(draft: Draft, chosen: dict[int, bool]) -> None:
    """Takes notices back from sessions that are not going to be taken."""
    asks = draft.state.sessions
    for session in np.flatnonzero(asks.warned_rung >= PARK).tolist():
        if session not in chosen and asks.state[session] in (IDLE, BOUND, ACTIVE, WAITING):
            rung = RUNGS[int(asks.warned_rung[session])]
            draft.decisions.append(Warn(session=asks.id[session], why="withdrawn", rung=rung, in_s=None))
