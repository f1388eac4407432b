"""Runs jobs in rounds: at the start of each, a policy says which run on which kind of device, alone or in pairs.

Time moves as in the simulators of Gavel (OSDI'20) and Shockwave (NSDI'23), whose published figures the baselines are
checked against: arrivals join at the next round, a job that ends frees its devices at the round's end, a round in which
everybody ends early is cut short, and a job that did not run in the round before loses `restart_s` of its first one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ..core.rounds import Plan
from ..core.state import Bools, Floats, Ints
from .metrics import Metrics, metrics

UNFAIR = 1.05
GRACE_S = 5.0  # a last round shorter than the others by more than this is not charged a restart, as in Shockwave


@dataclass(frozen=True, slots=True, eq=False)
class Jobs:
    """Row j is job j, in order of arrival.

    Attributes
    ----------
    name : (J,) tuple of str
    arrival_s : (J,) ascending
    gpus : (J,) devices it needs at once
    work : (J,) units of work in all (steps, or epochs where the batch size changes on the way)
    stage_at : (J, S) work done at which each stage begins: 0, then ascending, inf where there is no such stage
    stage_type : (J, S) row of `Speeds` of each stage
    alone_s : (J,) its run time on the reference kind with nobody else there, as its authors count it
    """

    name: tuple[str, ...]
    arrival_s: Floats
    gpus: Ints
    work: Floats
    stage_at: Floats
    stage_type: Ints
    alone_s: Floats


@dataclass(frozen=True, slots=True, eq=False)
class Speeds:
    """How fast each type of job is on each kind of device, in units of work per second.

    Attributes
    ----------
    kinds : (K,) tuple of str
    alone : (T, K) 0: does not run there
    steps : (T,) training steps in a unit of work
    beside : (T, T, K) of the row's type while the column's shares its devices, 0: they do not fit; None: not measured
    """

    kinds: tuple[str, ...]
    alone: Floats
    steps: Floats
    beside: Floats | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Workload:
    """Jobs, the devices they share, and how time is counted.

    Attributes
    ----------
    capacity : (K,) devices of each kind
    window : (first, end) rows of the jobs that are measured; the run ends with the last of them
    fair_among : jobs among which the devices would be divided to be fair: all of the trace, as Shockwave counts; None:
        those that were there, on average over the job's life, as Themis counts
    """

    jobs: Jobs
    speeds: Speeds
    capacity: Ints
    round_s: float
    restart_s: float
    window: tuple[int, int]
    fair_among: int | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Round:
    """What a policy sees at the start of a round: row i is the i-th job that has arrived and not ended.

    Attributes
    ----------
    job : (N,) rows of the workload, ascending
    age_s : (N,) since its arrival
    served_s : (N,) that it has run
    left : (N,) units of work
    done : (N,) units of work
    gpus : (N,)
    speed : (N, K) units of work per second alone, at its present stage
    steps : (N,) training steps in its unit of work
    type : (N,) row of `beside`
    beside : (T, T, K) as in Speeds
    before, beside_before : (N,) kind it ran on in the round before, and the row of who shared its devices; -1: none
    capacity : (K,)
    """

    now: float
    round_s: float
    restart_s: float
    job: Ints
    age_s: Floats
    served_s: Floats
    left: Floats
    done: Floats
    gpus: Ints
    speed: Floats
    steps: Floats
    type: Ints
    beside: Floats | None
    before: Ints
    beside_before: Ints
    capacity: Ints


Policy = Callable[[Round], Plan]


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """What happened. Rows are those of the workload; NaN for jobs that had not ended when the last measured one had.

    Attributes
    ----------
    first_s, end_s : (J,) when it first ran, when it ended
    beside : (J,) jobs that were there, itself too, on average over its life
    device_s : device-seconds in which a device ran something
    makespan_s : from the first arrival to the end of the last round
    restarts : how often a job ran that had not run in the round before
    """

    first_s: Floats
    end_s: Floats
    beside: Floats
    device_s: float
    makespan_s: float
    restarts: int
    rounds: int


def run(workload: Workload, policy: Policy) -> Metrics:
    """The workload's metrics under a policy."""
    return measure(workload, simulate(workload, policy))


def simulate(workload: Workload, policy: Policy) -> Outcome:
    """Runs the workload until its measured jobs have ended.

    Raises
    ------
    ValueError
        The policy's plan asks for more devices than there are, or for speeds of 0, or runs nothing for ever.
    """
    jobs, speeds = workload.jobs, workload.speeds
    total, kinds = jobs.arrival_s.size, len(speeds.kinds)
    first, end = workload.window
    now = float(jobs.arrival_s[0])
    started_s, ended_s = np.full(total, np.nan), np.full(total, np.nan)
    done, served_s = np.zeros(total), np.zeros(total)
    before, mate = np.full(total, -1), np.full(total, -1)
    joined_s, crowd_s = np.zeros(total), np.zeros(total)
    active, arrived, device_s, restarts, rounds, job_s = np.empty(0, np.int64), 0, 0.0, 0, 0, 0.0
    while np.isnan(ended_s[first:end]).any():
        if active.size == 0:
            now = max(now, float(jobs.arrival_s[arrived]))
        upto = int(np.searchsorted(jobs.arrival_s, now, side="right"))
        joined_s[arrived:upto], crowd_s[arrived:upto] = now, job_s
        active, arrived = np.concatenate([active, np.arange(arrived, upto)]), upto
        seen = _round(workload, active, now, done[active], served_s[active], before[active], mate[active])
        plan = policy(seen)
        speed = _speed_of(seen, plan)
        _check(seen, plan, speed, kinds)

        runs = plan.kind >= 0
        if not runs.any() and arrived == total:
            raise ValueError(f"the policy runs none of {active.size} jobs, and no other will come")
        need_s = np.divide(seen.left, speed, out=np.full(active.size, np.inf), where=runs)
        run_s = np.where(runs, np.minimum(need_s, workload.round_s), 0.0)
        fresh = runs & (seen.before < 0) & (rounds > 0)
        lost_s = np.where(fresh & (run_s > workload.round_s - GRACE_S), workload.restart_s, 0.0)
        length_s = float(run_s.max()) if runs.any() else float(jobs.arrival_s[arrived]) - now

        ends = runs & (need_s <= workload.round_s) & (lost_s == 0.0)
        done[active] += speed * np.maximum(run_s - lost_s, 0.0)
        served_s[active] += run_s - lost_s
        before[active] = plan.kind
        mate[active] = np.where(plan.partner >= 0, active[plan.partner], -1)
        started_s[active[runs]] = np.fmin(started_s[active[runs]], now)
        ended_s[active[ends]] = now + run_s[ends]
        device_s += _device_s(seen, plan, run_s - lost_s)
        restarts += int(fresh.sum())
        rounds += 1
        now += length_s
        job_s += active.size * length_s
        crowd_s[active[ends]] = (job_s - crowd_s[active[ends]]) / (now - joined_s[active[ends]])
        active = active[~ends]
    return Outcome(
        first_s=started_s,
        end_s=ended_s,
        beside=crowd_s,
        device_s=device_s,
        makespan_s=now - float(jobs.arrival_s[0]),
        restarts=restarts,
        rounds=rounds,
    )


def _speed_of(seen: Round, plan: Plan) -> Floats:
    """(N,) units of work per second under a plan, 0 where a job waits."""
    rows = np.arange(plan.kind.size)
    speed = np.where(plan.kind >= 0, seen.speed[rows, plan.kind], 0.0)
    paired = np.flatnonzero((plan.partner >= 0) & (plan.kind >= 0))
    if paired.size and seen.beside is not None:
        speed[paired] = seen.beside[seen.type[paired], seen.type[plan.partner[paired]], plan.kind[paired]]
    return speed


def _round(
    workload: Workload, active: Ints, now: float, done: Floats, served_s: Floats, before: Ints, mate: Ints
) -> Round:
    jobs, speeds = workload.jobs, workload.speeds
    stage = (jobs.stage_at[active] <= done[:, None]).sum(axis=1) - 1
    kind = jobs.stage_type[active, stage]
    return Round(
        now=now,
        round_s=workload.round_s,
        restart_s=workload.restart_s,
        job=active,
        age_s=now - jobs.arrival_s[active],
        served_s=served_s,
        left=jobs.work[active] - done,
        done=done,
        gpus=jobs.gpus[active],
        speed=speeds.alone[kind],
        steps=speeds.steps[kind],
        type=kind,
        beside=speeds.beside,
        before=before,
        beside_before=_rows(active, mate),
        capacity=workload.capacity,
    )


def _rows(active: Ints, jobs: Ints) -> Ints:
    """(N,) where in `active`, ascending, each of these jobs is; -1: nowhere."""
    at = np.minimum(np.searchsorted(active, jobs), active.size - 1)
    return np.where((jobs >= 0) & (active[at] == jobs), at, -1)


def _owners(plan: Plan) -> Bools:
    """(N,) jobs that run, one of each pair: they count the devices."""
    return (plan.kind >= 0) & ((plan.partner < 0) | (plan.partner > np.arange(plan.kind.size)))


def _device_s(seen: Round, plan: Plan, run_s: Floats) -> float:
    longest = np.where(plan.partner >= 0, np.maximum(run_s, run_s[plan.partner]), run_s)
    return float((seen.gpus * longest)[_owners(plan)].sum())


def _check(seen: Round, plan: Plan, speed: Floats, kinds: int) -> None:
    owner = _owners(plan)
    asked = np.bincount(plan.kind[owner], weights=seen.gpus[owner], minlength=kinds)
    if (asked > seen.capacity).any():
        raise ValueError(f"the plan asks for {asked.tolist()} devices, there are {seen.capacity.tolist()}")
    if (speed[plan.kind >= 0] <= 0.0).any():
        raise ValueError("the plan runs a job where it makes no progress")


def measure(workload: Workload, outcome: Outcome) -> Metrics:
    """The figures of the measured jobs.

    Finish-time fairness is the completion time over (time alone x the larger of 1 and jobs per device); among which
    jobs is the workload's to say. A job is unfair above 1.05, the tolerance of Shockwave's authors.
    """
    jobs, (first, end) = workload.jobs, workload.window
    rows, devices = slice(first, end), float(workload.capacity.sum())
    jct_s = outcome.end_s[rows] - jobs.arrival_s[rows]
    waited_s = outcome.first_s[rows] - jobs.arrival_s[rows]
    slowdown = jct_s / jobs.alone_s[rows]
    among = outcome.beside[rows] if workload.fair_among is None else workload.fair_among
    unfairness = slowdown / np.maximum(1.0, among / devices)
    return metrics(
        utilization=outcome.device_s / (outcome.makespan_s * devices),
        gpu_hours_held=outcome.device_s / 3600,
        jct_mean_s=float(jct_s.mean()),
        jct_std_s=float(jct_s.std()),
        queue_mean_s=float(waited_s.mean()),
        queue_over_1h=float((waited_s > 3600).mean()),
        completed_per_hour=3600 * int((~np.isnan(outcome.end_s)).sum()) / outcome.makespan_s,
        ftf_worst=float(unfairness.max()),
        ftf_unfair=float((unfairness > UNFAIR).mean()),
        slowdown_std=float(slowdown.std()),
    )
