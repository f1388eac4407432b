"""The engine for jobs: time is counted as its originals count it, and the baselines give the published figures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from jupyter_gpushare.core.rounds import ALONE, WAITS, Plan
from jupyter_gpushare.errors import BadDemand
from jupyter_gpushare.simulator.jobs import Jobs, Round, Speeds, Workload, run, simulate
from jupyter_gpushare.simulator.policies.jobs import POLICIES
from jupyter_gpushare.simulator.workloads import DATA
from jupyter_gpushare.simulator.workloads import jobs as workloads
from jupyter_gpushare.simulator.workloads.batch_growth import batches


def workload(
    arrival_s: list[float],
    work: list[float],
    gpus: list[int] | None = None,
    *,
    capacity: int = 1,
    restart_s: float = 0.0,
) -> Workload:
    """Jobs of one type that do one unit of work per second on one kind of device; two on a device do 0.6 each."""
    size = len(work)
    return Workload(
        jobs=Jobs(
            name=tuple(map(str, range(size))),
            arrival_s=np.array(arrival_s),
            gpus=np.array(gpus or [1] * size),
            work=np.array(work),
            stage_at=np.zeros((size, 1)),
            stage_type=np.zeros((size, 1), np.int64),
            alone_s=np.array(work),
        ),
        speeds=Speeds(("gpu",), alone=np.ones((1, 1)), steps=np.ones(1), beside=np.full((1, 1, 1), 0.6)),
        capacity=np.array([capacity]),
        round_s=100.0,
        restart_s=restart_s,
        window=(0, size),
    )


def first_come(seen: Round) -> Plan:
    """Runs the first job that is there, alone."""
    kind = np.full(seen.job.size, WAITS)
    kind[0] = 0
    return Plan(kind, np.full(seen.job.size, ALONE))


@pytest.fixture(scope="session")
def traces() -> Path:
    if not (DATA / workloads.SHOCKWAVE_TRACE).exists():
        pytest.skip(f"the job traces are not in {DATA.resolve()}: published figures were not checked")
    return DATA


def test_a_job_ends_within_a_round_and_frees_its_devices_at_the_rounds_end() -> None:
    outcome = simulate(workload([0.0, 0.0], [150.0, 50.0]), first_come)
    assert outcome.end_s.tolist() == [150.0, 200.0]  # the second round is cut short: everybody in it has ended
    assert outcome.first_s.tolist() == [0.0, 150.0]


def test_a_job_joins_at_the_round_after_its_arrival_and_idle_time_is_skipped() -> None:
    outcome = simulate(workload([0.0, 30.0, 5000.0], [100.0, 10.0, 10.0]), first_come)
    assert outcome.first_s.tolist() == [0.0, 100.0, 5000.0]
    assert outcome.makespan_s == 5010.0
    assert outcome.device_s == 120.0


def test_a_job_that_did_not_run_in_the_round_before_loses_the_restart() -> None:
    turns = iter([0, 1, 0, 0])

    def policy(seen: Round) -> Plan:
        kind = np.full(seen.job.size, WAITS)
        kind[next(turns) if seen.job.size > 1 else 0] = 0
        return Plan(kind, np.full(seen.job.size, ALONE))

    outcome = simulate(workload([0.0, 0.0], [200.0, 90.0], restart_s=20.0), policy)
    # job 1's only round is shorter than the others and is not charged; job 0 comes back and loses 20 s
    assert outcome.end_s.tolist() == [310.0, 190.0]
    assert outcome.restarts == 2


def test_two_on_a_device_run_at_their_measured_speeds_and_count_it_once() -> None:
    outcome = simulate(workload([0.0, 0.0], [60.0, 60.0]), lambda seen: Plan(np.array([0, 0]), np.array([1, 0])))
    assert outcome.end_s.tolist() == [100.0, 100.0]
    assert outcome.device_s == 100.0


def test_a_plan_for_more_devices_than_there_are_is_refused() -> None:
    with pytest.raises(ValueError, match="asks for"):
        run(workload([0.0, 0.0], [60.0, 60.0]), lambda seen: Plan(np.zeros(2, np.int64), np.full(2, ALONE)))


def test_a_policy_that_runs_nothing_is_found_out() -> None:
    with pytest.raises(ValueError, match="runs none"):
        run(workload([0.0], [60.0]), lambda seen: Plan(np.array([WAITS]), np.array([ALONE])))


def test_measures_are_over_the_window() -> None:
    case = workload([0.0, 0.0], [100.0, 100.0])
    found = run(case, first_come)
    assert found["jct_mean_s"] == 150.0
    assert found["queue_mean_s"] == 50.0
    assert found["utilization"] == 1.0
    assert found["completed_per_hour"] == 36.0
    assert run(replace(case, window=(0, 1)), first_come)["jct_mean_s"] == 100.0


def test_what_is_fair_is_counted_among_all_jobs_or_among_those_that_were_there() -> None:
    case = workload([0.0, 0.0, 900.0], [100.0, 100.0, 100.0])
    assert run(case, first_come)["ftf_worst"] == 200.0 / (100.0 * 1.5)  # of two, then one, for as long each
    assert run(replace(case, fair_among=3), first_come)["ftf_worst"] == 200.0 / (100.0 * 3)


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_every_policy_finishes_jobs_of_several_sizes(name: str) -> None:
    rng = np.random.default_rng(1)
    case = workload(
        np.sort(rng.uniform(0, 2000, 25)).tolist(),
        rng.uniform(50, 1500, 25).tolist(),
        rng.choice([1, 1, 2, 4], 25).tolist(),
        capacity=4,
    )
    outcome = simulate(case, POLICIES[name](0))
    assert not np.isnan(outcome.end_s).any()
    assert outcome.device_s <= 4 * outcome.makespan_s + 1e-6


def test_a_line_that_is_no_job_is_named(tmp_path: Path) -> None:
    table = tmp_path / "table.json"
    table.write_text('{"v100": {}, "p100": {}, "k80": {}}')
    trace = tmp_path / "t.trace"
    trace.write_text("LM (batch size 5)\tx\ty\t-n\t1\tmany\t1\t1\t-1\t0\n")
    with pytest.raises(BadDemand, match="line 1: steps is 'many'"):
        workloads.from_trace(trace, table)
    trace.write_text("LM (batch size 5)\tx\ty\t-n\t1\t10\t1\t1\t-1\t0\n")
    with pytest.raises(BadDemand, match="has no throughput"):
        workloads.from_trace(trace, table)
    trace.write_text("LM\t5\n")
    with pytest.raises(BadDemand, match="2 columns"):
        workloads.from_trace(trace, table)


def test_a_file_that_is_not_there_is_named() -> None:
    with pytest.raises(BadDemand, match=r"nowhere\.csv"):
        workloads.load("philly:nowhere.csv", DATA)


def test_philly_rows_become_jobs_in_order_of_arrival(tmp_path: Path) -> None:
    file = tmp_path / "jobs.csv"
    file.write_text(
        "timestamp,duration,num_gpus,gpu_time,cluster\n"
        "2017-10-09 07:01:00,60.0,1,60.0,a\n2017-10-09 07:00:00,120.0,8,960.0,b\n2017-10-09 07:00:00,0.0,1,0.0,b\n"
    )
    made = workloads.load(f"philly:{file}", DATA)
    assert made.jobs.arrival_s.tolist() == [0.0, 60.0]
    assert made.jobs.gpus.tolist() == [8, 1]
    file.write_text("timestamp,duration,num_gpus,gpu_time,cluster\n2017-10-09 07:01:00,soon,1,60.0,a\n")
    with pytest.raises(BadDemand, match="line 2"):
        workloads.load(f"philly:{file}", DATA)


def test_batches_grow_by_the_published_rules() -> None:
    assert batches("gns", "LM", 20, 1, 45)[10:12] == [20, 40]
    assert batches("gns", "LM", 20, 1, 45)[-1] == 80
    assert set(batches("gns", "ResNet-18", 128, 1, 40)) == {128, 256}
    assert batches("accordion", "ResNet-50", 64, 1, 32)[8:12] == [64, 64, 128, 128]
    assert batches("static", "LM", 5, 1, 3) == [5, 5, 5]


def test_run_times_alone_are_the_ones_the_authors_counted(traces: Path) -> None:
    alone_s = workloads.load("shockwave-120", traces).jobs.alone_s
    assert alone_s.size == 120
    assert alone_s[0] == pytest.approx(1224.785, rel=1e-4)
    assert alone_s[31] == pytest.approx(2072.205, rel=1e-4)


@pytest.mark.parametrize(("name", "published"), [("max-min", 11_274.0), ("finish-time-fair", 11_302.0)])
def test_baselines_give_the_published_completion_time(traces: Path, name: str, published: float) -> None:
    case = workloads.load("shockwave-120", traces)
    assert run(case, POLICIES[name](0))["jct_mean_s"] == pytest.approx(published, rel=0.10)


def test_ours_is_better_than_every_published_policy_in_both_respects(traces: Path) -> None:
    case = workloads.load("shockwave-120", traces)
    found = run(case, POLICIES["gpushare"](0))
    assert found["jct_mean_s"] < 9_655
    assert found["ftf_worst"] < 1.78


def test_the_jobs_of_a_seed_are_the_authors(traces: Path) -> None:
    case = workloads.gavel_single(traces, jobs=5000)
    assert case.jobs.alone_s[4000:].mean() / 3600 == pytest.approx(17.4146, rel=1e-4)
    draw: Callable[[int], Workload] = lambda seed: workloads.gavel_single(traces, seed, jobs=10)  # noqa: E731
    assert draw(1).jobs.work.tolist() == draw(1).jobs.work.tolist() != draw(2).jobs.work.tolist()
