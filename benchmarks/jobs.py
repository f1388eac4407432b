"""The tables of docs/results.md, section Jobs: `python -m benchmarks.jobs [shockwave] [gavel] [philly] [--data DIR]`.

Intervals are 95 %: over jobs (bootstrap, 2,000 samples) where the workload is one trace, over seeds where it is drawn.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from jupyter_gpushare.core.policy import Weights
from jupyter_gpushare.simulator.jobs import Policy, Workload, measure, simulate
from jupyter_gpushare.simulator.metrics import mean_ci
from jupyter_gpushare.simulator.policies.jobs import POLICIES, ours
from jupyter_gpushare.simulator.workloads import DATA
from jupyter_gpushare.simulator.workloads.jobs import gavel_single, load

SEEDS = range(42, 47)
SHOCKWAVE = ("gpushare", "max-min", "finish-time-fair", "max-sum-throughput", "shortest-first", "las-blind", "fifo")
GAVEL = ("gpushare+packing", "gpushare", "max-min", "finish-time-fair", "shortest-first", "las-blind", "fifo")
PHILLY = ("gpushare", "shortest-first", "fifo")
TRADE = ((1, 0), (1, 0.5), (1, 1), (1, 2), (1, 4), (0, 1), (4, 1))  # completion, fairness


def row(name: str, workload: Workload, policy: Policy) -> dict[str, float | None]:
    """Prints a policy's line and returns its metrics."""
    began = time.perf_counter()
    outcome = simulate(workload, policy)
    found, rows = measure(workload, outcome), slice(*workload.window)
    jct_s = outcome.end_s[rows] - workload.jobs.arrival_s[rows]
    draws = np.random.default_rng(0).integers(0, jct_s.size, (2000, jct_s.size))
    low, high = np.percentile(jct_s[draws].mean(axis=1), [2.5, 97.5])
    print(
        f"{name:24s} jct {jct_s.mean():8.0f} s ({low:.0f}..{high:.0f}) = {jct_s.mean() / 3600:6.2f} h"
        f"  queue {found['queue_mean_s']:7.0f} s  ftf worst {found['ftf_worst']:5.2f}"
        f"  unfair {100 * (found['ftf_unfair'] or 0):5.1f} %  utilisation {found['utilization']:.3f}"
        f"  makespan {outcome.makespan_s:8.0f} s  restarts {outcome.restarts:6d}  {time.perf_counter() - began:5.1f} s",
        flush=True,
    )
    return found


def shockwave(data: Path) -> None:
    """Ours and the baselines on Shockwave's trace, then what weights and misjudged lengths change."""
    workload = load("shockwave-120", data)
    for name in SHOCKWAVE:
        row(name, workload, POLICIES[name](0))
    for completion, fairness in TRADE:
        weights = Weights(completion=completion, fairness=fairness)
        row(f"completion {completion}, fairness {fairness}", workload, ours(weights))
    for spread in (0.5, 1.0):
        runs = [measure(workload, simulate(workload, ours(Weights(), misjudged=spread, seed=seed))) for seed in SEEDS]
        print(f"lengths told wrong by log-sd {spread}: {_interval(runs)}", flush=True)


def gavel(data: Path) -> None:
    """Gavel's continuous-single at 5.2 jobs an hour: the published seed, then others."""
    for name in GAVEL:
        row(name, gavel_single(data, 0), POLICIES[name](0))
    for name in GAVEL[:3]:
        runs = []
        for seed in SEEDS:
            workload = gavel_single(data, seed)
            runs.append(measure(workload, simulate(workload, POLICIES[name](seed))))
        print(f"{name}: seeds {SEEDS[0]}..{SEEDS[-1]}: {_interval(runs)}", flush=True)
    row("told wrong, log-sd 1", gavel_single(data, 0), ours(Weights(), packing=True, misjudged=1.0))


def philly(data: Path) -> None:
    """Philly's list on as many devices as it needs on average, and a third more."""
    for name in PHILLY:
        row(name, load("philly", data), POLICIES[name](0))


def _interval(runs: list[dict[str, float | None]]) -> str:
    ci = mean_ci(runs)
    parts = [f"{name} {ci[name][0]:.3f} ± {ci[name][1]:.3f}" for name in ("jct_mean_s", "ftf_worst") if ci[name]]
    return ", ".join(parts)


TABLES: dict[str, Callable[[Path], None]] = {"shockwave": shockwave, "gavel": gavel, "philly": philly}


def main() -> None:
    """Prints the tables that are asked for, all if none is."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tables", nargs="*", metavar="TABLE", help=", ".join(TABLES))
    parser.add_argument("--data", type=Path, default=DATA)
    given = parser.parse_args()
    if unknown := set(given.tables) - set(TABLES):
        parser.error(f"no such table: {', '.join(sorted(unknown))}")
    for name in given.tables or TABLES:
        print(f"## {name}")
        TABLES[name](given.data)


if __name__ == "__main__":
    main()
