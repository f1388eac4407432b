"""What to do next: the stages of the one decision loop, and the reasons behind a placement."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..model import Alternative, Decision, Term
from .admit import admit, fits, likelihood
from .choose import choose, reasons
from .draft import Draft, draft_of, glance_at
from .evacuate import evacuate
from .fitness import Fitness, fitness
from .ladder import take_back
from .lend import lend
from .make_room import make_room
from .objectives import in_force
from .policy import Policy
from .state import Floats, Ints, State
from .widen import widen

Stage = Callable[[Draft, float, Policy], Draft]

STAGES: tuple[Stage, ...] = (admit, widen, evacuate, make_room, take_back, lend)


def decide(state: State, now: float, policy: Policy) -> list[Decision]:
    """What to do next. Same state, time and policy give the same decisions.

    Each stage sees what the stages before it decided. What a decision frees is granted by the next call, when it is
    known to be free; so ask again after carrying out a list that was not empty.
    """
    policy = in_force(policy, state, now)
    draft = draft_of(state)
    for stage in STAGES:
        draft = stage(draft, now, policy)
    return draft.decisions


def placement(state: State, session: int, policy: Policy) -> tuple[Floats, tuple[Term, ...], tuple[Alternative, ...]]:
    """How well each device suits a session, and why it is, or would be, where it is.

    Returns
    -------
    fitness : (D,) NaN where it may not go
    terms : of the devices it is placed on, else of the best ones; empty where there are none
    alternatives : the best others, each with the term that decided against it
    """
    scored, _, terms, alternatives = _looked_at(state, session, policy)
    everywhere = np.full(len(state.devices.uuid), np.nan)
    everywhere[scored.devices] = scored.total
    return everywhere, terms, alternatives


def best(
    state: State, session: int, policy: Policy
) -> tuple[tuple[str, ...], tuple[Term, ...], tuple[Alternative, ...]]:
    """The devices (uuids) that suit an unplaced session best, whether or not there is room yet, and why.

    All empty where there are not as many as it asks for on any server.
    """
    scored, chosen, terms, alternatives = _looked_at(state, session, policy)
    return tuple(state.devices.uuid[row] for row in scored.devices[chosen].tolist()), terms, alternatives


def _looked_at(
    state: State, session: int, policy: Policy
) -> tuple[Fitness, Ints, tuple[Term, ...], tuple[Alternative, ...]]:
    """The fitness of all devices it may have, which of them (indices) it has or had best have, and why."""
    draft = glance_at(state)
    own = draft.devices(session)
    may = state.allowed[state.sessions.allowed[session]] & state.devices.offered
    may[own] = True
    devices = np.flatnonzero(may)
    draft.lift(session)
    scored = fitness(draft, session, devices, policy)
    beside, lent = fits(draft, session, devices)
    chosen = np.flatnonzero(np.isin(devices, own))
    if chosen.size == 0:
        found = choose(state, session, devices, scored.total + likelihood(draft, session, devices, beside, lent))
        chosen = chosen if found is None else found
    if chosen.size == 0:
        return scored, chosen, (), ()
    return scored, chosen, *reasons(draft, session, scored, chosen, beside | lent)
