"""What is taken back first, and how long it must have been idle before."""

from __future__ import annotations

import numpy as np

from .policy import Policy
from .state import Floats, Ints, Sessions

EARLY = 0.25  # of the break-even time: when a session's own gaps make the wait pointless
SEEN = 3  # gaps beyond the break-even that such a judgement needs
HORIZON_S = 300.0  # how far ahead a victim's return is weighed


def park_cost_s(memory: Floats, link_gb_s: Floats) -> Floats:
    """Seconds to move these bytes to host memory and back; NaN where either is unknown."""
    return 2.0 * memory / (link_gb_s * 1e9)


def due_in(sessions: Sessions, rows: Ints, park_cost_s: Floats, now: float, policy: Policy) -> Floats:
    """Seconds until each session may be taken; at or below 0: now, inf: not at all as things are.

    Parameters
    ----------
    rows : (R,) idle holders
    park_cost_s : (R,) seconds to park and to resume it (`park_cost_s`), 0 for one that has nothing on its device

    Returns
    -------
    (R,) never before a pin or a long session's protection ends, and inf for a session that bursts, whose cell waits
    at the gate, whose idle time or cost is unknown (rule 1), or under `reclaim = "never"`. Whether it can be
    parked at all is the caller's to know.

    Notes
    -----
    An admin's `idle_after_s` is the idle time that is waited for. Without one it is ski rental (Karlin et al.,
    Competitive snoopy caching, 1988): idling costs a second per second, taking costs b = `park_cost_s` once;
    waiting b before taking never costs more than twice the best choice in hindsight. A session is taken already at
    `EARLY` b when, among its own gaps, `SEEN` outlasted b, none ended between `EARLY` b and b, and those that ended
    sooner sum to at least (1 - `EARLY`) b. The last condition keeps the factor of two over every sequence of gaps:
    a gap sooner than `EARLY` b costs what hindsight pays, half of what the bound allows; a mistaken early taking
    exceeds the bound by at most (1 - `EARLY`) b, which those gaps have saved up, and its own gap, which lies between
    the two times, rules the next one out until they have left the memory together.
    """
    idle = now - sessions.idle_since[rows]
    if policy.reclaim == "never":
        return np.full(rows.size, np.inf)
    if policy.idle_after_s is not None:
        due = policy.idle_after_s - idle + 0.0 * park_cost_s
    else:
        due = _break_even(sessions.gaps[rows], park_cost_s) - idle
    due = np.maximum(due, np.maximum(sessions.pinned_until[rows], sessions.protected_until[rows]) - now)
    busy = sessions.bursting[rows] | sessions.gated[rows]
    return np.where(busy | np.isnan(due), np.inf, due)


def return_p(gaps: Floats, idle_s: Floats, horizon_s: float) -> Floats:
    """(R,) probability that a session which has been idle for `idle_s` (R,) bursts again within `horizon_s`.

    Of its own gaps (R, G), NaN padded, that lasted longer than that, the part that ended in time; empirical survival
    with Laplace's rule of succession, so 1/2 where no gap tells.
    """
    lasted = gaps > idle_s[:, None]
    ended = lasted & (gaps <= idle_s[:, None] + horizon_s)
    probability: Floats = (ended.sum(axis=1) + 1.0) / (lasted.sum(axis=1) + 2.0)
    return probability


def victims(sessions: Sessions, rows: Ints, park_cost_s: Floats, now: float) -> Ints:
    """The rows that can be taken at all, best to take first.

    1. highest expected value: seconds of its device that are won over the next `HORIZON_S` if it stays away, less the
       cost of parking and, if it returns, of resuming;
    2. idle for longest;
    3. session id.

    A row whose idle time or cost is unknown is not among them.
    """
    idle = now - sessions.idle_since[rows]
    known = ~np.isnan(idle) & ~np.isnan(park_cost_s)
    rows, idle, cost = rows[known], idle[known], park_cost_s[known]
    back = return_p(sessions.gaps[rows], idle, HORIZON_S)
    value = (1.0 - back) * HORIZON_S - (1.0 + back) * cost / 2.0
    ids = np.array([sessions.id[row] for row in rows], dtype=str)
    return rows[np.lexsort((ids, -idle, -value))]


def _break_even(gaps: Floats, cost: Floats) -> Floats:
    """(R,) idle seconds to wait for before taking; see `due_in`."""
    b, early = cost[:, None], EARLY * cost[:, None]
    ended_soon = np.where(gaps < early, gaps, 0.0).sum(axis=1)
    ended_between = ((gaps >= early) & (gaps < b)).any(axis=1)
    surely = ((gaps >= b).sum(axis=1) >= SEEN) & ~ended_between & (ended_soon >= (1.0 - EARLY) * cost)
    return np.where(surely, EARLY * cost, cost)
