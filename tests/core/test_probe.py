"""What a session's first bursts tell of it, on labelled bursts with noise and with values missing."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpushare.core.probe import UNKNOWN, Belief, Burst, observe
from jupyter_gpushare.model import HORIZONS
from jupyter_gpushare.simulator.workloads import bursts

COMPUTE = Burst(duration_s=10, gap_s=60, utilization=0.95, memory_utilization=0.2, pcie_gb_s=0.2, memory_growth=0.0)
DATA = Burst(duration_s=10, gap_s=60, utilization=0.5, memory_utilization=0.8, pcie_gb_s=8.0, memory_growth=0.4)


def seen(*bursts: Burst) -> Belief:
    belief = UNKNOWN
    for burst in bursts:
        belief = observe(belief, burst)
    return belief


def test_an_unknown_session_is_unknown_bursty_and_trusted_with_nothing() -> None:
    assert (UNKNOWN.kind, UNKNOWN.horizon, UNKNOWN.compute_p, UNKNOWN.confidence) == ("unknown", "bursty", 0.5, 0.0)


def test_two_clear_bursts_are_enough() -> None:
    assert seen(COMPUTE, COMPUTE).kind == "compute"
    assert seen(DATA, DATA).kind == "data"


def test_one_burst_never_is() -> None:
    assert seen(COMPUTE).kind == "unknown"


@pytest.mark.parametrize("name", ["utilization", "memory_utilization", "pcie_gb_s", "memory_growth"])
def test_a_feature_that_was_not_read_is_not_a_zero(name: str) -> None:
    belief = seen(replace(DATA, **{name: None}), replace(DATA, **{name: None}))
    assert belief.kind == "data"


def test_a_burst_of_which_nothing_was_read_says_nothing_of_the_kind() -> None:
    belief = seen(Burst(duration_s=5.0))
    assert (belief.compute_p, belief.confidence, belief.telling, belief.bursts) == (0.5, 0.0, 0, 1)


def test_a_burst_that_left_its_device_alone_says_nothing_of_the_kind() -> None:
    quiet = Burst(duration_s=5.0, utilization=0.0, memory_utilization=0.0, pcie_gb_s=0.0, memory_growth=0.0)
    assert seen(*[quiet] * 10).kind == "unknown"


def test_a_session_that_changes_its_work_changes_its_kind() -> None:
    assert seen(*[COMPUTE] * 50, *[DATA] * 4).kind == "data"


burst = st.builds(
    Burst,
    duration_s=st.floats(0, 1e6),
    gap_s=st.none() | st.floats(0, 1e6),
    utilization=st.none() | st.floats(0, 1),
    memory_utilization=st.none() | st.floats(0, 1),
    pcie_gb_s=st.none() | st.floats(0, 64),
    memory_growth=st.none() | st.floats(0, 1),
)


@given(st.lists(burst, max_size=20))
def test_a_belief_is_made_of_probabilities_and_nothing_is_ever_ruled_out(some: list[Burst]) -> None:
    belief = seen(*some)
    assert 0.0 < belief.compute_p < 1.0
    assert 0.0 <= belief.confidence < 1.0
    assert sum(belief.horizon_p) == pytest.approx(1.0)
    assert min(belief.horizon_p) >= 0.0099
    assert belief.bursts == len(some) >= belief.telling


@given(st.lists(burst, max_size=10), burst)
def test_confidence_never_falls_with_another_burst(some: list[Burst], more: Burst) -> None:
    assert seen(*some, more).confidence >= seen(*some).confidence


@given(st.lists(burst, max_size=10), burst)
def test_one_burst_never_turns_what_six_clear_ones_told(some: list[Burst], stray: Burst) -> None:
    for clear, other in ((COMPUTE, "data"), (DATA, "compute")):
        assert seen(*some, *[clear] * 6, stray).kind != other


def accuracy(labels: tuple[str, ...], draw: object, count: int, read: str, noise: float, strays: float) -> float:
    """The part of 400 sessions that is told rightly after so many bursts, on a fixed seed."""
    rng = random.Random(7)
    right = 0
    for i in range(400):
        label = labels[i % len(labels)]
        right += getattr(seen(*(draw(label, rng, noise, strays) for _ in range(count))), read) == label  # type: ignore[operator]
    return right / 400


# Floors a little below what benchmarks/estimates.py finds over ten seeds.
@pytest.mark.parametrize(
    ("noise", "strays", "floors"),
    [(0.0, 0.0, {3: 0.78, 5: 0.87, 8: 0.92}), (0.3, 0.1, {3: 0.62, 5: 0.72, 8: 0.78, 20: 0.85})],
)
def test_kinds_are_told_apart_within_a_few_bursts(noise: float, strays: float, floors: dict[int, float]) -> None:
    found = {count: accuracy(bursts.KINDS, bursts.of_kind, count, "kind", noise, strays) for count in floors}
    assert all(found[count] >= floor for count, floor in floors.items()), found


@pytest.mark.parametrize(
    ("noise", "strays", "floors"), [(0.0, 0.0, {1: 0.92, 3: 0.97}), (0.3, 0.1, {1: 0.82, 3: 0.90, 5: 0.94})]
)
def test_horizons_are_told_apart_within_a_few_bursts(noise: float, strays: float, floors: dict[int, float]) -> None:
    found = {count: accuracy(HORIZONS, bursts.of_horizon, count, "horizon", noise, strays) for count in floors}
    assert all(found[count] >= floor for count, floor in floors.items()), found
