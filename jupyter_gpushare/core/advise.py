"""Which model of device each session that waits for whole devices should take: where together they lose least.

Looked at one by one, all would take the fastest. The plan of rounds.py knows who can do without it.
"""

from __future__ import annotations

import numpy as np

from . import rounds
from .draft import Draft
from .policy import Policy
from .room import sum_at
from .state import Bools, Floats, Ints, State

AT_ONCE = 64  # sessions that are looked at together
ADVICE = 2.0  # what a device of the advised model is worth more, on the scale of fitness: it decides


def advised(draft: Draft, waiting: Bools, now: float, policy: Policy) -> dict[int, int]:
    """Session -> row of `State.models`, for those of `waiting` (S,), who ask for whole devices and say for how long.

    Empty where fewer than two wait or free devices are of one model; nobody is advised whose speeds are not known.
    Only the AT_ONCE that have waited longest are looked at: there are hardly devices for more.
    """
    state, asks = draft.state, draft.state.sessions
    who = np.flatnonzero(waiting & ~draft.parked)
    who = np.sort(who[np.argsort(asks.waiting_since[who], kind="stable")][:AT_ONCE])
    free = _free(draft)
    if who.size < 2 or (free > 0).sum() < 2:
        return {}
    speed = relative_speed(state, who)
    who, speed = who[(speed > 0).any(axis=1)], speed[(speed > 0).any(axis=1)]
    age_s = np.nan_to_num(now - asks.waiting_since[who])
    left_s, gpus = asks.duration_s[who], asks.count[who]
    urgent = rounds.urgency(left_s, left_s, age_s, gpus, int(free.sum()), policy.weights)
    kind = rounds.plan(urgent, speed, gpus, free).kind
    return {int(session): int(model) for session, model in zip(who, kind, strict=True) if model != rounds.WAITS}


def relative_speed(state: State, sessions: Ints) -> Floats:
    """(N, M) speed of each session on each model relative to its best one; 0: not known, or it may not go there.

    Time is divided between FLOPS and memory traffic as its kind is, and each part takes as long as the device's TFLOP/s
    and GB/s say (the roofline of Williams et al., CACM 52(4), 2009, without overlap).
    """
    have, asks = state.devices, state.sessions
    tflops, bandwidth = _by_model(state, have.tflops), _by_model(state, have.bandwidth_gb_s)
    flops_p = np.nan_to_num(asks.compute_p[sessions], nan=0.5)[:, None]
    time = (
        flops_p * np.nanmax(tflops, initial=0.0) / tflops
        + (1.0 - flops_p) * np.nanmax(bandwidth, initial=0.0) / bandwidth
    )
    models = np.zeros((len(state.models), len(have.uuid)))
    models[have.model, np.arange(len(have.uuid))] = 1.0
    may = state.allowed[asks.allowed[sessions]].astype(np.float64) @ models.T > 0
    speed: Floats = np.where(may & np.isfinite(time), 1.0 / time, 0.0)
    best = speed.max(axis=1, keepdims=True)
    relative: Floats = np.divide(speed, best, out=np.zeros_like(speed), where=best > 0)
    return relative


def _free(draft: Draft) -> Ints:
    """(M,) devices of each model on which nobody is and which may be taken."""
    have, room = draft.state.devices, draft.room
    empty = have.offered & ~have.blocked & (room.holders < 0.5) & (room.committed + draft.ahead < 0.5)
    return np.bincount(have.model[empty], minlength=len(draft.state.models))


def _by_model(state: State, values: Floats) -> Floats:
    """(M,) mean over the devices of each model whose value is known, NaN where none is."""
    known = ~np.isnan(values)
    count = np.bincount(state.devices.model[known], minlength=len(state.models))
    total = sum_at(state.devices.model[known], values[known], len(state.models))
    mean: Floats = np.divide(total, count, out=np.full(count.size, np.nan), where=count > 0)
    return mean
