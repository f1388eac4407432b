"""How well devices suit a session: one number with named terms (design section 4.1)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from . import terms
from .draft import Draft
from .fragmentation import gradient
from .packing import displaced, keeps, watts
from .policy import Policy
from .room import need_of, view_of, where_known
from .state import BURSTY, LONG, SHORT, Floats, Ints, State

TERMS = ("compute", "data", "fragmentation", "locality", "thermal", "energy", "stability")
COMPUTE, DATA, FRAGMENTATION, LOCALITY, THERMAL, ENERGY, STABILITY = range(len(TERMS))

TYPICAL_RUN_S = np.array([60.0, 14400.0, 600.0])  # by horizon (short, long, bursty), where a demand names none
PACK = {SHORT: 2.0, BURSTY: 0.5, LONG: 0.5}  # short sessions share devices, so that whole ones stay free
STEADY = {SHORT: 0.0, BURSTY: 0.1, LONG: 0.5}  # long sessions prefer devices whose load does not swing
DUTY = 0.5  # how much of the time a placed session is expected to compute


@dataclass(frozen=True, slots=True, eq=False)
class Fitness:
    """Scores of one session on some devices.

    Attributes
    ----------
    devices : (C,) rows
    values : (7, C) the terms in the order of TERMS: compute, data, locality 0..1, the others at most 0 (costs),
        fragmentation positive where a placement mends more than it breaks
    weights : (7,)
    total : (C,) weights @ values
    """

    devices: Ints
    values: Floats
    weights: Floats
    total: Floats


def fitness(draft: Draft, session: int, devices: Ints, policy: Policy) -> Fitness:
    """The fitness of each of these devices (rows, ascending) for a lifted session; an unknown metric is never best."""
    state, room, outlook = draft.state, draft.room, draft.outlook
    have, guarantee = state.devices, float(state.sessions.guarantee[session])
    at = view_of(state, devices)
    transfer_s = _transfer_s(state, session, devices)
    expected, capacity, total_memory = room.expected[at], room.capacity[at], have.memory_total[at]
    idle = np.maximum(1.0 - np.maximum(have.utilization[at], DUTY * expected), 0.0)
    promised = 1.0 + (room.memory[at] - capacity) / total_memory
    free_memory = np.maximum(1.0 - np.fmax(outlook.occupied[at], promised), 0.0)

    values = np.empty((len(TERMS), devices.size))
    values[COMPUTE] = terms.compute(outlook.delivered[at], idle)
    values[DATA] = terms.data(have.bandwidth_gb_s[at], free_memory, _kept(state, session, transfer_s))
    keeping = keeps(state, session, policy)
    if keeping:
        values[FRAGMENTATION] = -displaced(draft, session, devices)
    else:
        need = need_of(state, session, capacity) / total_memory
        values[FRAGMENTATION] = -gradient(1.0 - expected, free_memory, guarantee, need, outlook.unmet)
    values[LOCALITY] = terms.locality(transfer_s)
    values[THERMAL] = outlook.thermal[at]
    if keeping:
        values[ENERGY] = watts(draft, session, devices)
    else:
        for_compute, for_data = outlook.energy
        values[ENERGY] = terms.energy(_compute_p(state, session), for_compute[at], for_data[at])
    values[STABILITY] = outlook.stability[at]

    weights = _weights(state, session, policy)
    return Fitness(devices=devices, values=values, weights=weights, total=weights @ values)


def _weights(state: State, session: int, policy: Policy) -> Floats:
    """(7,) how much each term counts for this session."""
    horizon = int(state.sessions.horizon[session])
    compute_p = _compute_p(state, session)
    objective = policy.weights
    weights = np.zeros(len(TERMS))
    weights[COMPUTE] = objective.completion * compute_p
    weights[DATA] = objective.completion * (1.0 - compute_p)
    weights[FRAGMENTATION] = objective.utilization * PACK[horizon]
    weights[LOCALITY] = objective.completion * 0.25
    weights[THERMAL] = 0.5
    weights[ENERGY] = objective.energy
    weights[STABILITY] = STEADY[horizon]
    return weights


def _compute_p(state: State, session: int) -> float:
    """Probability that it is bound by FLOPS; one half while unknown."""
    return where_known(state.sessions.compute_p[session], 0.5)


def _transfer_s(state: State, session: int, devices: Ints) -> Floats | float:
    """(C,) seconds to bring what it depends on to each device, NaN unknown; inf: it depends on nothing."""
    near = state.sessions.near[session]
    return np.inf if near < 0 else state.transfer_s[near][state.devices.server[devices]]


def _kept(state: State, session: int, transfer_s: Floats | float) -> Floats | float:
    """(C,) what bringing its data leaves of its speed; 1 where it depends on nothing."""
    if state.sessions.near[session] < 0:
        return 1.0
    return terms.kept(float(expected_run_s(state, np.array([session]))[0]), np.asarray(transfer_s))


def expected_run_s(state: State, sessions: Ints) -> Floats:
    """(R,) how long each is expected to compute: what its demand names, else what is typical of its horizon."""
    named, asks = state.sessions.duration_s[sessions], state.sessions
    return np.where(np.isnan(named), TYPICAL_RUN_S[asks.horizon[sessions]], named)
