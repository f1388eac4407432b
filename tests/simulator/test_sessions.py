"""The engine: what cells wait for, what policies hold, and what nothing may lose."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jupyter_gpushare.model import Demand
from jupyter_gpushare.simulator.cluster import GIB
from jupyter_gpushare.simulator.costs import COSTS
from jupyter_gpushare.simulator.outcome import Outcome, figures
from jupyter_gpushare.simulator.policies.sessions import POLICIES
from jupyter_gpushare.simulator.script import Script, Workload
from jupyter_gpushare.simulator.sessions import simulate
from jupyter_gpushare.simulator.speeds import split
from jupyter_gpushare.simulator.workloads import notebooks


def script(name: str, cells: list[tuple[float, float]], gpus: float = 1.0, memory: float = 10 * GIB) -> Script:
    """A session with cells of (submit, work)."""
    submit, work = (np.array([cell[i] for cell in cells]) for i in (0, 1))
    return Script(
        id=name,
        user=name,
        demand=Demand(gpus=gpus, memory=int(memory)),
        opens_s=0.0,
        closes_s=float(submit[-1] + work[-1]) + 100.0,
        submit_s=submit,
        work_s=work,
        memory=memory,
        uses=int(np.ceil(gpus)),
        bandwidth=0.0,
    )


def run(scripts: list[Script], policy: str, on: str = "1x1xA100", until_s: float = 1e5) -> Outcome:
    return simulate(Workload(name="test", cluster=on, until_s=until_s, scripts=tuple(scripts)), POLICIES[policy])


ALONE = script("n", [(10.0, 100.0), (1000.0, 50.0)])


def test_under_a_reservation_only_the_start_can_wait_and_the_device_is_held_for_life() -> None:
    outcome = run([ALONE], "static")
    assert outcome.delay[1] == 0.0
    assert outcome.held_s == pytest.approx(1150.0, abs=1.0)


def test_an_oracle_reserves_from_the_first_cell_to_the_last() -> None:
    assert run([ALONE], "static-first-to-last").held_s == pytest.approx(1040.0, abs=1.0)


def test_bound_to_cells_a_device_is_held_while_it_computes_and_while_memory_moves() -> None:
    outcome = run([ALONE], "notebookos")
    move = COSTS.move_s(10 * GIB, 25.0)
    assert outcome.delay[1] == pytest.approx(move + COSTS.ask_s)
    assert outcome.held_s == pytest.approx(150.0 + COSTS.context_s + 3 * move, abs=0.1)


def test_a_culled_kernel_gives_its_device_back_and_loses_its_state() -> None:
    outcome = run([script("n", [(0.0, 10.0), (9000.0, 10.0)])], "idle-culler")
    assert outcome.lost == {0}
    assert not np.isnan(outcome.finish).any()


def test_ours_keeps_an_idle_session_where_nobody_waits_and_parks_it_where_always_is_asked() -> None:
    assert run([ALONE], "gpushare").parks == 0
    always = run([ALONE], "gpushare-always")
    assert always.parks >= 1
    assert always.lost == set()
    assert always.held_s < run([ALONE], "gpushare").held_s


def test_a_cell_waits_for_its_device_not_for_the_cell_before_it() -> None:
    outcome = run([script("n", [(0.0, 100.0), (10.0, 5.0)])], "gpushare")
    assert outcome.start[1] >= 100.0
    assert outcome.delay[1] <= 0.1


def test_where_nobody_minds_memory_a_cell_fails() -> None:
    crowd = [script(f"n{i}", [(10.0 * i, 100.0)], memory=50 * GIB) for i in range(2)]
    assert run(crowd, "timeslice").failed == 1
    assert run(crowd, "gpushare").failed == 0


def test_two_that_compute_on_one_device_divide_its_time() -> None:
    outcome = run([script(f"n{i}", [(0.0, 100.0)]) for i in range(2)], "timeslice")
    each = (100.0 + COSTS.context_s) * 2 / COSTS.neighbour
    assert outcome.finish.tolist() == pytest.approx([each, each], rel=0.05)


def test_who_holds_the_guarantee_computes_at_its_own_pace_however_many_borrow_beside_it() -> None:
    """Those that get little of the device's time move little of their memory, so its bandwidth stays the holder's."""
    crowd = [replace(script(f"n{i}", [(200.0 * i, 1e4)]), compute=0.6, bandwidth=0.6) for i in range(5)]
    outcome = run(crowd, "gpushare")
    assert (outcome.start < 5000.0).sum() > 1
    assert outcome.finish[0] - outcome.start[0] < (1e4 + COSTS.context_s) / COSTS.neighbour * 1.02


@given(
    st.lists(st.tuples(st.floats(0.0, 1.0), st.floats(0.02, 1.0)), min_size=1, max_size=6).map(
        lambda x: list(zip(*x, strict=True))
    )
)
def test_a_devices_time_is_divided_without_rest(asked: list[tuple[float, ...]]) -> None:
    wants, weights = asked
    parts = split(wants, weights)
    assert all(part <= want + 1e-9 for part, want in zip(parts, wants, strict=True))
    assert sum(parts) == pytest.approx(min(1.0, sum(wants)), abs=1e-9)


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from(sorted(POLICIES)))
def test_whatever_the_policy_no_device_is_used_twice_over_and_what_ran_had_its_work(seed: int, policy: str) -> None:
    rng = np.random.default_rng(seed)
    scripts = []
    for i in range(6):
        submit = np.sort(rng.uniform(0.0, 5000.0, 4))
        cells = [(float(at), float(rng.uniform(1.0, 400.0))) for at in submit]
        memory = float(rng.uniform(1.0, 30.0)) * GIB
        scripts.append(script(f"n{i}", cells, gpus=float(rng.choice([0.3, 0.5, 1.0, 2.0])), memory=memory))
    outcome = run(scripts, policy, on="1x2xA100", until_s=20_000.0)
    found = figures(outcome)

    assert 0.0 <= (found["utilization"] or 0.0) <= 1.0
    assert outcome.held_s <= 2 * 20_000.0 + 1e-6
    ran = ~np.isnan(outcome.finish)
    work = np.concatenate([each.work_s for each in scripts])
    assert (outcome.finish - outcome.start >= work - 1e-6)[ran].all()
    if policy.startswith("gpushare"):
        assert ran.all()
        assert outcome.lost == set()


def test_the_same_workload_and_policy_give_the_same_figures() -> None:
    workload = notebooks.load(seed=3, sessions=12)
    one, again = (figures(simulate(workload, POLICIES["gpushare"])) for _ in range(2))
    assert one == again
