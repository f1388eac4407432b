"""What a session's first bursts tell of it, on labelled bursts with noise and with values missing."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpushare.core.probe import UNKNOWN, Belief, Burst, observe
from jupyter_gpushare.model import HORIZONS

COMPUTE = Burst(duration_s=10, gap_s=60, utilization=0.95, memory_utilization=0.2, pcie_gb_s=0.2, memory_growth=0.0)
DATA = Burst(duration_s=10, gap_s=60, utilization=0.5, memory_utilization=0.8, pcie_gb_s=8.0, memory_growth=0.4)


def seen(*bursts: Burst) -> Belief:
    belief = UNKNOWN
    for burst in bursts:
        belief = observe(belief, burst)
    return belief


def noisy(kind: str, draw: random.Random) -> Burst:
    """A burst of that kind. Distributions of its own, overlapping more than those the probe assumes."""
    compute = kind == "compute"
    values = {
        "utilization": draw.uniform(0.6, 1.0) if compute else draw.uniform(0.25, 0.9),
        "memory_utilization": draw.gauss(0.32, 0.14) if compute else draw.gauss(0.58, 0.18),
        "pcie_gb_s": draw.expovariate(1 / 1.0) if compute else draw.expovariate(1 / 4.0),
        "memory_growth": draw.expovariate(1 / 0.08) if compute else draw.expovariate(1 / 0.2),
    }
    read = {name: min(max(value, 0.0), 25.0) for name, value in values.items() if draw.random() > 0.25}
    return Burst(duration_s=draw.lognormvariate(2, 1), gap_s=draw.lognormvariate(4, 1), **read)


def timed(horizon: str, draw: random.Random) -> Burst:
    if horizon == "short":
        return Burst(duration_s=draw.lognormvariate(4.2, 0.6), gap_s=draw.uniform(2, 30))
    if horizon == "long":
        return Burst(duration_s=draw.lognormvariate(8.0, 0.8), gap_s=draw.uniform(5, 300))
    return Burst(duration_s=draw.lognormvariate(1.6, 1.0), gap_s=draw.lognormvariate(3.9, 1.0))


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
def test_a_belief_is_made_of_probabilities_and_nothing_is_ever_ruled_out(bursts: list[Burst]) -> None:
    belief = seen(*bursts)
    assert 0.0 < belief.compute_p < 1.0
    assert 0.0 <= belief.confidence < 1.0
    assert sum(belief.horizon_p) == pytest.approx(1.0)
    assert min(belief.horizon_p) >= 0.0099
    assert belief.bursts == len(bursts) >= belief.telling


@given(st.lists(burst, max_size=10), burst)
def test_confidence_never_falls_with_another_burst(bursts: list[Burst], more: Burst) -> None:
    assert seen(*bursts, more).confidence >= seen(*bursts).confidence


def accuracy(labels: list[str], make: object, bursts: int, read: str, sessions: int = 400) -> float:
    draw = random.Random(7)
    right = 0
    for i in range(sessions):
        label = labels[i % len(labels)]
        right += getattr(seen(*(make(label, draw) for _ in range(bursts))), read) == label  # type: ignore[operator]
    return right / sessions


def test_noisy_sessions_are_told_apart_within_five_bursts() -> None:
    found = {n: accuracy(["compute", "data"], noisy, n, "kind") for n in (2, 3, 5, 8)}
    print("kind right after n bursts:", found)
    assert found[3] >= 0.75
    assert found[5] >= 0.85
    assert found[8] >= 0.93


def test_horizons_are_told_within_five_bursts() -> None:
    found = {n: accuracy(list(HORIZONS), timed, n, "horizon") for n in (1, 3, 5)}
    print("horizon right after n bursts:", found)
    assert found[3] >= 0.9
    assert found[5] >= 0.95
