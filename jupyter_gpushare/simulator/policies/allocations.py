"""Which fraction of time each job should spend on each kind of device: the linear programs of published policies.

Solved by a log barrier whose Newton steps use the structure (one small block a job, one coupling row a kind), so no
solver is needed and a solution costs milliseconds. Like the interior-point solver of the originals it ends in the
middle of the set of optima, not in a corner, which matters to the policies that follow an allocation.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ...core.state import Floats, Ints

GAP = 1e-4  # relative error of the level that is accepted
SHARPER = 8.0  # factor between two stages of the barrier
STEPS = 30  # Newton steps in a stage, at most
RIDGE = 1e-12  # relative: close to a bound a block is singular as far as doubles can tell
HALVINGS = 40  # of a step that would leave what is feasible
INSIDE = 0.95  # of the way to the nearest bound that a step may go

# level -> (demand, first and second derivative), each (N,): what every job must get at that level
Demand = Callable[[float], tuple[Floats, Floats, Floats]]


def max_min(rate: Floats, gpus: Ints, capacity: Ints) -> Floats:
    """(N, K) fractions of time that make the least of sum_k rate[i, k] x[i, k] as large as possible.

    A job runs at most all the time (sum_k x[i, k] <= 1), and sum_i gpus[i] x[i, k] <= capacity[k].
    """
    scale = rate.max()
    ones, zeros = np.ones(gpus.size), np.zeros(gpus.size)
    return _solve(rate / scale, gpus, capacity, lambda level: (level * ones, ones, zeros), _first(rate / scale))


def finish_time_fair(speed: Floats, gpus: Ints, capacity: Ints, left: Floats, age_s: Floats, fair_s: Floats) -> Floats:
    """(N, K) fractions of time that make the worst (age + time left at this pace) / fair time as small as possible.

    speed : (N, K) units of work per second; left : (N,) units of work; fair_s : (N,) run time with 1/N of the devices.
    """
    top = speed.max(axis=1)
    least_s = left / top

    def demand(level: float) -> tuple[Floats, Floats, Floats]:
        room_s = -level * fair_s - age_s
        with np.errstate(divide="ignore"):
            need = np.where(room_s > 0, least_s / np.where(room_s > 0, room_s, 1.0), np.inf)
        return need, need**2 * fair_s / least_s, 2 * need**3 * (fair_s / least_s) ** 2

    def first(x: Floats) -> float:
        pace = np.maximum((rate * x).sum(axis=1), 1e-12)
        return -2.0 * float(((age_s + least_s / pace) / fair_s).max())

    rate = speed / top[:, None]
    return _solve(rate, gpus, capacity, demand, first)


def most_throughput(speed: Floats, gpus: Ints, capacity: Ints) -> Floats:
    """(N, K) whole devices handed out so that the sum of units of work per second is large: greedily, best first."""
    x, free, spent = np.zeros(speed.shape), capacity.astype(float), np.zeros(gpus.size)
    gain = speed / gpus[:, None]
    for at in np.argsort(-gain, axis=None, kind="stable").tolist():
        i, k = divmod(at, speed.shape[1])
        x[i, k] = max(min(1.0 - spent[i], free[k] / gpus[i]), 0.0)
        free[k] -= x[i, k] * gpus[i]
        spent[i] += x[i, k]
    return x


def _first(rate: Floats) -> Callable[[Floats], float]:
    return lambda x: 0.5 * float((rate * x).sum(axis=1).min())


def _solve(rate: Floats, gpus: Ints, capacity: Ints, demand: Demand, first: Callable[[Floats], float]) -> Floats:
    """Maximises the level at which every job gets its demand; kinds without devices get 0."""
    there = np.flatnonzero(capacity > 0)
    a, g, c = rate[:, there], gpus.astype(float), capacity[there].astype(float)
    x = np.broadcast_to(0.5 * np.minimum(1.0 / there.size, c / g.sum()), a.shape).copy()
    level = first(x)
    bounds = a.size + 2 * g.size + c.size
    sharp, scale = bounds / max(abs(level), 1e-9), max(abs(level), 1e-9)
    while bounds / sharp > GAP * scale:
        for _ in range(STEPS):
            step_x, step_level, decrement = _newton(a, g, c, x, level, demand, sharp)
            size = _longest(a, g, c, x, level, demand, step_x, step_level)
            x, level = x + size * step_x, level + size * step_level
            if decrement < 1e-3:
                break
        sharp *= SHARPER
    full = np.zeros(rate.shape)
    full[:, there] = x
    return full


def _newton(
    a: Floats, g: Floats, c: Floats, x: Floats, level: float, demand: Demand, sharp: float
) -> tuple[Floats, float, float]:
    """A Newton step of the barrier in (x, level), and its decrement."""
    need, slope, bend = demand(level)
    over, idle, free = (a * x).sum(axis=1) - need, 1.0 - x.sum(axis=1), c - g @ x
    grad_x = -a / over[:, None] + 1.0 / idle[:, None] + g[:, None] / free - 1.0 / x
    grad_level = -sharp + float((slope / over).sum())

    block = a[:, :, None] * a[:, None, :] / over[:, None, None] ** 2 + 1.0 / idle[:, None, None] ** 2
    block[:, np.arange(c.size), np.arange(c.size)] += 1.0 / x**2
    block[:, np.arange(c.size), np.arange(c.size)] *= 1.0 + RIDGE
    cross = -a * (slope / over**2)[:, None]
    columns = np.zeros((*x.shape, c.size + 2))  # one a kind, the level's, the gradient's
    columns[:, np.arange(c.size), np.arange(c.size)] = g[:, None]
    columns[:, :, -2], columns[:, :, -1] = cross, grad_x
    solved = np.linalg.solve(block, columns)
    small = np.einsum("nkp,nkq->pq", columns[:, :, :-1], solved)  # (K + 1, K + 2)
    left = small[:, :-1].copy()
    left[np.arange(c.size), np.arange(c.size)] += free**2
    left[-1, -1] -= float((slope**2 / over**2 + bend / over).sum())
    right = -small[:, -1]
    right[-1] += grad_level
    answer = np.linalg.solve(left, right)
    step_x = -solved[:, :, -1] - solved[:, :, :-1] @ answer
    step_level = float(answer[-1])
    return step_x, step_level, -float((grad_x * step_x).sum() + grad_level * step_level)


def _longest(
    a: Floats, g: Floats, c: Floats, x: Floats, level: float, demand: Demand, step_x: Floats, step_level: float
) -> float:
    """How far along a step every bound still holds, at most 1."""
    shrink = [(x, step_x), (1.0 - x.sum(axis=1), -step_x.sum(axis=1)), (c - g @ x, -(g @ step_x))]
    size = 1.0
    for room, change in shrink:
        with np.errstate(divide="ignore"):
            size = min(size, INSIDE * float(np.where(change < 0, -room / np.minimum(change, -1e-300), np.inf).min()))
    least = (1.0 - INSIDE) * ((a * x).sum(axis=1) - demand(level)[0])
    for _ in range(HALVINGS):
        if ((a * (x + size * step_x)).sum(axis=1) - demand(level + size * step_level)[0] >= least).all():
            return size
        size *= 0.5
    return 0.0  # at the limit of what doubles can tell apart
