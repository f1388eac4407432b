"""The figures of docs/results.md for sessions: `python -m benchmarks.simulate PART [--seeds 42-51] [--json FILE]`.

Parts: `speed`, `notebooks`, `capacity`, `training-cluster`, `backlog`, `render-farm`, `costs`. Each prints a row per
policy: mean and half width of the 95 % confidence interval over the seeds.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np

from jupyter_gpushare.core.policy import Policy
from jupyter_gpushare.simulator.cluster import cluster
from jupyter_gpushare.simulator.costs import COSTS, Costs
from jupyter_gpushare.simulator.metrics import Metrics, mean_ci
from jupyter_gpushare.simulator.outcome import Outcome, figures
from jupyter_gpushare.simulator.policies.interactive import BindOnCell, Culler, Static, TimeSlice
from jupyter_gpushare.simulator.policies.ours_sessions import Ours
from jupyter_gpushare.simulator.script import Workload
from jupyter_gpushare.simulator.sessions import SessionPolicy, simulate
from jupyter_gpushare.simulator.workloads import notebooks, scenarios

ALWAYS = Ours(Policy(reclaim="always"), name="gpushare, always")
OURS = Ours(name="gpushare, contended")
RESERVED = Static(name="static, first to last event", from_first_to_last=True)
POLICIES: tuple[SessionPolicy, ...] = (
    Static(name="static, kernel life"),
    RESERVED,
    Static(name="first-fit", whole=False),
    Static(name="round-robin", whole=False, spread=True),
    Culler(),
    BindOnCell(),
    TimeSlice(),
    OURS,
    ALWAYS,
)
ON = {"8x8xA100": 133, "30x8xA100": 500}  # cluster -> sessions, the same load on each
SMALL = "8x8xA100"

Row = dict[str, float | None]


def reserved_idle_hours(workload: Workload) -> tuple[float, float]:
    """Device-hours that reservations from first to last event hold, and those of them in which cells run, alone."""
    held = used = 0.0
    for script in workload.scripts:
        if script.submit_s.size:
            last = min(float(script.submit_s[-1] + script.work_s[-1]), workload.until_s)
            held += script.demand.devices * (last - float(script.submit_s[0]))
            used += script.demand.devices * float(script.work_s.sum())
    return held / 3600.0, used / 3600.0


def rows(
    load: Callable[[int], Workload],
    policies: Iterable[SessionPolicy],
    seeds: list[int],
    extra: Callable[[Outcome, Metrics], Row] = lambda outcome, found: {},
    costs: Costs = COSTS,
    on: str | None = None,
) -> dict[str, list[Row]]:
    """By policy, the metrics of each seed."""
    found: dict[str, list[Row]] = {}
    for policy in policies:
        for seed in seeds:
            start = time.perf_counter()
            outcome = simulate(load(seed), policy, cluster(on) if on else None, costs)
            each = figures(outcome)
            row: Row = {**each, **extra(outcome, each), "seconds": time.perf_counter() - start}
            found.setdefault(policy.name, []).append(row)
        show(policy.name, found[policy.name])
    return found


def show(name: str, runs: list[Row]) -> None:
    cells = []
    for metric, interval in mean_ci(runs).items():
        if interval is not None:
            mean, half = interval
            cells.append(f"{metric} {mean:.4g}" + ("" if np.isnan(half) else f" ± {half:.2g}"))
    print(f"{name}: " + ", ".join(cells), flush=True)


def taken_back(outcome: Outcome, found: Metrics) -> Row:
    held, used = reserved_idle_hours(outcome.workload)
    ours = found["gpu_hours_held"]
    return {"taken_back": None if ours is None else (held - ours) / (held - used)}


def idle(outcome: Outcome, found: Metrics) -> Row:
    whole = outcome.workload.until_s * len(outcome.cluster.devices.uuid)
    return {"idle_devices": 1.0 - outcome.computing_s / whole}


def served(count: int, policy: SessionPolicy, seed: int, on: str) -> bool:
    """Whether so many sessions find their GPU within 2 s in 95 of 100 cells, no state lost and no cell failed."""
    found = figures(simulate(notebooks.load(seed=seed, sessions=count), policy, cluster(on)))
    delay = found["delay_p95_s"]
    return delay is not None and delay <= 2.0 and not found["states_lost"] and not found["cells_failed"]


def capacity(policy: SessionPolicy, seed: int, on: str, most: int = 2400) -> int:
    """The largest number of sessions served, to within a tenth: doubled while served, then bisected."""
    low, high = 0, 20
    while high <= most and served(high, policy, seed, on):
        low, high = high, 2 * high
    while high - low > max(low // 10, 1):
        middle = (low + high) // 2
        low, high = (middle, high) if served(middle, policy, seed, on) else (low, middle)
    return low


def part(name: str, seeds: list[int]) -> dict[str, list[Row]]:
    if name == "speed":
        return rows(lambda seed: notebooks.load(seed=seed), [OURS], seeds[:1])
    if name == "notebooks":
        return rows(lambda seed: notebooks.load(seed=seed, sessions=ON[SMALL]), POLICIES, seeds, taken_back, on=SMALL)
    if name == "capacity":
        found: dict[str, list[Row]] = {}
        for policy in POLICIES:
            found[policy.name] = [{"sessions": capacity(policy, seed, "2x8xA100")} for seed in seeds]
            show(policy.name, found[policy.name])
        return found
    if name == "training-cluster":
        return rows(lambda seed: scenarios.load(name, seed), [Static(), TimeSlice(2), OURS], seeds, idle)
    if name == "backlog":
        return rows(
            lambda seed: scenarios.load("training-cluster", seed, backlogged=True), [Static(), OURS], seeds, idle
        )
    if name == "render-farm":
        in_turn = Static(name="round-robin", whole=False, spread=True)
        first_fit = Static(name="first-fit", whole=False)
        return rows(lambda seed: scenarios.load(name, seed), [in_turn, first_fit, OURS], seeds, idle)
    found = {}
    for label, costs in (
        ("as assumed", COSTS),
        ("switching 4 s", replace(COSTS, switch_s=4.0)),
        ("driver divides evenly", replace(COSTS, gate=False)),
        ("neighbours cost 20 %", replace(COSTS, neighbour=0.8)),
    ):
        policies = [Ours(OURS.policy, name=f"contended, {label}"), Ours(ALWAYS.policy, name=f"always, {label}")]
        found |= rows(lambda seed: notebooks.load(seed=seed, sessions=50), policies, seeds, costs=costs, on="3x8xA100")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", help="what to run")
    parser.add_argument("--seeds", default="42-51", help="first-last")
    parser.add_argument("--json", type=Path, help="where to write every run's metrics")
    asked = parser.parse_args()
    first, _, last = asked.seeds.partition("-")
    found = part(asked.part, list(range(int(first), int(last or first) + 1)))
    if asked.json:
        asked.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    sys.exit(main())
