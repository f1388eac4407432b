"""Objectives: what a learned policy sees, and that its weights are those that decide."""

from __future__ import annotations

import math
from dataclasses import asdict, replace

import pytest
from hypothesis import given

from jupyter_gpushare.core.decide import decide, placement
from jupyter_gpushare.core.objectives import Features, features_of, in_force
from jupyter_gpushare.core.policy import Policy, Weights
from tests.core.builders import GPU, NAN, Notebook, World
from tests.core.test_rules import worlds

FRUGAL, FAST = GPU("frugal", tflops=250.0, power_limit_w=120.0), GPU("fast")


def saving_when_quiet(features: Features) -> Weights:
    return Weights(energy=3.0 if features.waiting <= 0.5 else 0.0)


def test_the_function_decides_by_what_the_cluster_is_like():
    policy = Policy(choose=saving_when_quiet)
    quiet = World([FRUGAL, FAST], [Notebook("n", compute_p=1.0, waiting_since=1000.0)], policy=policy)
    crowd = [Notebook(f"w{i}", state="none", gpus=0, waiting_since=1000.0) for i in range(3)]
    busy = World([FRUGAL, FAST], [Notebook("n", compute_p=1.0, waiting_since=1000.0), *crowd], policy=policy)

    assert [place.devices for place in quiet.decide()] == [("frugal",)]
    assert [place.devices for place in busy.decide() if place.session == "n"] == [("fast",)]


def test_the_reasons_are_those_of_the_weights_that_were_chosen():
    world = World([FRUGAL, FAST], [Notebook("n", compute_p=1.0)], policy=Policy(choose=saving_when_quiet))
    state = world.state()
    _, terms, _ = placement(state, 0, in_force(world.policy, state, world.now))

    assert {term.name: term.weight for term in terms}["energy"] == 3.0


def test_without_a_function_the_policy_is_the_one_that_was_given():
    policy = Policy()

    assert in_force(policy, World([FAST]).state(), 0.0) is policy


def test_the_features_of_a_small_cluster():
    world = World(
        [
            GPU("a", utilization=0.5, power_w=225.0),
            GPU("b", utilization=NAN, power_w=50.0),
            GPU("c", offered=False, utilization=1.0),
        ],
        [
            Notebook("n1", "ann", "idle", 0.5, on="a", lease=True, context=True, horizon="short", compute_p=1.0),
            Notebook("n2", "bob", "active", 0.1, on="a", lease=True, bursting=True, compute_p=0.0, horizon="long"),
            Notebook("n3", "bob", "parked", 0.1, on="a", waiting_since=940.0, compute_p=0.5),
            Notebook("n4", "bob", "none", 0, compute_p=0.5),
        ],
        usage={"ann": 30.0, "bob": 10.0},
    )
    found = asdict(features_of(world.state(), world.now))

    assert found == pytest.approx(
        {
            "devices": 2,
            "held": 0.3,
            "utilization": 0.5,
            "waiting": 0.5,
            "longest_wait_s": 60.0,
            "idle": 0.5,
            "parked": 1 / 3,
            "short": 1 / 3,
            "long": 1 / 3,
            "compute": 0.5,
            "unevenness": 0.25,
            "power": 0.25,
        }
    )


def test_an_empty_cluster_has_features_too():
    found = features_of(World([]).state(), 0.0)

    assert (found.devices, found.held, found.waiting, found.longest_wait_s, found.unevenness) == (0, 0, 0, 0, 0)
    assert math.isnan(found.utilization)


@given(worlds())
def test_features_are_within_their_bounds_in_any_state(world):
    found = features_of(world.state(), world.now)

    fractions = (found.utilization, found.idle, found.parked, found.short, found.long, found.compute)
    assert all(math.isnan(value) or 0 <= value <= 1 for value in fractions)
    assert found.longest_wait_s >= 0
    assert -1 <= found.unevenness <= 1


@given(worlds())
def test_a_function_that_chooses_the_configured_weights_changes_nothing(world):
    state, weights = world.state(), world.policy.weights
    told = replace(world.policy, weights=Weights(), choose=lambda features: weights)

    assert decide(state, world.now, told) == decide(state, world.now, world.policy)
