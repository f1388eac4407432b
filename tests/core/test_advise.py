"""Whole devices of unlike models go where together the jobs that wait lose least."""

from __future__ import annotations

import numpy as np
import pytest

from jupyter_gpushare.core.advise import relative_speed
from jupyter_gpushare.core.decide import decide
from jupyter_gpushare.model import Place
from tests.core.builders import GPU, Notebook, World

NAN = float("nan")
FAST, SLOW = {"tflops": 300.0, "bandwidth_gb_s": 2000.0}, {"tflops": 240.0, "bandwidth_gb_s": 300.0}


def waiting(name: str, **known: float) -> Notebook:
    return Notebook(name, gpus=1, waiting_since=900.0, confidence=1.0, duration_s=3600.0, **known)


def world(*books: Notebook) -> World:
    return World([GPU("fast", model="A100", **FAST), GPU("slow", server="beta", model="L4", **SLOW)], list(books))


def placed(of: World) -> dict[str, tuple[str, ...]]:
    made = decide(of.state(), of.now, of.policy)
    return {decision.session: decision.devices for decision in made if isinstance(decision, Place)}


def test_who_can_do_without_the_fast_device_leaves_it_to_who_cannot() -> None:
    found = placed(world(waiting("first", compute_p=1.0), waiting("then", compute_p=0.0)))
    assert found == {"first": ("slow",), "then": ("fast",)}


def test_one_that_waits_alone_takes_the_best() -> None:
    assert placed(world(waiting("only", compute_p=1.0))) == {"only": ("fast",)}


def test_without_a_duration_everybody_is_served_in_turn() -> None:
    books = [waiting("first", compute_p=1.0), waiting("then", compute_p=0.0)]
    for book in books:
        book.duration_s = NAN
    assert placed(world(*books)) == {"first": ("fast",), "then": ("slow",)}


def test_an_advice_never_goes_against_what_a_demand_allows() -> None:
    books = [waiting("first", compute_p=1.0), waiting("then", compute_p=0.0)]
    books[0].allowed = ("fast",)
    assert placed(world(*books))["first"] == ("fast",)


def test_relative_speed_follows_what_bounds_a_session() -> None:
    state = world(waiting("flops", compute_p=1.0), waiting("bytes", compute_p=0.0)).state()
    speed = relative_speed(state, np.array([0, 1]))
    assert speed[0].tolist() == [1.0, pytest.approx(240 / 300)]
    assert speed[1].tolist() == [1.0, pytest.approx(300 / 2000)]


def test_a_model_whose_figures_are_unknown_is_not_advised() -> None:
    of = world(waiting("first", compute_p=1.0))
    of.gpus[1].tflops = NAN
    assert relative_speed(of.state(), np.array([0]))[0].tolist() == [1.0, 0.0]
