"""Who is next: what users and their groups are due by weight and past usage, what they hold, and waiting that ages."""

from __future__ import annotations

import math

import numpy as np

from .policy import Policy
from .room import sum_at
from .state import Bools, Devices, Floats, Ints, Sessions, Users

# How strongly past usage corrects the present, before `weights.fairness`. Whoever divides by these dues takes 1 (KAI);
# an order goes by the highest alone, and on one device 1 would give twice the weight five times the time, 4 2.4 times.
K = 4.0
AGEING_S = 1800.0  # waiting this much longer than another outweighs any difference in priority


def decay(usage: Floats, dt_s: float | Floats, half_life_s: float) -> Floats:
    """(U,) usage after `dt_s` more seconds, each its own or all the same: halved every `half_life_s`.

    A step below 0 counts as 0.
    """
    kept: Floats = 0.5 ** (np.maximum(dt_s, 0.0) / half_life_s)
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


def priority(weight: Floats, usage: Floats, capacity: float, policy: Policy) -> Floats:
    """(N,) `max(W' + k (W' - U'), 0)`: what each is due, by weight and corrected by what they had.

    Parameters
    ----------
    weight, usage : (N,) of users who share a capacity, or of groups
    capacity : devices of mean worth that they share

    Notes
    -----
    W' is the weight as a part of all weights, U' the usage as a part of what the whole capacity can amount to: used
    without pause, decayed usage tends to capacity x half life / ln 2. k is `K` times `weights.fairness`. The formula
    is that of time-based fair share in NVIDIA Run:ai and its open KAI scheduler. Not below 0; at 0 ageing decides.
    """
    if weight.size == 0:
        return np.zeros(0)
    weight = weight / weight.sum()
    most = capacity * policy.half_life_s / math.log(2)
    usage = usage / most if most > 0 else np.zeros(usage.size)
    due: Floats = np.maximum(weight + K * policy.weights.fairness * (weight - usage), 0.0)
    return due


def order(sessions: Sessions, users: Users, held: Floats, capacity: float, now: float, policy: Policy) -> Ints:
    """Rows of the waiting sessions, next first.

    Parameters
    ----------
    held : (U,) devices that each user's leases take up now
    capacity : devices of mean worth in the cluster

    Notes
    -----
    Score = standing (0..1) plus time waited over `AGEING_S`, then by session id. So within one user the first to come
    is the first served, and nobody starves: a session is never behind one that came `AGEING_S` after it, whatever the
    standings. The standing is ``due / (held + asked ahead + 1 unit)`` over the highest, a unit being the mean of what
    is asked. Served in that order, holdings approach the dues: progressive filling of weighted max-min shares
    (Bertsekas and Gallager, Data Networks, 6.5.2). With several groups the standing is that of the group, whose usage
    and holdings are the sum of its members', and the members' own standings only say in which order its sessions count
    as asked: many members are due no more than one (as in Slurm's fair tree).
    """
    rows = np.flatnonzero(~np.isnan(sessions.waiting_since))
    user, asked = sessions.user[rows], sessions.guarantee[rows] * sessions.count[rows]
    unit = float(asked.mean()) if asked.any() else 1.0
    aged = np.maximum(now - sessions.waiting_since[rows], 0.0) / AGEING_S
    ids = np.array([sessions.id[row] for row in rows], dtype=str)
    group = users.group if users.group.size else np.zeros(users.weight.size, np.int64)
    groups = users.group_weight if users.group.size else np.ones(1)

    own = _due_within(users, group, groups, capacity, policy)
    standing = _standing(own, held, user, asked, unit, np.lexsort((ids, -aged, user)), group)
    if groups.size > 1:
        due = priority(groups, sum_at(group, users.usage, groups.size), capacity, policy)
        taken = sum_at(group, held, groups.size)
        line = np.lexsort((ids, -aged, -standing, group[user]))  # of each group by its members' standings
        standing = _standing(due, taken, group[user], asked, unit, line, np.zeros(groups.size, np.int64))
    return rows[np.lexsort((ids, -(standing + aged)))]


def _due_within(users: Users, group: Ints, groups: Floats, capacity: float, policy: Policy) -> Floats:
    """(U,) what each user is due of their group's part of the capacity."""
    part = groups / groups.sum()
    due = np.zeros(users.weight.size)
    for each in np.unique(group).tolist():
        members = group == each
        due[members] = priority(users.weight[members], users.usage[members], capacity * float(part[each]), policy)
    return due


def _standing(due: Floats, held: Floats, owner: Ints, asked: Floats, unit: float, line: Ints, among: Ints) -> Floats:
    """(R,) 0..1, each session's: its owner's due over what they hold, with their sessions ahead of it, and one unit.

    `line` sorts the sessions by owner and then as they are served; `among` (N,) the company in which the highest is 1.
    """
    before = np.zeros(owner.size)
    total = np.cumsum(asked[line]) - asked[line]
    first = np.searchsorted(owner[line], owner[line])
    before[line] = total - total[first]
    most = np.zeros(int(among.max(initial=0)) + 1)
    np.maximum.at(most, among, due / (held + unit))
    own = due[owner] / (held[owner] + before + unit)
    top = most[among[owner]]
    return np.divide(own, top, out=np.zeros(owner.size), where=top > 0)


def _relative(value: Floats) -> Floats:
    """Each value over the mean of the known ones; NaN where unknown or where all are."""
    known = value[~np.isnan(value)]
    return value / known.mean() if known.size and known.mean() > 0 else np.full(value.size, np.nan)
