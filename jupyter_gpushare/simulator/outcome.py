"""What became of every cell and every session, and the figures that say it in short."""

from __future__ import annotations

import math

import numpy as np

from .cluster import Cluster
from .metrics import Metrics, jain, metrics, percentile
from .script import Workload

AT_ONCE_S = 1e-6


class Outcome:
    """Filled in by the engine.

    Attributes
    ----------
    row, device : rows of sessions and devices by name
    first : (S + 1,) where each session's cells begin among all cells
    delay, start, finish : (C,) of each cell: seconds it waited for its device while no cell of its session ran; when
        it began and ended, NaN where it did not
    at_once : (C,) its devices were granted the moment it was submitted; memory that comes back is part of the delay
    done_s : (S,) work done, in seconds alone
    first_grant : (S,) when it first had a device
    held_s, computing_s, busy_s, joules : over all devices: under a lease, with anybody computing, time in use, energy
    lost, refused : sessions
    """

    def __init__(self, workload: Workload, on: Cluster) -> None:
        scripts = workload.scripts
        self.workload, self.cluster = workload, on
        self.row = {script.id: index for index, script in enumerate(scripts)}
        self.device = {uuid: index for index, uuid in enumerate(on.devices.uuid)}
        self.first = np.concatenate([[0], np.cumsum([script.submit_s.size for script in scripts])]).astype(np.int64)
        cells = int(self.first[-1])
        self._first: list[int] = self.first.tolist()
        self._next = [0] * len(scripts)
        self.submit = np.concatenate([script.submit_s for script in scripts]) if cells else np.zeros(0)
        self.delay, self.at_once = np.zeros(cells), np.ones(cells, np.bool_)
        self.start, self.finish = np.full(cells, math.nan), np.full(cells, math.nan)
        self.seen = np.zeros(cells, np.bool_)
        self.done_s = np.zeros(len(scripts))
        self.first_grant = np.full(len(scripts), math.nan)
        self.held_s = self.computing_s = self.busy_s = self.joules = 0.0
        self._idle_w = float(on.devices.power_idle_w.sum())
        self.lost, self.refused = set[int](), set[int]()
        self.parks = self.moves = self.failed = 0

    def pass_time(self, dt_s: float, *, held: int, computing: int, busy: float, watts: float) -> None:
        self.held_s += dt_s * held
        self.computing_s += dt_s * computing
        self.busy_s += dt_s * busy
        self.joules += dt_s * (self._idle_w + watts)

    def submitted(self, session: int) -> int:
        """The number of the cell that is submitted now."""
        k = self._next[session]
        self._next[session] = k + 1
        self.seen[self._first[session] + k] = True
        return k

    def all_submitted(self, session: int) -> bool:
        return self._next[session] == self._first[session + 1] - self._first[session]

    def waited(self, session: int, k: int, since: float, until: float, granted_at: float) -> None:
        """A cell waited for its session's device from `since`, or from its own submit, until `until`."""
        cell = self._first[session] + k
        since = max(since, float(self.submit[cell]))
        self.delay[cell] += max(until - since, 0.0)
        if granted_at > since + AT_ONCE_S:
            self.at_once[cell] = False

    def granted(self, session: int, now: float) -> None:
        if math.isnan(self.first_grant[session]):
            self.first_grant[session] = now

    def started(self, session: int, k: int, now: float) -> None:
        self.start[self._first[session] + k] = now

    def ended(self, session: int, k: int, now: float) -> None:
        self.finish[self._first[session] + k] = now

    def worked(self, session: int, seconds: float) -> None:
        self.done_s[session] += seconds


def figures(outcome: Outcome) -> Metrics:
    """The metrics of a run. Cells of notebooks give delays, jobs give completion times."""
    scripts, until_s = outcome.workload.scripts, outcome.workload.until_s
    job = np.array([script.job for script in scripts], dtype=np.bool_)
    size = len(outcome.cluster.devices.uuid)
    cell = outcome.seen & ~np.repeat(job, np.diff(outcome.first))
    delays = outcome.delay[cell]
    uses = np.array([script.uses for script in scripts], dtype=np.float64)
    return metrics(
        utilization=outcome.busy_s / (size * until_s),
        gpu_hours_held=outcome.held_s / 3600.0,
        gpu_hours_used=float((outcome.done_s * uses).sum()) / 3600.0,
        delay_p50_s=percentile(delays, 50),
        delay_p95_s=percentile(delays, 95),
        delay_p99_s=percentile(delays, 99),
        bound_at_once=float(outcome.at_once[cell].mean()) if cell.any() else None,
        stretch_p95=percentile(stretch(outcome)[cell & ~np.isnan(outcome.finish)], 95),
        jain=jain(progress_of_users(outcome)),
        states_lost=len(outcome.lost),
        cells_failed=outcome.failed,
        energy_kwh=outcome.joules / 3.6e6,
        parks=outcome.parks,
        moves=outcome.moves,
        **_of_jobs(outcome, np.flatnonzero(job)),
    )


def stretch(outcome: Outcome) -> np.ndarray:
    """(C,) run time of each cell over its work, NaN for those that have not ended."""
    work = np.concatenate([script.work_s for script in outcome.workload.scripts])
    ran = outcome.finish - outcome.start
    return np.asarray(ran / work)


def progress_of_users(outcome: Outcome) -> list[float]:
    """For each user, work done over the time from submit to end of all their cells; what is not done counts until the
    end of the simulation."""
    work: dict[str, float] = {}
    spent: dict[str, float] = {}
    end = np.where(np.isnan(outcome.finish), outcome.workload.until_s, outcome.finish)
    took = np.where(outcome.seen, end - outcome.submit, 0.0)
    for row, script in enumerate(outcome.workload.scripts):
        cells = slice(int(outcome.first[row]), int(outcome.first[row + 1]))
        work[script.user] = work.get(script.user, 0.0) + float(outcome.done_s[row])
        spent[script.user] = spent.get(script.user, 0.0) + float(took[cells].sum())
    return [work[user] / spent[user] for user in work if spent[user] > 0]


def _of_jobs(outcome: Outcome, jobs: np.ndarray) -> dict[str, float | None]:
    """Figures of jobs that were submitted; those that are not done count for queueing only."""
    scripts, until_s = outcome.workload.scripts, outcome.workload.until_s
    jobs = jobs[[scripts[row].opens_s <= until_s for row in jobs]] if jobs.size else jobs
    if not jobs.size:
        return {}
    submit = np.array([scripts[row].opens_s for row in jobs])
    last = outcome.finish[outcome.first[jobs + 1] - 1]
    begun = outcome.start[outcome.first[jobs]]
    queue = np.where(np.isnan(begun), until_s, begun) - submit
    alone = np.array([float(scripts[row].work_s.sum()) for row in jobs])
    done = ~np.isnan(last)
    took = (last - submit)[done]
    return {
        "jct_mean_s": float(took.mean()) if done.any() else None,
        "jct_std_s": float(took.std()) if done.any() else None,
        "queue_mean_s": float(queue.mean()),
        "queue_over_1h": float((queue > 3600.0).mean()),
        "completed_per_hour": float(done.sum()) / (until_s / 3600.0),
        "slowdown_std": float((took / alone[done]).std()) if done.any() else None,
    }
