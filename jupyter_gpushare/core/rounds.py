"""Which jobs run in the next round, on which kind of device, alone or two on a device.

For jobs whose length is known, whose speed on each kind is known, and that can be parked and taken up again: the plan
makes the sum over jobs of urgency x speed as large as it can. It climbs: starting from what runs, it takes the best of
all moves (a job goes to free devices, joins a job that is alone, or changes places with another, which may wait) until
none is better. The moves of all jobs are valued at once, as matrices.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .policy import Weights
from .state import Floats, Ints

WAITS = -1
ALONE = -1
SHORT = 0.125  # exponent of what is left, per unit of `Weights.completion`
LATE = 1.0  # exponent of the slowdown, per unit of `Weights.fairness`
CRITICAL = 1.0  # exponent of how critical a job is, per unit of `Weights.utilization`
WIDE = 0.5  # exponent of the number of devices: between the shortest and the smallest (gpus x time) first
BETTER = 1e-9  # least relative gain of a move
MOVES = 4  # per job, at most


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """What runs in a round.

    Attributes
    ----------
    kind : (N,) of device, WAITS for jobs that do not run
    partner : (N,) row of the job that shares its devices, ALONE where there is none
    """

    kind: Ints
    partner: Ints


def urgency(left_s: Floats, total_s: Floats, age_s: Floats, gpus: Ints, devices: int, weights: Weights) -> Floats:
    """(N,) what a second at full speed is worth to each job, largest 1: `left^-a x slowdown^b x critical^c`.

    Parameters
    ----------
    left_s, total_s : (N,) run time left, and in all, alone on the kind that suits the job best
    age_s : (N,) since it was submitted
    gpus : (N,) devices it needs at once, of so many `devices`

    Notes
    -----
    a is SHORT x `weights.completion`: short jobs first makes the mean completion time least on one kind of device
    (Schrage, Operations Research 16(3), 1968); on unlike ones the total of the relative speeds counts more, so a is
    small. The slowdown is (age + left) / total, the least that is still possible, as in finish-time fairness (Mahajan
    et al., Themis, NSDI 2020); b is LATE x `weights.fairness`. A job is critical, above 1, when it alone takes longer
    than all work divided by all devices: devices idle at the end unless it runs now (Graham, SIAM J. Applied
    Mathematics 17(2), 1969); c is CRITICAL x `weights.utilization`.
    """
    slowdown = (age_s + left_s) / total_s
    critical = np.maximum(left_s * devices / max(float(gpus @ left_s), 1e-300), 1.0)
    log = (
        LATE * weights.fairness * np.log(slowdown)
        + CRITICAL * weights.utilization * np.log(critical)
        - SHORT * weights.completion * np.log(left_s)
    )
    urgent: Floats = np.exp(log - log.max(initial=-np.inf))
    return urgent


def plan(
    urgent: Floats, speed: Floats, gpus: Ints, capacity: Ints, beside: Floats | None = None, before: Plan | None = None
) -> Plan:
    """The best plan found by climbing; the same input gives the same plan, and equals are settled by row.

    Parameters
    ----------
    urgent : (N,) see `urgency`
    speed : (N, K) alone on each kind relative to the best one, 0: it cannot run there
    gpus : (N,) devices of one kind it needs at once
    capacity : (K,) devices of each kind
    beside : (N, N, K) speed of the row's job beside the column's, 0: they do not fit; None: nobody shares devices
    before : the plan of the last round, from which to start where all jobs are of one size
    """
    worth = urgent * gpus**WIDE
    there = np.flatnonzero(capacity > 0)
    if beside is None and there.size <= 1:  # nothing to choose but who runs
        kind = np.full(gpus.size, WAITS)
        for k in there.tolist():
            kind[_first_fit(worth * speed[:, k] / gpus, gpus, int(capacity[k]))] = k
        return Plan(kind, np.full(gpus.size, ALONE))
    climb = _climb_of(worth, speed, gpus, capacity, beside)
    if before is not None and (gpus == gpus[0]).all():
        _take_over(climb, before)
    _fill(climb)
    for _ in range(MOVES * gpus.size):
        if not _step(climb):
            break
    kind, partner = climb.kind[:-1], climb.partner[:-1]
    return Plan(np.where(kind == capacity.size, WAITS, kind), np.where(partner == gpus.size, ALONE, partner))


@dataclass(slots=True, eq=False)
class _Climb:
    """A plan that is improved in place. Row N stands for nobody, kind K for waiting.

    Attributes
    ----------
    value : (K + 1, N + 1, N + 1) of devices of a kind with these two jobs on them, -inf: they cannot be there
    gpus, kind, partner : (N + 1,)
    free : (K + 1,) devices
    """

    value: Floats
    gpus: Ints
    free: Ints
    kind: Ints
    partner: Ints


def _first_fit(density: Floats, gpus: Ints, free: int) -> list[int]:
    """Rows that get devices, best first; those that do not fit are passed over."""
    chosen: list[int] = []
    for job in np.argsort(-density, kind="stable").tolist():
        if free == 0:
            break
        if gpus[job] <= free and density[job] > 0:
            chosen.append(job)
            free -= int(gpus[job])
    return chosen


def _climb_of(worth: Floats, speed: Floats, gpus: Ints, capacity: Ints, beside: Floats | None) -> _Climb:
    n, k = speed.shape
    value = np.full((k + 1, n + 1, n + 1), -np.inf)
    value[:k, :n, n] = value[:k, n, :n] = np.where(speed > 0, worth[:, None] * speed, -np.inf).T
    value[:, n, n] = 0.0
    value[k, :, n] = value[k, n, :] = 0.0
    if beside is not None:
        fit = (beside > 0) & (beside.transpose(1, 0, 2) > 0) & (gpus[:, None] == gpus)[:, :, None]
        own = worth[:, None, None] * beside
        value[:k, :n, :n] = np.where(fit, own + own.transpose(1, 0, 2), -np.inf).transpose(2, 0, 1)
        value[:, np.arange(n), np.arange(n)] = -np.inf
    return _Climb(value, np.append(gpus, 0), np.append(capacity, 0), np.full(n + 1, k), np.full(n + 1, n))


def _take_over(climb: _Climb, before: Plan) -> None:
    """Starts from an earlier plan as far as it still can be."""
    n, k = climb.kind.size - 1, climb.free.size - 1
    climb.kind[:n] = np.where(before.kind < 0, k, before.kind)
    climb.partner[:n] = np.where(before.partner < 0, n, before.partner)
    ended = np.flatnonzero(climb.value[climb.kind, np.arange(n + 1), climb.partner] == -np.inf)
    ended = np.concatenate([ended, climb.partner[ended]])
    climb.kind[ended], climb.partner[ended] = k, n
    first = climb.partner[:n] > np.arange(n)  # one of each pair
    climb.free -= np.bincount(climb.kind[:n][first], climb.gpus[:n][first], k + 1).astype(np.int64)


def _fill(climb: _Climb) -> None:
    """Gives free devices to jobs that wait, those first that make most of each."""
    n, k = climb.kind.size - 1, climb.free.size - 1
    alone = climb.value[:k, :n, n].T
    for at in np.argsort(-(alone / climb.gpus[:n, None]), axis=None, kind="stable").tolist():
        job, kind = divmod(at, k)
        if climb.kind[job] == k and climb.gpus[job] <= climb.free[kind] and alone[job, kind] > 0:
            climb.kind[job] = kind
            climb.free[kind] -= climb.gpus[job]


def _step(climb: _Climb) -> bool:
    """Makes the best move; False when none is better than staying."""
    n, k = climb.kind.size - 1, climb.free.size - 1
    rows, kind, partner, gpus = np.arange(n), climb.kind[:n], climb.partner[:n], climb.gpus[:n]
    here = climb.value[kind, rows, partner]
    leave = climb.value[kind, n, partner] - here  # (N,) what going away changes
    instead = climb.value[kind, :, partner][:, :n]  # (N, N) the column's job in the row's place

    swap = instead + instead.T - here[:, None] - here
    swap[(partner[:, None] == rows) | (gpus[:, None] != gpus)] = -np.inf
    join = climb.value[kind, rows, :][:, :n] - here[:, None] + leave  # (N, N) the column's joins the row's
    join[(partner < n) | (kind == k)] = -np.inf
    move = climb.value[:k, :n, n].T + leave[:, None]  # (N, K)
    move[(gpus[:, None] > climb.free[:k]) | ((kind[:, None] == np.arange(k)) & (partner[:, None] == n))] = -np.inf

    gains = [float(swap.max()), float(join.max()), float(move.max())]
    best = int(np.argmax(gains))
    if gains[best] <= BETTER * max(float(here.max()), 1e-300):
        return False
    if best == 0:
        _swap(climb, *divmod(int(swap.argmax()), n))
    elif best == 1:
        host, guest = divmod(int(join.argmax()), n)
        _leave(climb, guest)
        climb.kind[guest] = climb.kind[host]
        climb.partner[host], climb.partner[guest] = guest, host
    else:
        job, to = divmod(int(move.argmax()), k)
        _leave(climb, job)
        climb.kind[job] = to
        climb.free[to] -= climb.gpus[job]
    return True


def _swap(climb: _Climb, a: int, b: int) -> None:
    n = climb.kind.size - 1
    of_a, of_b = int(climb.partner[a]), int(climb.partner[b])
    climb.kind[a], climb.kind[b] = climb.kind[b], climb.kind[a]
    climb.partner[a], climb.partner[b] = of_b, of_a
    for job, other in ((a, of_b), (b, of_a)):
        if other < n:
            climb.partner[other] = job


def _leave(climb: _Climb, job: int) -> None:
    """Takes a job off its devices; they are free where nobody else is on them."""
    n, k = climb.kind.size - 1, climb.free.size - 1
    other = int(climb.partner[job])
    if other < n:
        climb.partner[other] = climb.partner[job] = n
    else:
        climb.free[climb.kind[job]] += climb.gpus[job] * (climb.kind[job] < k)
    climb.kind[job] = k
