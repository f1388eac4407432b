"""The words for people."""

from __future__ import annotations

import inspect
import re

import pytest

from jupyter_gpushare.core import admit, choose, evacuate, explain, ladder, lend
from jupyter_gpushare.core.decide import placement
from jupyter_gpushare.core.policy import Policy
from tests.core.builders import GIB, GPU, NAN, Notebook, World


def terms(gpu: GPU, **more) -> dict[str, str]:
    return {term.name: term.text for term in placement(World([gpu], [Notebook("n", **more)]).state(), 0, Policy())[1]}


def test_every_slug_that_is_decided_has_its_sentence():
    source = "".join(inspect.getsource(module) for module in (admit, choose, evacuate, ladder, lend))
    slugs = set(re.findall(r'why="([a-z_]+)"', source)) | set(re.findall(r'return "([a-z_]+)"', source))

    assert slugs
    assert slugs - {"lent"} <= set(explain.WHY)
    assert all(explain.why(slug).endswith(".") for slug in explain.WHY)


@pytest.mark.parametrize("word", ["OOM", "evict", "preempt", "kill", "sorry", "please", "error", "!"])
def test_no_word_frightens(word):
    text = " ".join([*explain.WHY.values(), *explain.DECISIVE.values()])

    assert word not in text


def test_terms_are_said_with_their_numbers():
    assert terms(GPU("a", utilization=0.378, memory_used=20 * GIB, temperature_c=61.0, power_w=210.0)) == {
        "compute": "194 of 312 TFLOP/s",
        "data": "1,529 of 2,039 GB/s",
        "fragmentation": "whole device free",
        "locality": "nothing to move",
        "thermal": "61 of 92 °C",
        "energy": "210 of 400 W",
        "stability": "load swings by 0%",
    }


def test_what_was_not_read_is_said_so():
    unread = {"tflops": NAN, "bandwidth_gb_s": NAN, "temperature_c": NAN, "power_w": NAN, "utilization_sd": NAN}

    assert terms(GPU("a", **unread)) == {
        "compute": "TFLOP/s not read",
        "data": "GB/s not read",
        "fragmentation": "whole device free",
        "locality": "nothing to move",
        "thermal": "temperature not read",
        "energy": "power not read",
        "stability": "load not read",
    }
    assert terms(GPU("a", utilization=NAN))["compute"] == "312 TFLOP/s, load not read"


@pytest.mark.parametrize(
    ("near", "text"),
    [
        ({"alpha": 0.0}, "its data lies there"),
        ({"alpha": 42.0}, "42 s to bring its data"),
        ({}, "size of its data unknown"),
    ],
)
def test_where_the_data_lies_is_said(near, text):
    assert terms(GPU("a"), near=near)["locality"] == text
