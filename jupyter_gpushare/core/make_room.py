"""Moves idle sessions together so that a big demand finds its devices, where that costs less than the wait it saves."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .admit import candidates, fits
from .choose import choose
from .draft import FREE, Draft, copy_of
from .ladder import room_without
from .moves import cost_s, elsewhere, movable, move, relocate, servers_with_moves
from .policy import Policy
from .reclaim import HORIZON_S, due_in, return_p
from .state import PARKING, Floats, Ints

LOOKED_AT = 4  # of those who wait, first in line
MOST_MOVES = 8  # for one of them: each is a transfer over the server's link


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """Moves that let a waiter in.

    Attributes
    ----------
    sessions : who moves
    devices : (k,) rows for each of them
    """

    sessions: list[int]
    devices: list[Ints]


def make_room(draft: Draft, now: float, policy: Policy) -> Draft:
    """For the first in line: moves who is idle off the devices that need least for them to be let in.

    A move takes nothing from anybody, so it does not wait until a session has been idle for long enough to be parked;
    it must only pay: ``share waited for x seconds it would wait otherwise + seconds those who move will not wait for
    their memory > share held x seconds its memory moves``, in device-seconds (`_pays`). Both sides count what is
    uncertain against moving: the wait is that until the same sessions would have been parked, `HORIZON_S` at most.
    """
    if policy.reclaim == "never" or not draft.blocked:
        return draft
    may = movable(draft, now)
    if not may.any():
        return draft
    cost = cost_s(draft)
    may &= np.isfinite(cost)
    trial = copy_of(draft)
    for session in np.flatnonzero(draft.state.sessions.state == PARKING).tolist():
        trial.lift(session)  # its room comes free by itself
    for waiter in draft.blocked[:LOOKED_AT]:
        kept = draft.kept.get(waiter)
        if kept is not None:
            trial.keep(waiter, kept, -1.0)
        attempt = copy_of(trial)
        plan = _plan(attempt, waiter, may, cost, policy)
        if plan is not None and _pays(draft, waiter, plan, cost, now, policy):
            for session, new in zip(plan.sessions, plan.devices, strict=True):
                draft.lift(session)
                move(draft, session, new, "makes_room")
                may[session] = False
            trial = attempt
        if kept is not None:
            trial.keep(waiter, kept)
    return draft


def _plan(attempt: Draft, waiter: int, may: np.ndarray, cost: Floats, policy: Policy) -> Plan | None:
    """The moves that let the waiter onto the devices that take least of them, made in `attempt`; None: there are none.

    One server at a time moves memory: where a move is under way, nothing is added to it.
    """
    state, asks = attempt.state, attempt.state.sessions
    attempt.lift(waiter)
    devices = candidates(attempt, waiter)
    own, lent = fits(attempt, waiter, devices)
    if max(own.sum(), lent.sum()) >= asks.count[waiter]:
        return None  # what is under way lets it in
    busy = list(servers_with_moves(attempt))
    devices = devices[~np.isin(state.devices.server[devices], busy)]
    rows = np.flatnonzero((attempt.session != FREE) & may[attempt.session])
    rows = rows[np.isin(attempt.device[rows], devices)]
    room = attempt.room
    attempt.room = room_without(attempt, np.unique(attempt.session[rows]))
    own, _ = fits(attempt, waiter, devices)
    attempt.room = room
    weight = np.bincount(attempt.device[rows], cost[attempt.session[rows]], len(state.devices.uuid))
    chosen = choose(state, waiter, devices, np.where(own, -weight[devices], -np.inf))
    if chosen is None:
        return None
    wanted = devices[chosen]
    there = np.unique(attempt.session[rows[np.isin(attempt.device[rows], wanted)]])
    there = there[np.lexsort((np.array([asks.id[session] for session in there], dtype=str), cost[there]))]
    plan = Plan([], [])
    for session in there.tolist()[:MOST_MOVES]:
        attempt.lift(session)
        new = elsewhere(attempt, session, policy, np.union1d(wanted, attempt.devices(session)))
        if new is None:
            attempt.settle(session)
            continue
        relocate(attempt, session, new)
        plan.sessions.append(session)
        plan.devices.append(new)
        own, _ = fits(attempt, waiter, wanted)
        if own.all():
            attempt.put(waiter, wanted, lease=True)
            attempt.settle(waiter)
            return plan
    return None


def _pays(draft: Draft, waiter: int, plan: Plan, cost: Floats, now: float, policy: Policy) -> bool:
    """Whether the device-seconds that are gained exceed those that the moves take.

    Gained: the waiter's share times how long it would wait until the same sessions were parked for it (their due time,
    at least the notice, then half of the transfer), and what those who come back would wait for their memory.
    """
    asks, rows = draft.state.sessions, np.array(plan.sessions)
    share = asks.guarantee[rows] * asks.count[rows]
    due_s = np.maximum(due_in(asks, rows, cost[rows], now, policy), policy.warn_before_s) + cost[rows] / 2.0
    wait_s = min(float(due_s.max()), HORIZON_S)
    back_p = return_p(asks.gaps[rows], now - asks.idle_since[rows], HORIZON_S)
    saved = asks.guarantee[waiter] * asks.count[waiter] * wait_s + float((share * back_p * cost[rows] / 2.0).sum())
    return bool(saved > float((share * cost[rows]).sum()))
