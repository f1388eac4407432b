"""Weighted max-min shares: bounds, conservation, fairness, and one device at a time or all at once."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpushare.core.shares import fill_devices, water_fill

fraction = st.floats(0.0, 1.0)


@st.composite
def sessions(draw: st.DrawFn, most: int = 8) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    size = draw(st.integers(0, most))
    rows = draw(st.lists(st.tuples(fraction, fraction, st.floats(0.01, 100.0)), min_size=size, max_size=size))
    table = np.array(rows, dtype=float).reshape(size, 3)
    return table[:, :2].min(axis=1), table[:, :2].max(axis=1), table[:, 2]


@given(sessions(), fraction)
def test_shares_keep_bounds_and_hand_out_all_that_can_be_used(
    asked: tuple[np.ndarray, np.ndarray, np.ndarray], capacity: float
) -> None:
    guarantee, ceiling, weight = asked
    shares = water_fill(guarantee, ceiling, weight, capacity)
    assert shares.sum() <= capacity + 1e-9
    assert (shares >= 0).all()
    assert (shares <= ceiling + 1e-9).all()
    if guarantee.sum() <= capacity:
        assert (shares >= guarantee - 1e-9).all()
        assert shares.sum() == pytest.approx(min(capacity, ceiling.sum()), abs=1e-9)
    else:  # over-promised: all are cut alike, nothing is left over
        assert shares == pytest.approx(guarantee * capacity / guarantee.sum(), abs=1e-9)


@given(sessions(), fraction)
def test_nobody_gets_more_per_weight_while_another_could_still_use_it(
    asked: tuple[np.ndarray, np.ndarray, np.ndarray], capacity: float
) -> None:
    """The definition of max-min fairness: who lies above the common level is held there by the guarantee alone."""
    guarantee, ceiling, weight = asked
    shares = water_fill(guarantee, ceiling, weight, capacity)
    hungry = shares < ceiling - 1e-6
    if guarantee.sum() <= capacity and hungry.any():
        level = (shares / weight)[hungry].max()
        generous = shares / weight > level + 1e-6
        assert (shares[generous] <= guarantee[generous] + 1e-6).all()
        lifted = hungry & (shares > guarantee + 1e-6)
        if lifted.any():
            assert np.ptp((shares / weight)[lifted]) < 1e-6 * max(1.0, level)


def test_a_known_division_by_hand() -> None:
    shares = water_fill(np.array([0.1, 0.0, 0.3]), np.array([1.0, 1.0, 0.3]), np.array([1.0, 2.0, 1.0]), 1.0)
    assert shares == pytest.approx([7 / 30, 14 / 30, 0.3])


def test_a_borrowed_lease_shrinks_to_nothing_when_the_holders_are_back() -> None:
    shares = water_fill(np.array([0.5, 0.5, 0.0]), np.ones(3), np.ones(3), 1.0)
    assert shares == pytest.approx([0.5, 0.5, 0.0])


@pytest.mark.parametrize("capacity", [0.0, 1.0])
def test_nobody_there_is_no_share(capacity: float) -> None:
    assert water_fill(np.zeros(0), np.zeros(0), np.zeros(0), capacity).shape == (0,)


def test_without_capacity_everybody_has_zero() -> None:
    assert water_fill(np.array([0.1]), np.array([1.0]), np.ones(1), 0.0).tolist() == [0.0]


@given(
    st.lists(st.tuples(st.integers(0, 4), fraction, fraction, st.floats(0.01, 100.0), st.booleans()), max_size=25),
)
def test_all_devices_at_once_are_each_device_alone(rows: list[tuple[int, float, float, float, bool]]) -> None:
    table = np.array(rows, dtype=float).reshape(len(rows), 5)
    device, taking = table[:, 0].astype(np.int64), table[:, 4].astype(bool)
    guarantee, ceiling, weight = table[:, 1:3].min(axis=1), table[:, 1:3].max(axis=1), table[:, 3]
    shares = fill_devices(device, guarantee, ceiling, weight, taking, 6)
    for row in range(6):
        here = device == row
        burst, idle = here & taking, here & ~taking
        assert shares[here].sum() <= 1.0 + 1e-9
        alone = water_fill(guarantee[burst], ceiling[burst], weight[burst], 1.0)
        assert shares[burst] == pytest.approx(alone, abs=1e-9)
        left = max(0.0, 1.0 - alone.sum())
        rest = water_fill(np.zeros(idle.sum()), guarantee[idle], weight[idle], left)
        assert shares[idle] == pytest.approx(rest, abs=1e-9)


def test_an_idle_holder_has_what_bursts_leave_of_its_guarantee() -> None:
    shares = fill_devices(
        np.zeros(2, np.int64),
        np.array([0.1, 0.6]),
        np.array([0.8, 1.0]),
        np.ones(2),
        np.array([True, False]),
        1,
    )
    assert shares == pytest.approx([0.8, 0.2])
