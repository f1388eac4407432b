"""Targets grow and shrink with use, hold still in between, and ignore what is not known."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpushare.core.elastic import smooth, targets
from jupyter_gpushare.core.policy import Policy
from tests.core.builders import GPU, NAN, Held, Notebook, World

NOW, POLICY = 1000.0, Policy(window_s=30.0)


def target(
    *,
    use: float,
    share: float = 0.2,
    was: float = 0.2,
    stood: float = 60.0,
    contended: bool = False,
    burst: bool = True,
) -> float:
    """The new target of a session with guarantee 0.1 and limit 1."""
    held = Held(lease=True, share=share, target=was, share_since=NOW - stood, use=use)
    notebook = Notebook("n", state="active" if burst else "idle", bursting=burst, on={"a": held})
    state = World([GPU("a")], [notebook], now=NOW).state()
    found = targets(state.placements, state.sessions, state.sessions.bursting, np.array([contended]), NOW, POLICY)
    return float(found[0])


def test_a_session_that_uses_its_share_gets_twice_the_target() -> None:
    assert target(use=0.185) == pytest.approx(0.4)


def test_a_target_never_passes_the_limit() -> None:
    assert target(use=0.8, share=0.8, was=0.8) == 1.0


def test_a_session_that_leaves_its_share_shrinks_only_where_somebody_waits() -> None:
    assert target(use=0.05) == 0.2
    assert target(use=0.05, contended=True) == 0.1


def test_a_target_never_falls_below_the_guarantee() -> None:
    assert target(use=0.0, share=0.15, was=0.15, contended=True) == pytest.approx(0.1)


@pytest.mark.parametrize("use", [0.19, 0.05])
def test_a_target_stands_for_the_window_before_it_changes(use: float) -> None:
    assert target(use=use, stood=29.9, contended=True) == 0.2


@pytest.mark.parametrize("contended", [True, False])
def test_unknown_use_changes_nothing(contended: bool) -> None:
    assert target(use=NAN, contended=contended) == 0.2


def test_an_idle_session_keeps_its_target_for_its_return() -> None:
    assert target(use=0.0, contended=True, burst=False) == 0.2


def test_an_unknown_session_starts_at_its_guarantee() -> None:
    assert target(use=NAN, was=NAN) == pytest.approx(0.1)


@given(st.floats(0, 1), st.floats(0, 1), st.floats(0, 1), st.floats(0, 100), st.booleans())
def test_a_target_stays_between_guarantee_and_limit(
    use: float, share: float, was: float, stood: float, contended: bool
) -> None:
    new = target(use=use, share=share, was=was, stood=stood, contended=contended)
    assert 0.1 - 1e-12 <= new <= 1.0
    assert new in (
        pytest.approx(max(was, 0.1)),
        pytest.approx(max(max(was, 0.1) / 2, 0.1)),
        pytest.approx(min(1, 2 * max(was, 0.1))),
    )


@given(st.floats(0, 1), st.floats(0, 1), st.floats(0, 100), st.floats(0, 100))
def test_two_steps_with_one_sample_are_one_step_of_their_sum(
    value: float, sample: float, first_s: float, second_s: float
) -> None:
    start, read = np.array([value]), np.array([sample])
    twice = smooth(smooth(start, read, first_s, 30.0), read, second_s, 30.0)
    assert twice == pytest.approx(smooth(start, read, first_s + second_s, 30.0), abs=1e-12)


@given(st.floats(0, 1), st.floats(0, 1), st.floats(-10, 1000))
def test_a_mean_lies_between_what_it_was_and_what_was_read(value: float, sample: float, dt_s: float) -> None:
    new = float(smooth(np.array([value]), np.array([sample]), dt_s, 30.0)[0])
    assert min(value, sample) - 1e-12 <= new <= max(value, sample) + 1e-12


def test_an_unknown_sample_is_not_a_zero() -> None:
    assert smooth(np.array([0.8]), np.array([NAN]), 30.0, 30.0).tolist() == [0.8]


def test_a_first_sample_is_the_mean_and_nothing_known_stays_unknown() -> None:
    new = smooth(np.array([NAN, NAN]), np.array([0.4, NAN]), 1.0, 30.0)
    assert new[0] == 0.4
    assert math.isnan(new[1])
