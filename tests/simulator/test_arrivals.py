"""Arrivals that never leave: limits are hard, baselines do what they say, ours comes from the core."""

from __future__ import annotations

import numpy as np
import pytest

from jupyter_gpushare.core.policy import Policy
from jupyter_gpushare.errors import BadDemand
from jupyter_gpushare.simulator import arrivals, packing
from jupyter_gpushare.simulator.policies import ours
from jupyter_gpushare.simulator.workloads.openb import Servers, Shapes, Trace, arriving


def trace_of(demands: list[tuple[int, int, int]], *, cpu: int = 64_000) -> Trace:
    """Two servers of two T4 and one of four V100; demands as (devices, 1/1000 of each, 1/1000 CPUs)."""
    servers = Servers(
        name=("a", "b", "c"),
        model=("T4", "T4", "V100M16"),
        cpu=np.array([cpu, cpu, 32_000]),
        memory=np.array([2**18] * 3),
        gpus=np.array([2, 2, 4]),
    )
    count, milli, cpus = (np.array(column) for column in zip(*demands, strict=True))
    size = len(demands)
    return Trace(servers, Shapes(cpus, np.full(size, 1024), count, milli, (frozenset(),) * size), np.arange(size))


MIXED = [(1, 500, 4000), (1, 1000, 8000), (0, 0, 8000), (1, 810, 3000), (2, 1000, 16_000), (1, 470, 4000)]


def placed(policy: str, trace: Trace, seed: int = 1) -> list[arrivals.Place | None]:
    room, packer, places = arrivals.room_of(trace.servers), packing.POLICIES[policy](trace, seed), []
    for shape in trace.demands.tolist():
        place = packer(room, shape)
        if place is not None:
            room.take(trace.shapes, shape, *place)
        places.append(place)
    return places


@pytest.mark.parametrize("policy", packing.POLICIES)
def test_every_policy_keeps_the_limits_and_gives_the_same_twice(policy: str) -> None:
    trace = arriving(trace_of(MIXED), seed=3)
    first, second = (arrivals.run(trace, packing.POLICIES[policy](trace, 3)) for _ in range(2))
    assert first.allocated.tolist() == second.allocated.tolist()
    assert (np.diff(first.allocated) >= 0).all()
    assert 0.5 < first.allocated[-1] <= 1.0


@pytest.mark.parametrize("policy", packing.POLICIES)
def test_no_policy_turns_a_demand_away_that_fits(policy: str) -> None:
    trace = trace_of([(4, 1000, 4000), (2, 1000, 4000), (1, 1000, 4000), (1, 1000, 4000)])
    assert None not in placed(policy, trace)


@pytest.mark.parametrize("policy", packing.POLICIES)
def test_cpus_are_a_limit(policy: str) -> None:
    trace = trace_of([(1, 500, 33_000)] * 3, cpu=40_000)
    servers = [place and place[0] for place in placed(policy, trace)]
    assert sorted(servers[:2]) == [0, 1]
    assert servers[2] is None


def test_a_place_that_does_not_fit_is_an_error_not_a_figure() -> None:
    trace = trace_of(MIXED)
    room = arrivals.room_of(trace.servers)
    for devices in ([0, 0], [0], [3, 1]):
        with pytest.raises(ValueError, match="does not fit"):
            room.take(trace.shapes, 4, 0, np.array(devices) % 4)


def test_packing_opens_no_device_while_a_used_one_has_room() -> None:
    places = placed("gpu-packing", trace_of([(1, 500, 1000), (1, 470, 1000)]))
    assert [(place[0], place[1].tolist()) for place in places if place] == [(0, [0]), (0, [0])]


def test_round_robin_goes_round() -> None:
    assert [place and place[0] for place in placed("round-robin", trace_of([(1, 100, 100)] * 4))] == [0, 1, 2, 0]


def test_clustering_keeps_kinds_of_demand_apart() -> None:
    places = placed("gpu-clustering", trace_of([(1, 500, 100), (1, 1000, 100), (1, 400, 100)]))
    assert [place and place[0] for place in places] == [0, 1, 0]


def test_power_is_that_of_devices_and_processors_in_use() -> None:
    trace = trace_of(MIXED)
    room = arrivals.room_of(trace.servers)
    idle = 4 * 10 + 4 * 30 + 5 * 15
    assert arrivals.power_w(room) == idle
    room.take(trace.shapes, 0, 0, np.array([1]))
    assert arrivals.power_w(room) == idle + 60 + 105


def test_allocation_is_averaged_while_the_arrived_share_rounds_to_a_percentage() -> None:
    outcome = arrivals.Outcome(np.array([0.5, 0.996, 1.004, 1.3]), np.array([0.5, 0.9, 0.92, 0.95]), 1500.0)
    assert outcome.at(100) == pytest.approx(0.91)
    assert outcome.at(70) is None
    assert outcome.metrics()["energy_kwh"] == 1.5


def test_ours_is_what_the_core_decides_and_ties_go_by_the_servers_order() -> None:
    trace = trace_of([(1, 1000, 1000)])
    turned = Trace(trace.servers.in_order(np.array([1, 0, 2])), trace.shapes, trace.demands)
    for each in (trace, turned):
        place = ours.gpushare(each, 0, Policy(reclaim="never"))(arrivals.room_of(each.servers), 0)
        assert place is not None
        assert place[0] == 0


def test_an_unknown_policy_names_those_there_are() -> None:
    with pytest.raises(BadDemand, match=r"'magic'.*gpushare.*fgd"):
        packing.run("openb-default", "magic")
