"""Who is next: time-decayed usage against weight, and waiting that ages."""

from __future__ import annotations

import math

import numpy as np

from .policy import Policy
from .state import Bools, Devices, Floats, Ints, Sessions, Users

K = 1.0  # how strongly past usage corrects the present, before `weights.fairness`
AGEING_S = 1800.0  # waiting this much longer than another outweighs any difference in priority


def decay(usage: Floats, dt_s: float, half_life_s: float) -> Floats:
    """(U,) usage after `dt_s` more seconds: halved every `half_life_s`. A step below 0 counts as 0."""
    kept: float = 0.5 ** (max(dt_s, 0.0) / half_life_s)
    return usage * kept


def worth(devices: Devices) -> Floats:
    """(D,) what a second of each device counts: its TFLOP/s and bandwidth over the cluster's mean, half each.

    A term that is unknown is left out; a device of which nothing is known counts 1.
    """
    terms = np.array([_relative(devices.tflops), _relative(devices.bandwidth_gb_s)])
    known = ~np.isnan(terms)
    return np.where(known.any(axis=0), np.where(known, terms, 0.0).sum(axis=0) / np.maximum(known.sum(axis=0), 1), 1.0)


def charge(usage: Floats, user: Ints, share: Floats, worth: Floats, contended: Bools, dt_s: float) -> Floats:
    """(U,) usage after a stretch of `dt_s` seconds in which nothing changed.

    Parameters
    ----------
    usage : (U,) device-seconds of mean worth, already decayed over the stretch
    user : (P,) rows of who holds each placement
    share : (P,) fraction of the device held; an idle holder's too, it kept others out
    worth : (P,) of its device (`worth`)
    contended : (P,) somebody waited for what it held; only that is charged: a free device costs nobody anything
    """
    held = np.where(contended, share * worth, 0.0) * max(dt_s, 0.0)
    return np.asarray(usage + np.bincount(user, held, usage.size), np.float64)


def priority(users: Users, capacity: float, policy: Policy) -> Floats:
    """(U,) `max(W' + k (W' - U'), 0)`: whose turn it is, by weight and corrected by what they had.

    Parameters
    ----------
    capacity : devices of mean worth in the cluster

    Notes
    -----
    W' is the weight as a part of all weights, U' the usage as a part of what the whole cluster can amount to: used
    without pause, decayed usage tends to capacity x half life / ln 2. k is `K` times `weights.fairness`. The formula
    is that of time-based fair share in NVIDIA Run:ai and its open KAI scheduler. Not below 0; at 0 ageing decides.
    """
    if users.weight.size == 0:
        return np.zeros(0)
    weight = users.weight / users.weight.sum()
    most = capacity * policy.half_life_s / math.log(2)
    usage = users.usage / most if most > 0 else np.zeros(users.usage.size)
    due: Floats = np.maximum(weight + K * policy.weights.fairness * (weight - usage), 0.0)
    return due


def order(sessions: Sessions, users: Users, priority: Floats, now: float, policy: Policy) -> Ints:
    """Rows of the waiting sessions, next first.

    By priority of the user relative to the highest (0..1) plus time waited over `AGEING_S`, then by session id. So
    within one user the first to come is the first served, and nobody starves: a session is never behind one that came
    `AGEING_S` after it, whatever their priorities.
    """
    rows = np.flatnonzero(~np.isnan(sessions.waiting_since))
    top = priority.max(initial=0.0)
    standing = priority / top if top > 0 else priority
    waited = np.maximum(now - sessions.waiting_since[rows], 0.0)
    score = standing[sessions.user[rows]] + waited / AGEING_S
    ids = np.array([sessions.id[row] for row in rows], dtype=str)
    return rows[np.lexsort((ids, -score))]


def _relative(value: Floats) -> Floats:
    """Each value over the mean of the known ones; NaN where unknown or where all are."""
    known = value[~np.isnan(value)]
    return value / known.mean() if known.size and known.mean() > 0 else np.full(value.size, np.nan)
