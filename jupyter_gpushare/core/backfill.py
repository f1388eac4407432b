"""Who may use what is kept for the first in line, because it will be over before that one can start.

EASY backfill (Lifka, The ANL/IBM SP Scheduling System, 1995) with estimates instead of users' limits: a reservation
starts when those who compute there have likely ended, taken early; who comes behind it must likely be gone by then,
taken late. So a wrong estimate seldom keeps the first in line waiting, and never for longer than one of theirs.
"""

from __future__ import annotations

import numpy as np

from . import reclaim
from .draft import Draft
from .policy import Policy
from .remaining import left_s, typical
from .room import EPS, need_of
from .state import Bools, Floats, Ints

SOONEST = 0.25  # quantile at which those who compute are taken to end
SEEN = 3  # bursts of its own that tell how long a session's cells take
LATEST = 0.9  # quantile at which who comes behind is taken to end


def starts_in_s(draft: Draft, waiter: int, devices: Ints, now: float, policy: Policy) -> float:
    """Seconds until the waiter may have these devices, less the notice that who is then idle there has to be given.

    Whoever is idle counts as gone, unless it is pinned or protected until later.
    """
    asks = draft.state.sessions
    rows = np.flatnonzero(draft.lease & ~draft.borrowed & np.isin(draft.device, devices))
    kept_s = np.maximum(np.maximum(asks.pinned_until, asks.protected_until)[draft.session[rows]] - now, 0.0)
    computing = draft.bursting[draft.session[rows]]
    ends = np.where(computing, np.maximum(kept_s, _lasts_s(draft, draft.session[rows], now, SOONEST)), kept_s)
    starts = [_starts_s(draft, waiter, device, ends[draft.device[rows] == device], rows) for device in devices.tolist()]
    return max(max(starts) - policy.warn_before_s, 0.0)


def ends_in_time(draft: Draft, session: int, devices: Ints) -> Bools:
    """(C,) whether the session would likely be off each of these devices again before it is needed there.

    It must be known how long it takes: its owner said so, or it is a cell of a session that was seen to compute SEEN
    times. And it must be possible to park it from there; its memory is brought to the host in that time, too.
    """
    asks, have, kept_s = draft.state.sessions, draft.state.devices, draft.ahead_in[devices]
    computes = asks.gated[session] or asks.bursting[session]
    seen = asks.ran.size > 0 and np.isfinite(asks.ran[session]).sum() >= SEEN
    if not kept_s.any() or asks.unparkable[session] or not (asks.duration_s[session] > 0 or (computes and seen)):
        return np.zeros(devices.size, np.bool_)
    if session not in draft.lasts:  # all who wait at once: most of the time goes into each call
        waiting = np.union1d(np.flatnonzero(~np.isnan(asks.waiting_since)), [session])
        draft.lasts.update(zip(waiting.tolist(), _lasts_s(draft, waiting, np.nan, LATEST).tolist(), strict=True))
    moving_s = reclaim.park_cost_s(need_of(draft.state, session, draft.room.capacity[devices]), have.link_gb_s[devices])
    result: Bools = have.can_park[devices] & (draft.lasts[session] + moving_s <= kept_s)
    return result


def _lasts_s(draft: Draft, sessions: Ints, now: float, quantile: float) -> Floats:
    """(R,) seconds within which their bursts are over with this probability; those not begun, from their start."""
    asks = draft.state.sessions
    if draft.others is None:
        draft.others = typical(asks.ran)
    own = asks.ran[sessions] if asks.ran.size else np.zeros((sessions.size, 0))
    since = asks.burst_since[sessions] if asks.burst_since.size else np.full(sessions.size, np.nan)
    elapsed = np.maximum(np.nan_to_num(now - since), 0.0)
    return left_s(own, asks.duration_s[sessions], elapsed, draft.others, quantile)


def _starts_s(draft: Draft, waiter: int, device: int, ends: Floats, rows: Ints) -> float:
    """When so many of a device's leases have ended that the waiter's guarantee fits; 0 where it fits now."""
    asks = draft.state.sessions
    here = rows[draft.device[rows] == device]
    over = draft.room.committed[device] + asks.guarantee[waiter] - 1.0
    for at in np.argsort(ends, kind="stable").tolist():
        if over <= EPS:
            return 0.0
        over -= asks.guarantee[draft.session[here[at]]]
        if over <= EPS:
            return float(ends[at])
    return 0.0
