"""Published policies for jobs on shared devices, as far as they are compared with.

Each is made by a function of (seed) and called once a round. What they allocate is in `allocations.py`; how an
allocation becomes rounds is Gavel's mechanism (OSDI'20, section 5): whoever is furthest behind its allocation runs.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from ...core import rounds
from ...core.policy import Weights
from ...core.rounds import Plan
from ...core.state import Floats, Ints
from ..jobs import Policy, Round
from .allocations import finish_time_fair, max_min, most_throughput

Allocate = Callable[[Round], Floats]  # (N, K) fractions of time

RESET_S = 1000.0  # least time between two allocations, as in Gavel
OVERDUE = 0.1  # of what a job has run: what is expected of it when it has outlived what was told
UNSERVED = 1e9  # priority of an allocation of 1 that nothing was run of yet


@dataclass(slots=True, eq=False)
class TimeShared:
    """Runs jobs so that each spends the time on each kind that an allocation says.

    Attributes
    ----------
    allocate : called when jobs came or went, at most every RESET_S
    shuffle : kinds are filled in an order drawn each round (type-blind policies); None: in their own order
    got_s, behind_s, share : (J, K) time since the last allocation, deficit before it, allocation; grow with the jobs
    """

    allocate: Allocate
    shuffle: random.Random | None = None
    since: float = 0.0
    present: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    stale: bool = False
    got_s: Floats = field(default_factory=lambda: np.empty((0, 0)))
    behind_s: Floats = field(default_factory=lambda: np.empty((0, 0)))
    share: Floats = field(default_factory=lambda: np.empty((0, 0)))
    all_s: Floats = field(default_factory=lambda: np.empty(0))
    served_s: Floats = field(default_factory=lambda: np.empty(0))

    def __call__(self, seen: Round) -> Plan:
        self._follow(seen)
        if self.stale and (self.since == 0.0 or seen.now - self.since >= RESET_S):
            self._reset(seen)
        share, behind = self.share[seen.job], self.behind_s[seen.job]
        fraction = self.got_s[seen.job] / np.maximum(self.all_s, 1e-9)
        priority = np.where(fraction > 0, share / np.maximum(fraction, 1e-12), share * UNSERVED)
        order = list(range(seen.capacity.size))
        if self.shuffle is not None:
            self.shuffle.shuffle(order)
        kind = np.full(seen.job.size, -1)
        for k in order:
            best = np.lexsort((-share[:, k], -behind[:, k], -priority[:, k]))
            _fill(seen, kind, best, k)
        return Plan(kind=kind, partner=np.full(seen.job.size, -1))

    def _follow(self, seen: Round) -> None:
        """Takes note of jobs that came and went, and of what ran in the round before."""
        kinds = seen.capacity.size
        if self.all_s.size == 0:
            self.all_s = np.zeros(kinds)
            self.got_s = self.behind_s = self.share = np.empty((0, kinds))
        grow = int(seen.job[-1]) + 1 - self.served_s.size
        if grow > 0:
            self.got_s = np.vstack([self.got_s, np.full((grow, kinds), seen.round_s / 2)])
            self.behind_s = np.vstack([self.behind_s, np.zeros((grow, kinds))])
            self.share = np.vstack([self.share, np.zeros((grow, kinds))])
            self.served_s = np.concatenate([self.served_s, np.zeros(grow)])
        ran = seen.before >= 0
        more_s = seen.served_s[ran] - self.served_s[seen.job[ran]]
        np.add.at(self.got_s, (seen.job[ran], seen.before[ran]), more_s)
        np.add.at(self.all_s, seen.before[ran], more_s)
        self.served_s[seen.job] = seen.served_s
        if not np.array_equal(self.present, seen.job):
            self.present, self.stale = seen.job, True

    def _reset(self, seen: Round) -> None:
        elapsed_s, job = seen.now - self.since, seen.job
        self.behind_s[job] += self.share[job] * elapsed_s - (self.got_s[job] - seen.round_s / 2)
        self.got_s[job] = seen.round_s / 2
        self.all_s = np.full(seen.capacity.size, job.size * seen.round_s / 2)
        self.since, self.stale = seen.now, False
        self.share[job] = self.allocate(seen)


def max_min_fairness(seed: int) -> Policy:
    """Gavel's least attained service: the least normalised throughput is as large as possible."""
    return TimeShared(lambda seen: max_min(_by_fair(seen, seen.speed) * seen.gpus[:, None], seen.gpus, seen.capacity))


def las_blind(seed: int) -> Policy:
    """Least attained service that takes every kind of device for the same."""
    ones = lambda seen: np.ones(seen.speed.shape)  # noqa: E731
    blind = lambda seen: max_min(ones(seen) * seen.gpus[:, None], seen.gpus, seen.capacity)  # noqa: E731
    return TimeShared(blind, random.Random(seed + 5))


def finish_time_fairness(seed: int) -> Policy:
    """Gavel's finish-time fairness: the worst expected time ÷ time with 1/N of the devices is as small as possible."""
    return TimeShared(_FairFinish())


def themis_blind(seed: int) -> Policy:
    """Finish-time fairness that takes every kind of device for a V100, as Themis would."""
    fair = _FairFinish()

    def allocate(seen: Round) -> Floats:
        return fair.shares(seen, np.repeat(seen.speed[:, :1], seen.capacity.size, axis=1))

    return TimeShared(allocate, random.Random(seed + 5))


def max_sum_throughput(seed: int) -> Policy:
    """The largest sum of training steps per second, whatever a step is worth to its job."""
    return TimeShared(lambda seen: most_throughput(seen.speed * seen.steps[:, None], seen.gpus, seen.capacity))


def fifo(seed: int) -> Policy:
    """First come, first served until done, on a kind drawn among those with room (type-blind)."""
    draw, kept = random.Random(seed), {}

    def plan(seen: Round) -> Plan:
        kind = np.array([kept.get(job, -1) for job in seen.job.tolist()])
        free = seen.capacity - np.bincount(kind[kind >= 0], seen.gpus[kind >= 0], seen.capacity.size)
        for i in np.flatnonzero(kind < 0).tolist():
            room = np.flatnonzero((free >= seen.gpus[i]) & (seen.speed[i] > 0))
            if room.size == 0:
                break  # nobody jumps the queue
            kind[i] = kept[int(seen.job[i])] = draw.choice(room.tolist())
            free[kind[i]] -= seen.gpus[i]
        return Plan(kind=kind, partner=np.full(kind.size, -1))

    return plan


def shortest_first(seed: int) -> Policy:
    """Shortest remaining time on the reference kind first, on a kind drawn each round (type-blind)."""
    draw = random.Random(seed + 5)

    def plan(seen: Round) -> Plan:
        kind, order = np.full(seen.job.size, -1), list(range(seen.capacity.size))
        draw.shuffle(order)
        best = np.argsort(seen.left / seen.speed[:, 0], kind="stable")
        for k in order:
            _fill(seen, kind, best, k)
        return Plan(kind=kind, partner=np.full(kind.size, -1))

    return plan


@dataclass(slots=True, eq=False)
class _FairFinish:
    """Finish-time fairness with the time each job would have taken so far with 1/N of the devices."""

    left: dict[int, float] = field(default_factory=dict)
    pace: dict[int, float] = field(default_factory=dict)
    spent_s: dict[int, float] = field(default_factory=dict)

    def __call__(self, seen: Round) -> Floats:
        return self.shares(seen, seen.speed)

    def shares(self, seen: Round, speed: Floats) -> Floats:
        pace = (_equal(seen) * speed).sum(axis=1)
        jobs = seen.job.tolist()
        for i, job in enumerate(jobs):
            before = self.left.get(job, seen.left[i])
            self.spent_s[job] = self.spent_s.get(job, 0.0) + (before - seen.left[i]) / self.pace.get(job, 1.0)
        self.left, self.pace = (
            dict(zip(jobs, seen.left.tolist(), strict=True)),
            dict(zip(jobs, pace.tolist(), strict=True)),
        )
        fair_s = np.array([self.spent_s[job] for job in jobs]) + seen.left / pace
        return finish_time_fair(speed, seen.gpus, seen.capacity, seen.left, seen.age_s, fair_s)


def _by_fair(seen: Round, speed: Floats) -> Floats:
    """(N, K) speed relative to running all the time on a device drawn from the cluster."""
    return speed / (speed @ (seen.capacity / seen.capacity.sum()))[:, None]


def _equal(seen: Round) -> Floats:
    """(N, K) fractions of time where everybody has 1/N of the devices of each kind, at most 1 a job."""
    share = seen.capacity[None, :] / seen.job.size / seen.gpus[:, None]
    return share / np.maximum(share.sum(axis=1, keepdims=True), 1.0)


def _fill(seen: Round, kind: Ints, order: Ints, k: int) -> None:
    """Gives devices of kind k to jobs in this order that have none yet and fit."""
    free = int(seen.capacity[k])
    for i in order.tolist():
        if free == 0:
            break
        if kind[i] < 0 and seen.gpus[i] <= free and seen.speed[i, k] > 0:
            kind[i] = k
            free -= int(seen.gpus[i])


def ours(weights: Weights, *, packing: bool = False, misjudged: float = 0.0, seed: int = 0) -> Policy:
    """The core's plan (core/rounds.py), fed with what is left at the present speed; packing: two jobs may share.

    With `misjudged`, each job's length is told wrong by a factor of log-sd so much; one that outlives what was told
    is expected to go on for a part of what it has run.
    """

    def plan(seen: Round) -> Plan:
        best = seen.speed.max(axis=1)
        left_s, done_s = seen.left / best, seen.done / best
        if misjudged:
            told_s = (left_s + done_s) * np.exp(misjudged * _noise(seen.job, seed))
            left_s = np.maximum(told_s - done_s, OVERDUE * done_s + 1.0)
        devices = int(seen.capacity.sum())
        urgent = rounds.urgency(left_s, left_s + done_s, seen.age_s, seen.gpus, devices, weights)
        restarts = np.where(seen.before < 0, 1.0 - seen.restart_s / seen.round_s, 1.0)
        speed = seen.speed / best[:, None] * restarts[:, None]
        beside = None
        if packing and seen.beside is not None:
            beside = seen.beside[seen.type[:, None], seen.type] / best[:, None, None]
        return rounds.plan(urgent, speed, seen.gpus, seen.capacity, beside, Plan(seen.before, seen.beside_before))

    return plan


def _noise(jobs: Ints, seed: int) -> Floats:
    """(N,) standard normal, the same for a job at every call."""
    return np.random.default_rng(seed).standard_normal(int(jobs[-1]) + 1)[jobs]


POLICIES: dict[str, Callable[[int], Policy]] = {
    "gpushare": lambda seed: ours(Weights()),
    "gpushare+packing": lambda seed: ours(Weights(), packing=True),
    "max-min": max_min_fairness,
    "finish-time-fair": finish_time_fairness,
    "max-sum-throughput": max_sum_throughput,
    "las-blind": las_blind,
    "themis-blind": themis_blind,
    "shortest-first": shortest_first,
    "fifo": fifo,
}
