"""Figures come under the contract's names, and say nothing where they do not apply."""

from __future__ import annotations

import json
import math

import pytest

from jupyter_gpushare.simulator.metrics import METRICS, jain, mean_ci, metrics, percentile


def test_every_name_is_there_and_what_does_not_apply_is_none() -> None:
    found = metrics(jain=0.5)
    assert list(found) == list(METRICS)
    assert found["jain"] == 0.5
    assert {value for name, value in found.items() if name != "jain"} == {None}
    json.dumps(found, allow_nan=False)


def test_a_name_that_is_no_metric_is_an_error() -> None:
    with pytest.raises(KeyError, match="speed"):
        metrics(speed=1.0)


def test_jain_is_one_for_equals_and_one_over_n_for_one_who_has_it_all() -> None:
    assert jain([3.0, 3.0, 3.0]) == pytest.approx(1.0)
    assert jain([0.0, 0.0, 0.0, 8.0]) == pytest.approx(0.25)
    assert jain([]) is None


def test_a_percentile_of_nothing_is_unknown() -> None:
    assert percentile([], 95) is None
    assert percentile([1.0, 3.0], 50) == 2.0


def test_the_interval_of_ten_seeds_is_students() -> None:
    runs = [{"jain": float(value), "moves": None} for value in range(10)]
    found = mean_ci(runs)
    assert found["moves"] is None
    assert found["jain"] is not None
    mean, half = found["jain"]
    assert mean == 4.5
    assert half == pytest.approx(2.262 * 3.02765 / math.sqrt(10), rel=1e-4)
