"""Away from devices that are draining or failing: what has nothing there is placed anew, what is idle moves."""

from __future__ import annotations

import numpy as np

from ..model import Move
from .admit import fits
from .choose import choose, place
from .draft import FREE, Draft
from .fitness import fitness
from .policy import Policy
from .room import reachable
from .state import BOUND, IDLE, Bools, Ints


def evacuate(draft: Draft, now: float, policy: Policy) -> Draft:
    """Re-places sessions without a context, and moves idle ones that can be parked, where another device takes them."""
    asks = draft.state.sessions
    there = (draft.session != FREE) & draft.state.devices.leaving[draft.device]
    for session in np.unique(draft.session[there]).tolist():
        if draft.bursting[session] or draft.parked[session] or not np.isin(asks.state[session], (BOUND, IDLE)):
            continue
        if not asks.context[session]:
            if asks.cooperative[session]:  # its mask can be rewritten
                _place_anew(draft, session, policy)
        elif _movable(draft, session, now):
            _move(draft, session, policy)
    return draft


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


def _movable(draft: Draft, session: int, now: float) -> bool:
    """It is idle for certain, nobody keeps it, and its devices can be parked from."""
    asks, have, devices = draft.state.sessions, draft.state.devices, draft.devices(session)
    return bool(
        asks.idle_since[session] <= now
        and not asks.gated[session]
        and asks.pinned_until[session] <= now
        and not asks.unparkable[session]
        and (have.can_park[devices] & have.fresh[devices]).all()
    )


def _move(draft: Draft, session: int, policy: Policy) -> None:
    """To devices of the same kind on its server, where its guarantee and its memory fit beside what is there."""
    state, own = draft.state, draft.devices(session)
    devices: Ints = reachable(state, session)
    alike = np.isin(state.devices.server[devices], state.devices.server[own])
    devices = devices[alike & np.isin(state.devices.model[devices], state.devices.model[own])]
    ready, _ = fits(draft, session, devices)
    scored = fitness(draft, session, devices, policy)
    chosen = choose(state, session, devices, np.where(ready, scored.total, -np.inf))
    if chosen is None:
        return
    new = devices[chosen]
    draft.lift(session)
    draft.device[draft.rows(session)] = new
    draft.settle(session)
    moves = dict(zip(draft.uuids(own), draft.uuids(new), strict=True))
    draft.decisions.append(Move(session=state.sessions.id[session], why="leaving", devices=moves))
