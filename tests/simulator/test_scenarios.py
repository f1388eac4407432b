"""Under static allocation the scenarios show what they are there to show; calibrated before ours ran on them."""

from __future__ import annotations

import numpy as np
import pytest

from jupyter_gpushare.simulator.metrics import mean_ci
from jupyter_gpushare.simulator.outcome import Outcome, figures
from jupyter_gpushare.simulator.policies.interactive import Static
from jupyter_gpushare.simulator.sessions import simulate
from jupyter_gpushare.simulator.workloads import scenarios

SEEDS = range(3)  # of the ten that were calibrated on
STATIC = Static()
IN_TURN = Static(name="round-robin", whole=False, spread=True)


def idle_part(outcome: Outcome) -> float:
    """Part of the devices' time in which nobody computes there."""
    return 1.0 - outcome.computing_s / (outcome.workload.until_s * len(outcome.cluster.devices.uuid))


def run_over_alone(outcome: Outcome, kind: str) -> float:
    """Mean run time of the tasks of a kind over their time alone on the reference device."""
    scripts = outcome.workload.scripts
    rows = [row for row, script in enumerate(scripts) if script.demand.kind == kind]
    work = np.array([float(scripts[row].work_s[0]) for row in rows])
    return float(np.nanmean((outcome.finish[rows] - outcome.start[rows]) / work))


def test_a_third_of_the_training_cluster_is_idle_and_a_fifth_of_its_tasks_wait_for_an_hour() -> None:
    outcomes = [simulate(scenarios.load("training-cluster", seed), STATIC) for seed in SEEDS]
    waits = mean_ci(figures(outcome) for outcome in outcomes)["queue_over_1h"]

    assert np.mean([idle_part(outcome) for outcome in outcomes]) == pytest.approx(0.30, abs=0.05)
    assert waits is not None
    assert waits[0] == pytest.approx(0.20, abs=0.08)


def test_tasks_of_the_training_cluster_hold_more_than_they_need() -> None:
    scripts = scenarios.load("training-cluster", 0).scripts
    asked = sum(script.work_s[0] * script.demand.gpus for script in scripts)
    used = sum(script.work_s[0] * script.uses for script in scripts)
    assert used / asked == pytest.approx(0.81, abs=0.03)


def test_on_the_render_farm_data_stalls_and_computing_is_disturbed() -> None:
    outcomes = [simulate(scenarios.load("render-farm", seed), IN_TURN) for seed in SEEDS]

    stalled = 1.0 - 1.0 / np.mean([run_over_alone(outcome, "data") for outcome in outcomes])
    assert stalled == pytest.approx(0.52, abs=0.05)  # of their run time, data-bound tasks wait for bandwidth
    assert np.mean([run_over_alone(outcome, "compute") for outcome in outcomes]) == pytest.approx(1.26, abs=0.06)


@pytest.mark.parametrize("name", ["training-cluster", "render-farm"])
def test_a_seed_is_a_scenario(name: str) -> None:
    one, again, other = (scenarios.load(name, seed).scripts for seed in (1, 1, 2))
    assert [script.opens_s for script in one] == [script.opens_s for script in again]
    assert [script.opens_s for script in one] != [script.opens_s for script in other]


def test_a_backlog_is_there_from_the_beginning_and_lasts() -> None:
    backlog = scenarios.load("training-cluster", 0, backlogged=True)
    assert sum(script.opens_s == 0.0 for script in backlog.scripts) == scenarios.BACKLOG
    wanted = sum(float(script.work_s[0]) * script.demand.gpus for script in backlog.scripts)
    assert wanted > 2.0 * 64 * backlog.until_s
