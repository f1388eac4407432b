"""Who can be moved to another device, where to, what it costs, and what it gains.

A move parks a session on one device and restores it on another of the same kind and server, so nothing is lost and
nothing is taken: its lease goes along. It costs the transfer of its memory to the host and back, during which its
cells wait. It is made only when what it gains exceeds that.
"""

from __future__ import annotations

import numpy as np

from ..model import Move
from . import reclaim
from .admit import fits
from .choose import choose
from .draft import FREE, Draft
from .fitness import expected_run_s, fitness
from .policy import Policy
from .room import reachable, sum_at
from .state import IDLE, PARKING, RESUMING, Bools, Floats, Ints, State
from .terms import warmth

SLOWDOWN = 0.3  # of its clocks that a device at its slowdown temperature is expected to lose (NVML: up to a half)


def movable(draft: Draft, now: float) -> Bools:
    """(S,) idle for certain, with memory on devices that can be parked from; nobody keeps it, nobody awaits it.

    Never who is pinned or protected, whose cell waits, or of whom or whose devices anything needed was not read.
    """
    asks, have = draft.state.sessions, draft.state.devices
    rows = np.flatnonzero(draft.session != FREE)
    owner, device = draft.session[rows], draft.device[rows]
    here = np.zeros(len(asks.id), np.bool_)
    here[owner] = True
    here[owner[~(have.can_park[device] & have.fresh[device])]] = False
    idle = (asks.state == IDLE) & (asks.idle_since <= now) & ~asks.gated & ~draft.bursting & ~draft.parked
    kept = (asks.pinned_until > now) | (asks.protected_until > now) | asks.unparkable
    moved = np.zeros(len(asks.id), np.bool_)
    moved[draft.moved] = True
    result: Bools = here & idle & asks.context & ~kept & ~moved
    return result


def cost_s(draft: Draft) -> Floats:
    """(S,) seconds to park each session and to restore it: bytes to the host and back over its link; NaN unknown."""
    rows = np.flatnonzero(draft.session != FREE)
    owner, device = draft.session[rows], draft.device[rows]
    each = reclaim.park_cost_s(draft.memory_used[rows], draft.state.devices.link_gb_s[device])
    return sum_at(owner, each, len(draft.state.sessions.id))


def speed(state: State) -> Floats:
    """(D,) part of its clocks each device will deliver: ``clocks x (1 - SLOWDOWN x warmth)`` (`terms.warmth`).

    NaN where clocks or temperature were not read.
    """
    have = state.devices
    warm = warmth(have.temperature_limit_c - have.temperature_c)
    return np.asarray(have.clock_fraction * (1.0 - SLOWDOWN * warm))


def saves_s(state: State, sessions: Ints, back_p: Floats, here: Floats, there: Floats) -> Floats:
    """(R,) seconds saved on the work that is expected: ``P(computes again) x run x compute part x (1 - here / there)``.

    At most the expected run; below 0 where the other device is slower. Work bound by memory does not feel the clocks.
    """
    compute_p = np.nan_to_num(state.sessions.compute_p[sessions], nan=0.5)
    return np.asarray(back_p * expected_run_s(state, sessions) * compute_p * (1.0 - here / there))


def elsewhere(draft: Draft, session: int, policy: Policy, without: Ints) -> Ints | None:
    """Rows of the devices that suit a lifted session best, of the same kind and server, with room for its guarantee
    and memory beside what is there, none of them in `without`; as many as it has. None: there are not enough."""
    state, own = draft.state, draft.devices(session)
    devices = reachable(state, session)
    alike = np.isin(state.devices.server[devices], state.devices.server[own])
    alike &= np.isin(state.devices.model[devices], state.devices.model[own]) & ~np.isin(devices, without)
    devices = devices[alike & state.devices.can_park[devices]]
    ready, _ = fits(draft, session, devices)
    if ready.sum() < own.size:
        return None
    scored = fitness(draft, session, devices, policy)
    chosen = choose(state, session, devices, np.where(ready, scored.total, -np.inf))
    return None if chosen is None else devices[chosen]


def relocate(draft: Draft, session: int, new: Ints) -> dict[str, str]:
    """Puts a lifted session on other devices in the draft, and settles it. Old uuid -> new uuid."""
    rows = draft.rows(session)
    old = draft.device[rows].copy()
    draft.device[rows] = new
    draft.settle(session)
    return dict(zip(draft.uuids(old), draft.uuids(new), strict=True))


def move(draft: Draft, session: int, new: Ints, why: str) -> None:
    """Decides the move of a lifted session."""
    devices = relocate(draft, session, new)
    draft.moved.append(session)
    draft.decisions.append(Move(session=draft.state.sessions.id[session], why=why, devices=devices))


def servers_with_moves(draft: Draft) -> set[int]:
    """Rows of the servers over whose links memory is moving, or will."""
    asks = draft.state.sessions
    going = (draft.session != FREE) & (
        np.isin(asks.state[draft.session], (PARKING, RESUMING)) | np.isin(draft.session, draft.moved)
    )
    return set(draft.state.devices.server[draft.device[going]].tolist())
