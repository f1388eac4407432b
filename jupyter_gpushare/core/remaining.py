"""How long a burst or a job will go on: from the session's own bursts, what its owner said, and what others do.

Each burst that was seen spreads its weight around its own length; together they say how likely a burst is to last
longer than some time, and given that it has lasted so long already, how much longer. With nothing of its own a session
is taken for a typical one; with nothing known of anybody, what has lasted long goes on for long.
"""

from __future__ import annotations

import numpy as np

from .state import Floats

OWN_SPREAD = 0.25  # of ln(seconds) around a burst of its own
TOLD_SPREAD = 0.25  # around what its owner said
TYPICAL_SPREAD = 0.2  # around a burst of others
WIDE_SPREAD = 1.2  # of what is assumed where nothing is known
WIDE_S = 60.0
TOLD, TYPICAL, WIDE = 8.0, 2.0, 0.2  # weights; a burst of its own counts 1
POINTS = 64  # that the bursts of others are summed up in
MOST = 4096  # of others' bursts that are looked at
LEAST_S, MOST_S = 1e-3, 1e9
STEPS = 24  # of the bisection: so many halvings of ln(1e12) leave 2e-6


def typical(ran_s: Floats) -> Floats:
    """(P,) seconds, ascending: the bursts of all sessions (any shape, NaN unknown) summed up; empty where none is."""
    known = ran_s[~np.isnan(ran_s)]
    known = np.sort(np.maximum(known[:: max(known.size // MOST, 1)], LEAST_S))
    if known.size <= POINTS:
        return known
    at = (np.arange(POINTS) + 0.5) / POINTS
    return np.asarray(np.exp(np.interp(at, (np.arange(known.size) + 0.5) / known.size, np.log(known))))


def ends_within(own_s: Floats, told_s: Floats, elapsed_s: Floats, others_s: Floats, horizon_s: Floats) -> Floats:
    """(R,) probability that each burst is over within so many seconds from now.

    Parameters
    ----------
    own_s : (R, G) how long its last bursts took, NaN padded
    told_s : (R,) how long it was said to take in all, NaN where nobody said
    elapsed_s : (R,) >= 0, since it began
    others_s : (P,) `typical`
    horizon_s : (R,) >= 0

    Notes
    -----
    ``1 - S(elapsed + horizon) / S(elapsed)`` with S the weighted mean of the log-logistic survival functions
    ``1 / (1 + (t / d)^(1 / spread))`` around all lengths d: a kernel estimate on the logarithm of time, whose widest
    part is heavy-tailed, so that what outlasts everything seen is expected to go on for as long again (Lindy's law).
    """
    lengths, spreads, weights = _mixture(own_s, told_s, others_s)
    before = _survival(elapsed_s, lengths, spreads, weights)
    after = _survival(elapsed_s + horizon_s, lengths, spreads, weights)
    ended: Floats = 1.0 - after / before
    return ended


def left_s(own_s: Floats, told_s: Floats, elapsed_s: Floats, others_s: Floats, quantile: float) -> Floats:
    """(R,) seconds within which each burst is over with this probability (0 < quantile < 1); see `ends_within`."""
    lengths, spreads, weights = _mixture(own_s, told_s, others_s)
    wanted = (1.0 - quantile) * _survival(elapsed_s, lengths, spreads, weights)
    low, high = np.full(elapsed_s.size, np.log(LEAST_S)), np.full(elapsed_s.size, np.log(MOST_S))
    for _ in range(STEPS):
        middle = (low + high) / 2.0
        longer = _survival(elapsed_s + np.exp(middle), lengths, spreads, weights) > wanted
        low, high = np.where(longer, middle, low), np.where(longer, high, middle)
    return np.asarray(np.exp((low + high) / 2.0))


def _mixture(own_s: Floats, told_s: Floats, others_s: Floats) -> tuple[Floats, Floats, Floats]:
    """(R, N) ln(seconds), (N,) spreads and (R, N) weights of all that is known of each."""
    rows, own = own_s.shape
    others = others_s.size
    points = np.concatenate(
        [own_s, told_s[:, None], np.broadcast_to(others_s, (rows, others)), np.full((rows, 1), WIDE_S)], axis=1
    )
    spreads = np.concatenate([np.full(own, OWN_SPREAD), [TOLD_SPREAD], np.full(others, TYPICAL_SPREAD), [WIDE_SPREAD]])
    weights = np.concatenate([np.ones(own), [TOLD], np.full(others, TYPICAL / max(others, 1)), [WIDE]])
    known = ~np.isnan(points)
    return np.log(np.where(known, np.maximum(points, LEAST_S), 1.0)), spreads, weights * known


def _survival(at_s: Floats, lengths: Floats, spreads: Floats, weights: Floats) -> Floats:
    """(R,) weighted sum over the mixture; not normalised, since only ratios count. Never 0."""
    distance = (np.log(np.maximum(at_s, LEAST_S))[:, None] - lengths) / spreads
    total: Floats = (weights / (1.0 + np.exp(np.minimum(distance, 700.0)))).sum(axis=1)
    return total
