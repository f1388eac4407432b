"""Two companies' experience of GPUs that are handed out without regard to what is done with them.

`training-cluster`: under static allocation 30 % of the devices are idle, because tasks got more than they need, and
20 % of the training tasks wait for over an hour. `render-farm`: tasks bound by data and by computing share devices
without regard; the first stall on bandwidth, the second are disturbed. The constants marked *calibrated* were set on
seeds 0 to 9 so that the static policy shows just that (tests/simulator/test_scenarios.py), before ours was run on them;
all others are assumed.
"""

from __future__ import annotations

import numpy as np

from ...model import Demand, Kind
from ..cluster import GIB
from ..script import Script, Workload

Rng = np.random.Generator

HOUR_S = 3600.0

# --- training-cluster ---------------------------------------------------------------------------------------------
TRAINING_CLUSTER = "8x8xA100"
TRAINING_S = 14 * 24 * HOUR_S
TASK_GPUS = ((1, 0.40), (2, 0.25), (4, 0.20), (8, 0.15))
TASK_S, TASK_SPREAD, TASK_MOST_S = HOUR_S, 1.2, 24 * HOUR_S  # alone: median, log standard deviation, cap
OVERASKS = 0.59  # calibrated: part of the tasks that ask for n devices and use 1 to n of them, all alike
TASKS_PER_HOUR = 9.7  # calibrated
TASK_COMPUTE = (0.5, 1.0)  # of the time of the devices it does use: the rest is input, synchronisation, checkpoints
TASK_GIB = (8.0, 24.0)
TRAINING_USERS = 20

BACKLOG_S, BACKLOG_RATE, BACKLOG = 18 * HOUR_S, 2.6, 80  # when backlogged: for how long, times the rate, at the start

# --- render-farm --------------------------------------------------------------------------------------------------
RENDER_FARM = "4x4xA100+4x4xL40S"
RENDER_S = 3 * 24 * HOUR_S
FRAMES_S, FRAMES_SPREAD, FRAMES_MOST_S = 1800.0, 0.8, 4 * HOUR_S
RENDER_TASKS_PER_HOUR = 44.0  # calibrated
RENDER_SHARE = 0.5  # what each task asks for: two to a device
DATA_TASKS = 0.5
RENDER_GIB = (6.0, 18.0)
RENDER_USERS = 12


def load(name: str, seed: int = 0, *, backlogged: bool = False) -> Workload:
    """The scenario of that name. `backlogged`: more comes than anybody can serve, so there is always a queue."""
    rng = np.random.default_rng(seed)
    if name == "training-cluster":
        until_s, per_hour, cluster, task = TRAINING_S, TASKS_PER_HOUR, TRAINING_CLUSTER, training_task
    else:
        until_s, per_hour, cluster, task = RENDER_S, RENDER_TASKS_PER_HOUR, RENDER_FARM, render_task
    if backlogged:
        until_s, per_hour = BACKLOG_S, BACKLOG_RATE * per_hour
    count = rng.poisson(per_hour * until_s / HOUR_S)
    arrivals = np.sort(rng.uniform(0.0, until_s, count))
    if backlogged:
        arrivals = np.concatenate([np.zeros(BACKLOG), arrivals])
    scripts = tuple(task(rng, number, float(at)) for number, at in enumerate(arrivals))
    return Workload(name=name, cluster=cluster, until_s=until_s, scripts=scripts)


def training_task(rng: Rng, number: int, at_s: float) -> Script:
    """A training task: it asks for n devices, as it would of any scheduler, and may use fewer."""
    gpus = int(rng.choice([n for n, _ in TASK_GPUS], p=[p for _, p in TASK_GPUS]))
    uses = int(rng.integers(1, gpus + 1)) if rng.random() < OVERASKS else gpus
    compute = float(rng.uniform(*TASK_COMPUTE))
    memory = float(rng.uniform(*TASK_GIB)) * GIB
    return _job(
        rng,
        f"task-{number:05d}",
        f"user-{rng.integers(TRAINING_USERS):02d}",
        at_s,
        Demand(gpus=gpus, memory=int(memory)),
        seconds=_lognormal(rng, TASK_S, TASK_SPREAD, TASK_MOST_S),
        compute=compute,
        bandwidth=0.4 * compute,
        uses=uses,
    )


def render_task(rng: Rng, number: int, at_s: float) -> Script:
    """A task of the farm: rendering is bound by computing, compositing and simulation caches by moving data."""
    kind: Kind = "data" if rng.random() < DATA_TASKS else "compute"
    mostly, partly = float(rng.uniform(0.75, 0.95)), float(rng.uniform(0.1, 0.3))
    compute, bandwidth = (partly, mostly) if kind == "data" else (mostly, partly)
    memory = float(rng.uniform(*RENDER_GIB)) * GIB
    return _job(
        rng,
        f"render-{number:05d}",
        f"user-{rng.integers(RENDER_USERS):02d}",
        at_s,
        Demand(gpus=RENDER_SHARE, memory=int(memory), kind=kind),
        seconds=_lognormal(rng, FRAMES_S, FRAMES_SPREAD, FRAMES_MOST_S),
        compute=compute,
        bandwidth=bandwidth,
        uses=1,
    )


def _job(
    rng: Rng,
    name: str,
    user: str,
    at_s: float,
    demand: Demand,
    *,
    seconds: float,
    compute: float,
    bandwidth: float,
    uses: int,
) -> Script:
    return Script(
        id=name,
        user=user,
        demand=demand,
        opens_s=at_s,
        closes_s=at_s,
        submit_s=np.array([at_s]),
        work_s=np.array([seconds]),
        memory=float(demand.memory or 0),
        compute=compute,
        bandwidth=bandwidth,
        uses=uses,
        job=True,
    )


def _lognormal(rng: Rng, median: float, spread: float, most: float) -> float:
    return min(median * float(np.exp(spread * rng.standard_normal())), most)
