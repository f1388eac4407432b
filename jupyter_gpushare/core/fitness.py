"""How well devices suit a session: one number with named terms (design section 4.1)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .fragmentation import gradient, unmet_by
from .policy import Policy
from .room import Room, need_of
from .state import BURSTY, LONG, SHORT, Bools, Floats, Ints, State

TERMS = ("compute", "data", "fragmentation", "locality", "thermal", "energy", "stability")
COMPUTE, DATA, FRAGMENTATION, LOCALITY, THERMAL, ENERGY, STABILITY = range(len(TERMS))

TYPICAL_RUN_S = {SHORT: 60.0, BURSTY: 600.0, LONG: 14400.0}  # the expected run where a demand names none
PACK = {SHORT: 2.0, BURSTY: 0.5, LONG: 0.5}  # short sessions share devices, so that whole ones stay free
STEADY = {SHORT: 0.0, BURSTY: 0.1, LONG: 0.5}  # long sessions prefer devices whose load does not swing
WARM_C = 15.0  # a device is steered away from over this distance to its slowdown temperature
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


def fitness(state: State, room: Room, session: int, devices: Ints, policy: Policy) -> Fitness:
    """The fitness of each of these devices for the session. An unknown metric is neutral, never best."""
    have, asks = state.devices, state.sessions
    transfer = _transfer_factor(state, session, devices)
    load = np.clip(np.maximum(have.utilization[devices], DUTY * room.expected[devices]), 0.0, 1.0)
    total_memory = have.memory_total[devices]
    promised = (room.memory[devices] + total_memory - room.capacity[devices]) / total_memory
    occupied = np.clip(np.fmax(have.memory_used[devices] / total_memory, promised), 0.0, 1.0)
    delivered = have.tflops[devices] * have.clock_fraction[devices]
    headroom = have.temperature_limit_c[devices] - have.temperature_c[devices]
    watts = (have.power_limit_w[devices] - have.power_idle_w[devices]) / np.where(delivered > 0, delivered, np.nan)

    values = np.empty((len(TERMS), devices.size))
    values[COMPUTE] = _neutral(_by_best(delivered * (1.0 - load)))
    values[DATA] = _neutral(_by_best(have.bandwidth_gb_s[devices] * (1.0 - occupied) * transfer))
    values[FRAGMENTATION] = -gradient(
        1.0 - room.expected[devices],
        1.0 - occupied,
        float(asks.guarantee[session]),
        need_of(state, session, room.capacity[devices]) / total_memory,
        unmet_by(asks.guarantee),
    )
    values[LOCALITY] = _locality(state, session, devices)
    values[THERMAL] = _neutral(-np.clip(1.0 - headroom / WARM_C, 0.0, 1.0))
    values[ENERGY] = _neutral(-_by_best(watts))
    values[STABILITY] = _neutral(-np.clip(2.0 * have.utilization_sd[devices], 0.0, 1.0))

    weights = _weights(state, session, policy)
    return Fitness(devices=devices, values=values, weights=weights, total=weights @ values)


def _weights(state: State, session: int, policy: Policy) -> Floats:
    """(7,) how much each term counts for this session."""
    horizon = int(state.sessions.horizon[session])
    compute_p = float(np.nan_to_num(state.sessions.compute_p[session], nan=0.5))
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


def _transfer_factor(state: State, session: int, devices: Ints) -> Floats:
    """(C,) T / (T + H): how much of the expected run T is left for work after bringing the data in H seconds."""
    near = state.sessions.near[session]
    if near < 0:
        return np.ones(devices.size)
    run = state.sessions.duration_s[session]
    if np.isnan(run):
        run = TYPICAL_RUN_S[int(state.sessions.horizon[session])]
    return np.asarray(run / (run + state.transfer_s[near][state.devices.server[devices]]))


def _locality(state: State, session: int, devices: Ints) -> Floats:
    """(C,) 1 where what it depends on lies already, else 0; all 0 when it depends on nothing."""
    near = state.sessions.near[session]
    if near < 0:
        return np.zeros(devices.size)
    return np.asarray(state.transfer_s[near][state.devices.server[devices]] == 0.0, dtype=np.float64)


def _by_best(values: Floats) -> Floats:
    """The values as fractions of the largest known one."""
    best = np.fmax.reduce(values, initial=0.0)
    return values / best if best > 0 else values


def _neutral(values: Floats) -> Floats:
    """Unknown ones become the middle of the known ones, a hair below so that they never win by it."""
    unknown: Bools = np.isnan(values)
    if not unknown.any():
        return values
    middle = 0.0 if unknown.all() else float(np.median(values[~unknown]))
    return np.where(unknown, middle - 0.01, values)
