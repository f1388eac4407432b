"""Which device suits whom."""

from __future__ import annotations

import numpy as np
import pytest

from jupyter_gpushare.core.decide import placement
from jupyter_gpushare.core.draft import glance_at
from jupyter_gpushare.core.fitness import COMPUTE, DATA, fitness
from jupyter_gpushare.core.fragmentation import fragment, gradient, unmet_by
from jupyter_gpushare.core.policy import Policy, Weights
from tests.core.builders import GIB, GPU, NAN, Notebook, World

FAST = {"tflops": 900.0, "bandwidth_gb_s": 1000.0}
WIDE = {"tflops": 300.0, "bandwidth_gb_s": 3000.0}


def device_of(world: World, name: str = "n") -> str:
    world.step()
    (uuid,) = world[name].held
    return uuid


def scores(world: World, name: str = "n"):
    state = world.state()
    devices = np.arange(len(world.gpus))
    return fitness(glance_at(state), state.sessions.id.index(name), devices, world.policy)


@pytest.mark.parametrize(("compute_p", "expected"), [(1.0, "fast"), (0.0, "wide")])
def test_compute_goes_to_flops_and_data_to_bandwidth(compute_p, expected):
    world = World([GPU("fast", **FAST), GPU("wide", **WIDE)], [Notebook("n", compute_p=compute_p)])

    assert device_of(world) == expected


def test_the_two_formulas():
    """TFLOPS x (1 - utilisation), and bandwidth x (1 - memory occupancy) x T / (T + H), each over the best."""
    world = World(
        [
            GPU("a", utilization=0.5, memory_used=20 * GIB, server="s"),
            GPU("b", utilization=0.2, memory_used=40 * GIB, server="t", tflops=200.0, clock_fraction=0.5),
        ],
        [Notebook("n", near={"s": 0.0, "t": 300.0}, duration_s=100.0)],
    )

    values = scores(world).values

    compute = np.array([312 * 0.5, 200 * 0.5 * 0.8])
    data = np.array([2039 * 0.75 * 1.0, 2039 * 0.5 * 0.25])
    assert values[COMPUTE] == pytest.approx(compute / compute.max())
    assert values[DATA] == pytest.approx(data / data.max())


def test_a_busy_fast_device_loses_to_an_idle_slower_one():
    world = World([GPU("fast", utilization=0.9, **FAST), GPU("slow", **WIDE)], [Notebook("n", compute_p=1.0)])

    assert device_of(world) == "slow"


@pytest.mark.parametrize("metric", ["utilization", "tflops", "temperature_c", "power_limit_w", "utilization_sd"])
def test_an_unknown_metric_never_wins(metric):
    known, unknown = GPU("z-known"), GPU("a-unknown", **{metric: NAN})
    world = World([unknown, known], [Notebook("n", horizon="long", compute_p=1.0)])

    total = scores(world).total
    assert np.isfinite(total).all()
    assert total[1] > total[0]


def test_devices_of_which_nothing_is_known_are_still_offered():
    blank = {"tflops": NAN, "bandwidth_gb_s": NAN, "utilization": NAN, "temperature_c": NAN, "power_limit_w": NAN}
    world = World([GPU("b", **blank), GPU("a", **blank)], [Notebook("n")])

    assert device_of(world) == "a"


def test_a_device_near_its_slowdown_temperature_is_avoided():
    world = World([GPU("hot", temperature_c=90.0), GPU("z-cool")], [Notebook("n")])

    assert device_of(world) == "z-cool"


def test_a_long_session_prefers_the_steady_device():
    gpus = [GPU("swings", utilization_sd=0.3), GPU("z-steady", utilization=0.05)]

    assert device_of(World(gpus, [Notebook("n", horizon="long")])) == "z-steady"
    assert device_of(World(gpus, [Notebook("n", horizon="short")])) == "swings"


def test_short_sessions_pack_and_leave_whole_devices_free():
    world = World([GPU(f"g{i}") for i in range(4)], [Notebook(f"n{i}", horizon="short") for i in range(4)])
    world.step()

    assert {uuid for book in world.notebooks for uuid in book.held} == {"g0"}


def test_bound_sessions_count_as_load_to_come():
    world = World([GPU("a"), GPU("b")], [Notebook("old", on="a", state="bound", gpus=0.5), Notebook("n", gpus=0.6)])

    assert device_of(world) == "b"


def test_data_pulls_a_session_to_its_server():
    world = World([GPU("a", server="far"), GPU("b", server="near")], [Notebook("n", near={"near": 0.0, "far": 600.0})])

    assert device_of(world) == "b"


def test_energy_counts_as_much_as_the_admin_says():
    frugal, fast = GPU("frugal", tflops=250.0, power_limit_w=120.0), GPU("fast")
    notebook = Notebook("n", compute_p=1.0)
    saving = Policy(weights=Weights(energy=3.0))

    assert device_of(World([fast, frugal], [notebook], policy=Policy(weights=Weights(energy=0.0)))) == "fast"
    assert device_of(World([fast, frugal], [Notebook("n", compute_p=1.0)], policy=saving)) == "frugal"


def test_every_placement_keeps_its_terms_and_who_lost_by_what():
    world = World(
        [GPU("fast", **FAST), GPU("wide", **WIDE), GPU("hot", temperature_c=92.0, **FAST)],
        [Notebook("n", compute_p=1.0)],
    )
    (place,) = world.decide()

    assert place.fitness == pytest.approx(sum(term.value * term.weight for term in place.terms))
    assert [term.name for term in place.terms] == [
        "compute", "data", "fragmentation", "locality", "thermal", "energy", "stability"
    ]  # fmt: skip
    assert {other.device: other.decisive for other in place.alternatives} == {"wide": "compute", "hot": "thermal"}
    assert place.terms[0].text == "900 of 900 TFLOP/s"
    assert place.terms[3].text == "nothing to move"


def test_why_tells_of_the_device_a_session_is_on_not_of_the_best():
    world = World([GPU("fast", **FAST), GPU("wide", **WIDE)], [Notebook("n", on="wide", state="bound", compute_p=1.0)])
    everywhere, terms, alternatives = placement(world.state(), 0, world.policy)

    assert everywhere[0] > everywhere[1]
    assert terms[0].text == "300 of 300 TFLOP/s"
    assert [other.device for other in alternatives] == ["fast"]


def test_why_of_a_session_without_any_device_is_empty():
    everywhere, terms, alternatives = placement(World([GPU("a", offered=False)], [Notebook("n")]).state(), 0, Policy())

    assert np.isnan(everywhere).all()
    assert (terms, alternatives) == ((), ())


# --- fragmentation --------------------------------------------------------------------------------------------


def test_a_fragment_is_what_typical_demands_cannot_use():
    unmet = unmet_by(np.full(1000, 0.5))  # nearly everybody asks for half a device
    free = np.array([1.0, 0.5, 0.4, 0.0])

    assert fragment(free, np.ones(4), unmet) == pytest.approx([0.0, 0.0, 0.4, 0.0], abs=0.01)


def test_free_share_without_memory_is_a_fragment_too():
    unmet = unmet_by(np.full(1000, 0.5))

    assert fragment(np.array([1.0]), np.array([0.1]), unmet) == pytest.approx([1.0], abs=0.01)


def test_the_gradient_prefers_filling_a_gap_to_breaking_a_whole_device():
    unmet = unmet_by(np.array([]))
    whole, gap = gradient(np.array([1.0, 0.1]), np.ones(2), 0.1, np.array([0.1, 0.1]), unmet)

    assert gap < 0 < whole
