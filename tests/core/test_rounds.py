"""The plan of a round: what it must never do, and what it is for."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from jupyter_gpushare.core.policy import Weights
from jupyter_gpushare.core.rounds import ALONE, WAITS, WIDE, Plan, plan, urgency


@st.composite
def rounds(draw: st.DrawFn, most: int = 9) -> dict[str, np.ndarray | None]:
    n, k = draw(st.integers(1, most)), draw(st.integers(1, 3))
    positive = st.floats(0.01, 1.0)
    speed = draw(arrays(float, (n, k), elements=st.one_of(st.just(0.0), positive)))
    beside = draw(st.none() | arrays(float, (n, n, k), elements=st.one_of(st.just(0.0), positive)))
    return {
        "urgent": draw(arrays(float, n, elements=positive)),
        "speed": speed,
        "gpus": draw(arrays(np.int64, n, elements=st.sampled_from([1, 1, 2, 4]))),
        "capacity": draw(arrays(np.int64, k, elements=st.integers(0, 5))),
        "beside": beside,
    }


def value(case: dict[str, np.ndarray | None], made: Plan) -> float:
    """What a plan is worth by its own measure."""
    total = 0.0
    for i, (kind, partner) in enumerate(zip(made.kind, made.partner, strict=True)):
        if kind != WAITS:
            speed = case["speed"][i, kind] if partner == ALONE else case["beside"][i, partner, kind]
            total += case["urgent"][i] * case["gpus"][i] ** WIDE * speed
    return total


def devices_taken(case: dict[str, np.ndarray | None], made: Plan) -> np.ndarray:
    first = (made.kind != WAITS) & ((made.partner == ALONE) | (made.partner > np.arange(made.kind.size)))
    return np.bincount(made.kind[first], case["gpus"][first], case["capacity"].size)


@given(rounds())
def test_no_plan_asks_for_more_devices_than_there_are(case: dict) -> None:
    assert (devices_taken(case, plan(**case)) <= case["capacity"]).all()


@given(rounds())
def test_a_job_runs_only_where_it_makes_progress(case: dict) -> None:
    made = plan(**case)
    for i in np.flatnonzero(made.kind != WAITS):
        beside = case["speed"][i] if made.partner[i] == ALONE else case["beside"][i, made.partner[i]]
        assert beside[made.kind[i]] > 0


@given(rounds())
def test_two_that_share_devices_name_each_other_and_are_of_one_size(case: dict) -> None:
    made = plan(**case)
    for i in np.flatnonzero(made.partner != ALONE):
        other = made.partner[i]
        assert made.partner[other] == i
        assert made.kind[other] == made.kind[i]
        assert case["gpus"][other] == case["gpus"][i]


@given(rounds())
def test_no_device_idles_while_a_job_waits_that_fits_on_it(case: dict) -> None:
    made = plan(**case)
    free = case["capacity"] - devices_taken(case, made)
    for i in np.flatnonzero(made.kind == WAITS):
        assert not ((case["gpus"][i] <= free) & (case["speed"][i] > 0)).any()


@given(rounds())
def test_the_same_input_gives_the_same_plan(case: dict) -> None:
    one, other = plan(**case), plan(**case)
    assert one.kind.tolist() == other.kind.tolist()
    assert one.partner.tolist() == other.partner.tolist()


@given(rounds())
def test_an_earlier_plan_is_only_a_start(case: dict) -> None:
    n, k = case["speed"].shape
    absurd = Plan(np.arange(n) % k, np.full(n, ALONE))  # over capacity, where it runs at no speed
    if (case["gpus"] == 1).all() and n <= int(case["capacity"].min(initial=9)):
        assert (devices_taken(case, plan(**case, before=absurd)) <= case["capacity"]).all()


def test_a_round_without_jobs_is_an_empty_plan() -> None:
    made = plan(np.zeros(0), np.zeros((0, 2)), np.zeros(0, np.int64), np.array([1, 1]))
    assert made.kind.size == made.partner.size == 0


def test_alone_on_one_kind_the_most_urgent_jobs_run() -> None:
    urgent = np.array([0.1, 0.9, 0.5, 0.7])
    made = plan(urgent, np.ones((4, 1)), np.ones(4, np.int64), np.array([2]))
    assert made.kind.tolist() == [WAITS, 0, WAITS, 0]


def test_each_job_goes_where_it_loses_least_not_where_it_is_fastest() -> None:
    speed = np.array([[1.0, 0.9], [1.0, 0.1]])  # both like the first kind best; the second cannot do without it
    made = plan(np.array([1.0, 0.8]), speed, np.ones(2, np.int64), np.array([1, 1]))
    assert made.kind.tolist() == [1, 0]


def test_two_share_a_device_when_together_they_do_more() -> None:
    beside = np.full((2, 2, 1), 0.7)
    made = plan(np.ones(2), np.ones((2, 1)), np.ones(2, np.int64), np.array([1]), beside)
    assert made.partner.tolist() == [1, 0]
    made = plan(np.ones(2), np.ones((2, 1)), np.ones(2, np.int64), np.array([1]), 0.6 * beside)
    assert sorted(made.kind.tolist()) == [WAITS, 0]


def test_a_job_for_four_devices_is_not_starved_by_small_ones_of_less_urgency() -> None:
    urgent = np.array([0.3, 0.3, 0.3, 0.3, 1.0])
    made = plan(urgent, np.ones((5, 1)), np.array([1, 1, 1, 1, 4]), np.array([4]))
    assert made.kind.tolist() == [WAITS] * 4 + [0]


@given(rounds(most=5).filter(lambda case: (case["gpus"] == 1).all()))
def test_without_sharing_the_plan_is_close_to_the_best_there_is(case: dict) -> None:
    case["beside"] = None
    n, k = case["speed"].shape
    best = 0.0
    for kinds in itertools.product(range(-1, k), repeat=n):
        other = Plan(np.array(kinds), np.full(n, ALONE))
        if (devices_taken(case, other) <= case["capacity"]).all():
            best = max(best, value(case, other))
    assert value(case, plan(**case)) >= 0.9 * best


def test_urgency_prefers_the_short_and_the_late_and_follows_the_weights() -> None:
    left, age, one = np.array([100.0, 1000.0, 100.0]), np.array([0.0, 0.0, 300.0]), np.ones(3, np.int64)
    short, long, late = urgency(left, left, age, one, 1, Weights())
    assert late == 1.0
    assert late > short > long
    ignored = urgency(left, left, age, one, 1, Weights(completion=0.0, fairness=0.0))
    assert ignored.tolist() == [1.0, 1.0, 1.0]
    fair = urgency(left, left, age, one, 1, Weights(fairness=3.0))
    assert fair[0] / fair[2] < short / late


def test_what_alone_takes_longer_than_all_work_shared_out_is_urgent() -> None:
    left, one = np.array([100.0] * 8 + [1000.0]), np.ones(9, np.int64)
    few = urgency(left, left, np.zeros(9), one, 1, Weights())
    many = urgency(left, left, np.zeros(9), one, 4, Weights())  # 1800 s of work: 450 s if shared out evenly
    assert few[-1] < few[0]
    assert many[-1] > many[0]
    assert urgency(left, left, np.zeros(9), one, 4, Weights(utilization=0.0))[-1] == few[-1]
