"""Elastic targets: how much of its device a session may use for now, and the smoothing of what it does use."""

from __future__ import annotations

import numpy as np

from .policy import Policy
from .state import Bools, Floats, Placements, Sessions


def smooth(value: Floats, sample: Floats, dt_s: Floats | float, window_s: float) -> Floats:
    """An exponentially weighted mean after one more sample, for steps of any length.

    Parameters
    ----------
    value : mean so far, NaN where nothing was known
    sample : what was read, NaN where it could not be
    dt_s : seconds since the last sample; below 0 counts as 0
    window_s : > 0, time constant: after it an old value weighs 1/e

    Returns
    -------
    The new mean; an unknown sample changes nothing, a first sample is the mean.

    Notes
    -----
    `value + (1 - exp(-dt/window)) (sample - value)`: two steps with the same sample equal one step of their sum
    (Eckner, Algorithms for Unevenly Spaced Time Series, 2019).
    """
    part = -np.expm1(-np.maximum(dt_s, 0.0) / window_s)
    mean = value + part * (sample - value)
    return np.where(np.isnan(sample), value, np.where(np.isnan(value), sample, mean))


def targets(
    placements: Placements, sessions: Sessions, bursting: Bools, contended: Bools, now: float, policy: Policy
) -> Floats:
    """(P,) the elastic ceiling of each placement, between its session's guarantee and limit.

    A session that bursts (`bursting`, (S,)), and has stood at its target for `window_s` and

    - uses at least `expand_above` of its share gets twice the target, up to its limit;
    - uses less than `shrink_below` of its share while somebody waits for that device (`contended`, (P,)) gets half
      of it, down to its guarantee.

    Anything else keeps its target, so nothing flaps: use between the two thresholds is hysteresis, the window is the
    least hold. Unknown use changes nothing; without a target yet it is the guarantee, the small share of the probe.
    A borrowed lease keeps the same bounds: a target is a ceiling, no promise.
    """
    guarantee, limit = sessions.guarantee[placements.session], sessions.limit[placements.session]
    target = np.clip(np.where(np.isnan(placements.target), guarantee, placements.target), guarantee, limit)
    steady = (
        placements.lease
        & bursting[placements.session]
        & (placements.share > 0)
        & (now - placements.share_since >= policy.window_s)
    )
    expand = steady & (placements.use >= policy.expand_above * placements.share)
    shrink = steady & contended & (placements.use < policy.shrink_below * placements.share)
    less = np.where(shrink, np.maximum(target / 2, guarantee), target)
    return np.where(expand, np.minimum(2 * target, limit), less)
