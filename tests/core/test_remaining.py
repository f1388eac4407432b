"""How long a burst goes on: from its own past, from what was said, from others; and that the odds are what they say."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpushare.core.remaining import POINTS, ends_within, left_s, typical
from jupyter_gpushare.core.state import Floats

NAN = float("nan")
seconds = st.floats(1e-2, 1e6)
history = st.lists(seconds, max_size=6)


def left(own: list[float], elapsed: float, quantile: float = 0.5, told: float = NAN, others: object = ()) -> float:
    found = left_s(table(own), np.array([told]), np.array([elapsed]), np.array(others, dtype=float), quantile)
    return float(found[0])


def within(own: list[float], elapsed: float, horizon: float, told: float = NAN, others: object = ()) -> float:
    times = [np.array([value]) for value in (told, elapsed, horizon)]
    return float(ends_within(table(own), times[0], times[1], np.array(others, dtype=float), times[2])[0])


def table(own: list[float]) -> Floats:
    return np.array([[*own, NAN]], dtype=float)


def test_a_session_that_takes_ten_minutes_each_time_has_five_left_after_five():
    assert left([600.0] * 8, 300.0) == pytest.approx(300.0, rel=0.15)


def test_what_was_said_counts_until_it_is_disproved():
    assert left([], 100.0, told=400.0) == pytest.approx(300.0, rel=0.15)
    assert left([600.0] * 16, 300.0, told=100.0) == pytest.approx(300.0, rel=0.25)


def test_a_new_session_lasts_as_those_of_others_do():
    assert left([], 0.0, others=[100.0] * 20) == pytest.approx(100.0, rel=0.1)
    assert left([600.0] * 8, 0.0, others=[10.0] * 20) > 300.0


def test_what_outlasts_everything_seen_is_expected_to_last_on_in_proportion():
    short, long_ = left([10.0] * 4, 1e4), left([10.0] * 4, 1e5)
    assert short > 1e3
    assert long_ > 5 * short


def test_two_sorts_of_burst_are_not_averaged():
    """Half take a second, half an hour: once it has lasted ten seconds it is one of the long ones."""
    assert left([1.0] * 8 + [3600.0] * 8, 10.0) > 3000.0


@given(history, st.floats(0, 1e6), history, st.floats(0.05, 0.9), st.floats(0.01, 0.09))
def test_a_higher_quantile_is_never_sooner(
    own: list[float], elapsed: float, others: list[float], q: float, more: float
):
    assert left(own, elapsed, q, others=others) <= left(own, elapsed, q + more, others=others) + 1e-9


@given(history, st.floats(0, 1e6), history, seconds, seconds)
def test_a_chance_to_end_is_a_probability_that_grows_with_time(
    own: list[float], elapsed: float, others: list[float], horizon: float, more: float
):
    assert within(own, elapsed, 0.0, others=others) == 0.0
    first, later = within(own, elapsed, horizon, others=others), within(own, elapsed, horizon + more, others=others)
    assert 0.0 <= first <= later + 1e-12
    assert later <= 1.0


@given(history, st.floats(0, 1e5), history, st.floats(0.05, 0.95))
def test_a_quantile_is_where_the_chance_is_that_much(own: list[float], elapsed: float, others: list[float], q: float):
    assert within(own, elapsed, left(own, elapsed, q, others=others), others=others) == pytest.approx(q, abs=1e-5)


@given(st.lists(history, min_size=1, max_size=5))
def test_rows_do_not_see_each_other(own: list[list[float]]):
    rows = np.full((len(own), 6), np.nan)
    for row, lengths in enumerate(own):
        rows[row, : len(lengths)] = lengths
    elapsed, told = np.full(len(own), 5.0), np.full(len(own), np.nan)
    together = left_s(rows, told, elapsed, np.zeros(0), 0.5)
    assert together == pytest.approx([left(lengths, 5.0) for lengths in own], rel=1e-5)


def test_what_is_typical_is_summed_up_by_its_quantiles():
    rng = np.random.default_rng(1)
    many = np.exp(rng.normal(4.0, 1.5, (500, 16)))
    many[::3, 5:] = np.nan
    found = typical(many)

    assert found.size == POINTS
    assert (np.diff(found) >= 0).all()
    assert np.median(found) == pytest.approx(np.nanmedian(many), rel=0.1)
    assert typical(np.full((3, 4), np.nan)).size == 0
    assert typical(np.array([[2.0, np.nan, 1.0]])).tolist() == [1.0, 2.0]


@pytest.mark.parametrize("quantile", [0.25, 0.5, 0.75, 0.9])
@pytest.mark.parametrize("elapsed", [0.0, 60.0])
def test_as_many_bursts_end_in_time_as_was_said(quantile: float, elapsed: float):
    """Of sessions of two habits, each with its own pace, seen eight bursts long: the odds hold to within 8 points."""
    rng = np.random.default_rng(3)
    size = 3000
    pace = np.exp(rng.normal(4.5, 1.0, size))
    spread = rng.choice([0.4, 0.9], size)
    length = np.exp(np.log(pace)[:, None] + spread[:, None] * rng.standard_normal((size, 9)))
    own, now = length[:, :8], length[:, 8]
    going = now > elapsed
    promised = left_s(
        own[going], np.full(going.sum(), np.nan), np.full(going.sum(), elapsed), typical(length[:, :8]), quantile
    )
    assert np.mean(now[going] - elapsed <= promised) == pytest.approx(quantile, abs=0.08)
