"""What people write as sizes and durations, and what they read of numbers."""

from __future__ import annotations

import pytest

from jupyter_gpushare.units import about, ordinal, place, plural


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (None, "no estimate yet"),
        (30, "under a minute"),
        (240, "about 4 min"),
        (5400, "about 90 min"),
        (5401, "more than an hour"),
    ],
)
def test_an_estimate_is_said_in_whole_minutes(seconds: float | None, said: str) -> None:
    assert about(seconds) == said


@pytest.mark.parametrize(
    ("number", "said"), [(1, "1st"), (2, "2nd"), (3, "3rd"), (4, "4th"), (11, "11th"), (22, "22nd")]
)
def test_places_are_ordinals(number: int, said: str) -> None:
    assert ordinal(number) == said


def test_a_place_that_is_not_known_is_still_in_line() -> None:
    assert (place(21), place(None)) == ("21st in line", "in line")


def test_one_is_not_many() -> None:
    assert (plural(1, "GPU"), plural(2, "GPU"), plural(0, "neighbour")) == ("1 GPU", "2 GPUs", "0 neighbours")
