"""Away from devices that are draining, failing or hot: what has nothing there is placed anew, what is idle moves."""

from __future__ import annotations

import numpy as np

from .admit import fits
from .choose import choose, place
from .draft import FREE, Draft
from .fitness import fitness
from .moves import cost_s, elsewhere, movable, move, saves_s, servers_with_moves, speed
from .policy import Policy
from .reclaim import HORIZON_S, return_p
from .room import reachable
from .state import BOUND, IDLE, Bools

COOL = 0.95  # a device that will deliver so much of its clocks takes in those that leave hotter ones
ATTEMPTS = 4  # sessions on hot devices that are looked at in a call


def evacuate(draft: Draft, now: float, policy: Policy) -> Draft:
    """Re-places sessions without a context, and moves idle ones that can be parked, where another device takes them.

    Leaving a device that is draining or failing is worth any cost: what stays there would be lost, or in the way.
    """
    asks = draft.state.sessions
    held = np.flatnonzero(draft.session != FREE)  # spare rows name no device, and there may be none
    leaving = held[draft.state.devices.leaving[draft.device[held]]]
    for session in np.unique(draft.session[leaving]).tolist():
        if draft.bursting[session] or draft.parked[session] or not np.isin(asks.state[session], (BOUND, IDLE)):
            continue
        if not asks.context[session]:
            if asks.cooperative[session]:  # its mask can be rewritten
                _place_anew(draft, session, policy)
        elif movable(draft, now)[session]:
            _leave(draft, session, policy)
    if policy.reclaim != "never":
        _relieve(draft, now, policy)
    return draft


def _leave(draft: Draft, session: int, policy: Policy) -> None:
    draft.lift(session)
    new = elsewhere(draft, session, policy, draft.devices(session))
    if new is None:
        draft.settle(session)
    else:
        move(draft, session, new, "leaving")


def _place_anew(draft: Draft, session: int, policy: Policy) -> None:
    """Binds it elsewhere; a lease goes along only to where its guarantee fits."""
    leased = bool(draft.lease[draft.rows(session)].any())
    devices = reachable(draft.state, session)
    draft.lift(session)
    own, lent = fits(draft, session, devices)
    scored = fitness(draft, session, devices, policy)
    ready: Bools = own if leased else own | lent
    order = scored.total + 10.0 * ready
    chosen = choose(draft.state, session, devices, np.where(own, order, -np.inf) if leased else order)
    if chosen is None:
        draft.settle(session)
    else:
        place(draft, session, scored, chosen, ready, why="leaving", lease=leased)


def _relieve(draft: Draft, now: float, policy: Policy) -> None:
    """Moves idle sessions off hot or throttled devices, one at a time on each server since they share its link.

    Only where the seconds that another device saves on the work still expected exceed those that the move takes
    (`moves.saves_s`, `moves.cost_s`); the ATTEMPTS that can save most are looked at.
    """
    state, asks, have = draft.state, draft.state.sessions, draft.state.devices
    pace = speed(state)
    hot, cool = pace < COOL, (pace >= COOL) & have.offered & have.can_park
    if not (hot.any() and cool.any()):
        return
    place = have.server * len(state.models) + have.model
    rows = np.flatnonzero((draft.session != FREE) & hot[draft.device] & np.isin(place, place[cool])[draft.device])
    may = movable(draft, now)
    rows = rows[may[draft.session[rows]]]
    sessions, first = np.unique(draft.session[rows], return_index=True)
    if sessions.size == 0:
        return
    here = np.full(len(asks.id), np.inf)
    np.minimum.at(here, draft.session[rows], pace[draft.device[rows]])
    back_p = return_p(asks.gaps[sessions], now - asks.idle_since[sessions], HORIZON_S)
    cost = cost_s(draft)[sessions]
    most = saves_s(state, sessions, back_p, here[sessions], np.ones(sessions.size)) - cost
    busy = servers_with_moves(draft)
    left = ATTEMPTS
    best = np.argsort(-most, kind="stable")[: 4 * ATTEMPTS]
    for index in sorted(best[most[best] > 0].tolist(), key=lambda index: (-most[index], asks.id[sessions[index]])):
        session, server = int(sessions[index]), int(have.server[draft.device[rows[first[index]]]])
        if left == 0:
            return
        if server in busy:
            continue
        left -= 1
        draft.lift(session)
        new = elsewhere(draft, session, policy, np.flatnonzero(~cool))
        at = slice(index, index + 1)
        if new is None or not (
            saves_s(state, sessions[at], back_p[at], here[sessions[at]], pace[new].min(keepdims=True)) > cost[at]
        ):
            draft.settle(session)
        else:
            move(draft, session, new, "hot")
            busy.add(server)
