"""What a placement costs those who come after, and that CPUs and host memory are limits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jupyter_gpushare.core import fill, packing
from jupyter_gpushare.core.decide import decide
from jupyter_gpushare.core.draft import glance_at
from jupyter_gpushare.core.mix import LENGTH, STREAMS, Mix, Shape, mix_of, renewed
from jupyter_gpushare.core.policy import Policy, Weights
from jupyter_gpushare.core.state import Hosts, State
from jupyter_gpushare.model import Place, Refuse
from tests.core.builders import GIB, GPU, NAN, Notebook, World

WHOLE, HALF, PAIR = Shape(1, 1.0), Shape(1, 0.5), Shape(2, 1.0)
SERVERS = (("alpha", "A100"), ("beta", "A100"), ("gamma", "H100"))
NONE = fill.MANY  # CPUs and memory that nobody counts


def left(mix: Mix, *free: int, cpus: float | None = None) -> float:
    """Of one server whose devices have so much free."""
    streams = fill.Streams(mix, counted=cpus is not None)
    units = NONE if cpus is None else round(cpus / fill.CPU_UNIT)
    one = np.zeros(1, np.int64)
    return float(fill.left(streams, one, np.array([free]), one + units)[0])


def state_of(world: World, mix: Mapping[Shape, int], **hosts: list[float]) -> State:
    state = world.state()
    unknown = np.full(len(state.servers), NAN)
    columns = {name: np.array(hosts.get(name, unknown), dtype=np.float64) for name in Hosts.__slots__}
    columns["cpus"] = columns["cpus"] if "cpus" in hosts else columns["cpus_free"]
    columns["memory"] = columns["memory"] if "memory" in hosts else columns["memory_free"]
    return replace(state, hosts=Hosts(**columns) if hosts else None, mix=mix_of(mix, state.models))


def device_of(state: State, policy: Policy | None = None) -> str | None:
    """Where the only session that waits is leased."""
    decisions = decide(state, 1000.0, policy or Policy(weights=Weights(completion=0.0)))
    places = [decision for decision in decisions if isinstance(decision, Place)]
    return places[0].devices[0] if places else None


def job(gpus: float = 1, name: str = "job", **more: object) -> Notebook:
    return Notebook(name, gpus=gpus, horizon="long", gated=gpus < 1, waiting_since=0.0, **more)


def held(name: str, on: str, gpus: float) -> Notebook:
    return Notebook(name, gpus=gpus, state="active", on=on, lease=True, bursting=True, context=True, memory_used=GIB)


# --- the fill -------------------------------------------------------------------------------------------------


def test_whole_devices_fill_a_server_of_whole_devices():
    assert left(mix_of({WHOLE: 1}, ("A100",)), 1000, 1000, 0) == 0.0


def test_what_no_demand_fits_into_is_left():
    assert left(mix_of({Shape(1, 0.6): 3}, ("A100",)), 1000, 1000, 500) == 400 + 400 + 500


def test_the_tightest_device_is_filled_first():
    assert left(mix_of({HALF: 1}, ("A100",)), 500, 900) == 400


def test_several_whole_devices_need_as_many_empty_ones():
    assert left(mix_of({PAIR: 1}, ("A100",)), 1000, 1000, 1000, 600) == 1600


def test_a_full_device_between_others_changes_nothing_and_of_full_ones_nothing_is_left():
    mix = mix_of({HALF: 3, Shape(1, 0.3): 2, PAIR: 1}, ("A100",))
    assert left(mix, 1000, 0, 800, 0, 1000) == left(mix, 1000, 800, 1000)
    assert left(mix, 0, 0) == 0.0


def test_devices_without_cpus_are_left_and_so_are_cpus_without_devices():
    mix = mix_of({Shape(1, 1.0, cpus=4.0): 1}, ("A100",))
    assert left(mix, 1000, 1000, cpus=6.0) == 1000 + 2 * fill.CPU_WORTH
    assert left(mix, 1000, 1000) == 0.0


def test_demands_for_another_model_fill_nothing():
    mix = mix_of({Shape(1, 1.0, models=frozenset({"H100"})): 1}, ("A100", "H100"))
    one = np.zeros(1, np.int64)
    streams = fill.Streams(mix, counted=False)
    for model, expected in ((0, 1000.0), (1, 0.0)):
        assert fill.left(streams, one + model, np.array([[1000]]), one + NONE)[0] == expected


shapes = st.builds(
    Shape,
    devices=st.just(1),
    share=st.sampled_from([0.1, 0.25, 0.47, 0.81, 1.0]),
    cpus=st.sampled_from([0.0, 2.0, 11.5]),
    host_memory=st.just(0.0),
    models=st.none(),
) | st.builds(
    Shape,
    devices=st.sampled_from([2, 4]),
    share=st.just(1.0),
    cpus=st.just(8.0),
    host_memory=st.just(0.0),
    models=st.none(),
)
mixes = st.dictionaries(shapes, st.integers(1, 9), min_size=1, max_size=5)
frees = st.lists(st.integers(0, 1000), min_size=1, max_size=8)


@given(mixes, frees, st.sampled_from([0.0, 3.5, 64.0]))
def test_never_more_is_left_than_there_was_and_the_order_of_devices_does_not_matter(seen, free, cpus):
    mix = mix_of(seen, ("A100",))
    rest = left(mix, *free, cpus=cpus)
    assert 0.0 <= rest <= sum(free) + cpus * fill.CPU_WORTH + 1e-6
    assert left(mix, *sorted(free), cpus=cpus) == pytest.approx(left(mix, *sorted(free, reverse=True), cpus=cpus))


@given(mixes, st.lists(frees, min_size=2, max_size=5))
@settings(max_examples=30)
def test_many_servers_at_once_are_left_with_what_each_is_left_with_alone(seen, servers):
    streams = fill.Streams(mix_of(seen, ("A100",)), counted=True)
    free = np.zeros((len(servers), 8), np.int64)
    for row, levels in enumerate(servers):
        free[row, : len(levels)] = levels
    zero, cpus = np.zeros(len(servers), np.int64), np.arange(len(servers)) * 1500
    together = fill.left(streams, zero, free, cpus)
    alone = [fill.left(streams, zero[:1], free[[row]], cpus[[row]])[0] for row in range(len(servers))]
    assert together.tolist() == pytest.approx(alone)


# --- the mix --------------------------------------------------------------------------------------------------


def test_streams_hold_what_was_seen_as_often_as_it_came():
    mix = mix_of({WHOLE: 30, HALF: 10}, ("A100",))
    assert mix.streams.shape == (STREAMS, LENGTH)
    assert (mix.streams == 0).mean() == pytest.approx(0.75, abs=0.05)


def test_a_mix_stays_until_twice_as_much_was_seen_or_the_models_change():
    assert renewed(None, {}, ("A100",)) is None
    mix = renewed(None, {WHOLE: 40}, ("A100",))
    assert mix is not None
    assert renewed(mix, {WHOLE: 79}, ("A100",)) is mix
    assert renewed(mix, {WHOLE: 80}, ("A100",)) is not mix
    assert renewed(mix, {WHOLE: 40}, ("A100", "H100")) is not mix


# --- prices ---------------------------------------------------------------------------------------------------


def test_a_model_is_dear_as_far_as_demand_can_go_nowhere_else():
    rare = Shape(1, 1.0, models=frozenset({"rare"}))
    mix = mix_of({WHOLE: 90, rare: 10}, ("common", "rare"))
    idle = np.array([9000.0, 1000.0])
    assert packing.prices(mix, idle).tolist() == [0.0, 1.0]  # 10000 x 10 % for 1000
    assert packing.prices(mix, np.array([9000.0, 8000.0]))[1] == pytest.approx(17000 * 0.1 / 8000)
    assert packing.prices(mix_of({WHOLE: 1}, ("common", "rare")), idle).tolist() == [0.0, 0.0]
    assert packing.prices(mix, np.zeros(2)).tolist() == [0.0, 0.0]


def test_demand_for_either_of_two_models_goes_where_there_is_more_room_for_it():
    either = Shape(1, 1.0, models=frozenset({"a", "b"}))
    only = Shape(1, 1.0, models=frozenset({"a"}))
    mix = mix_of({WHOLE: 80, either: 10, only: 10}, ("a", "b", "c"))
    price = packing.prices(mix, np.array([5000.0, 5000.0, 90000.0]))
    assert price[0] == pytest.approx(price[1])
    assert price[2] == 0.0


# --- decisions ------------------------------------------------------------------------------------------------


def test_a_share_goes_where_it_leaves_whole_devices_whole():
    world = World([GPU("a"), GPU("b"), GPU("c", server="beta")], [held("n", "b", 0.5), job(0.5)])
    assert device_of(state_of(world, {WHOLE: 5, HALF: 5})) == "b"


def test_one_device_is_taken_where_no_room_for_two_is_broken_up():
    gpus = [GPU("a1"), GPU("a2"), GPU("b1", server="beta"), GPU("b2", server="beta"), GPU("b3", server="beta")]
    assert device_of(state_of(World(gpus, [job()]), {WHOLE: 4, PAIR: 4})) == "b1"


def test_a_rare_model_is_left_to_those_who_need_it():
    gpus = [GPU("a", model="rare"), GPU("b", server="beta", model="common")]
    seen = {WHOLE: 9, Shape(1, 1.0, models=frozenset({"rare"})): 9}
    assert device_of(state_of(World(gpus, [job()]), seen)) == "b"
    assert device_of(state_of(World(gpus, [job(allowed=("a",))]), seen)) == "a"


def test_power_counts_as_much_as_the_admin_says():
    gpus = [GPU("a"), GPU("b", server="beta", power_limit_w=120.0)]
    assert device_of(state_of(World(gpus, [job()]), {WHOLE: 1}), Policy(weights=Weights(completion=0, energy=0))) == "a"
    assert device_of(state_of(World(gpus, [job()]), {WHOLE: 1}), Policy(weights=Weights(completion=0, energy=1))) == "b"


@given(
    st.lists(st.tuples(st.floats(0.0, 60.0), st.floats(60.0, 700.0)), min_size=2, max_size=5),
    st.integers(0, 4),
    st.floats(0.5, 4.0),
)
@settings(max_examples=60)
def test_power_costs_at_most_one_grows_with_the_watts_and_knows_no_unit(watts, taken, unit):
    def cost(scale: float, held_devices: int) -> list[float]:
        gpus = [
            GPU(f"g{row}", power_idle_w=scale * low, power_limit_w=scale * high)
            for row, (low, high) in enumerate(watts)
        ]
        others = [held(f"n{row}", f"g{row}", 0.5) for row in range(min(held_devices, len(gpus) - 1))]
        draft = glance_at(state_of(World(gpus, [*others, job(0.5)]), {HALF: 1}))
        draft.lift(len(others))
        return packing.watts(draft, len(others), np.arange(len(gpus))).tolist()

    empty = cost(1.0, 0)
    more = [high - low for low, high in watts]
    assert all(-1.0 <= value <= 0.0 for value in empty)
    assert [empty[row] for row in np.argsort(more)] == sorted(empty, reverse=True)
    assert cost(unit, 0) == pytest.approx(empty)
    busy = cost(1.0, taken)
    assert busy[: min(taken, len(watts) - 1)] == [0.0] * min(taken, len(watts) - 1)  # awake already
    assert all(now >= before for now, before in zip(busy, empty, strict=True))  # the fuller, the less power counts


def test_what_was_worked_out_before_changes_no_decision():
    gpus = [GPU(f"{server}{slot}", server=server) for server in "abc" for slot in range(4)]
    seen = {WHOLE: 5, HALF: 3, PAIR: 2, Shape(1, 0.81): 4}
    state = state_of(World(gpus, [held("n", "b1", 0.81), job(0.5)]), seen)
    first = decide(state, 1000.0, Policy())
    assert decide(state, 1000.0, Policy()) == first
    assert decide(replace(state, mix=mix_of(seen, state.models)), 1000.0, Policy()) == first


@given(st.lists(st.tuples(st.integers(0, 11), st.sampled_from([0.19, 0.47, 0.53])), min_size=1, max_size=8))
@settings(max_examples=30)
def test_only_what_changed_is_worked_out_anew_and_nothing_is_missed(taken):
    gpus = [GPU(f"{server}{slot}", server=server, model=model) for server, model in SERVERS for slot in range(4)]
    asks = World(gpus, [job(0.47, cpus=4.0), job(1.0, cpus=8.0, name="whole"), job(2, cpus=16.0, name="pair")])
    seen = {Shape(1, 1.0, cpus=8.0): 5, Shape(1, 0.47, cpus=4.0): 3, Shape(2, 1.0, cpus=16.0): 2, Shape(1, 0.19): 4}
    state = state_of(asks, seen, cpus_free=[40.0, 24.0, 24.0], memory_free=[NAN] * 3)
    draft = glance_at(state)
    for device, share in taken:
        if draft.room.committed[device] + share <= 1.0:
            draft.room.committed[device] += share
            draft.room.cpus[state.devices.server[device]] -= 1.5
        fresh = replace(draft, state=replace(state, mix=mix_of(seen, state.models)))
        for session in range(3):
            remembered = packing.displaced(draft, session, np.arange(12))
            assert remembered.tolist() == pytest.approx(packing.displaced(fresh, session, np.arange(12)).tolist())


def test_servers_with_the_same_room_cost_the_same_and_are_worked_out_once(monkeypatch):
    gpus = [GPU(f"{server}{slot}", server=f"s{server}") for server in range(6) for slot in range(4)]
    seen = {WHOLE: 5, HALF: 3, PAIR: 2}
    state = state_of(World(gpus, [job(0.5), held("n", "20", 0.5)]), seen)
    worked_out, fill_left = [], fill.left
    monkeypatch.setattr(packing, "left", lambda *of: (worked_out.append(len(of[1])), fill_left(*of))[1])
    cost = packing.displaced(glance_at(state), 0, np.arange(24))
    alike = np.delete(cost.reshape(6, 4), 2, axis=0)
    assert np.unique(alike).size == 1
    assert sum(worked_out) == 4  # empty; half taken of one device; that device full; half of another
    packing.displaced(glance_at(state), 0, np.arange(24))
    assert sum(worked_out) == 4


def test_power_counts_nothing_where_room_is_short():
    gpus = [GPU("a"), GPU("b", server="beta", power_limit_w=120.0), GPU("c", server="beta", power_limit_w=120.0)]
    saving = Policy(weights=Weights(completion=0, energy=9))
    others = [held(f"n{row}", "c", 0.25) for row in range(4)]
    assert device_of(state_of(World(gpus, [others[0], job()]), {WHOLE: 1}), saving) == "b"
    draft = glance_at(state_of(World(gpus, [*others, held("m", "b", 0.5), job(0.5)]), {HALF: 1}))
    assert packing.watts(draft, 5, np.arange(3))[0] < 0
    draft.room.committed[0] = 0.7
    assert packing.watts(draft, 5, np.arange(3)).tolist() == [0.0, 0.0, 0.0]


def test_the_gradient_serves_where_nobody_keeps_count_or_an_admin_says_so():
    world = World([GPU("a"), GPU("b")], [held("n", "b", 0.5), job(0.5)])
    assert device_of(world.state()) == "b"
    assert device_of(state_of(world, {HALF: 1}), Policy(packing="gradient", weights=Weights(completion=0.0))) == "b"


# --- CPUs and memory of servers -------------------------------------------------------------------------------


def test_no_device_is_lent_where_its_server_lacks_cpus_or_memory():
    gpus = [GPU("a"), GPU("b", server="beta")]
    world = World(gpus, [job(cpus=8.0, host_memory=4.0 * GIB)])
    assert device_of(state_of(world, {WHOLE: 1}, cpus_free=[7.0, 8.0], memory_free=[NAN, NAN])) == "b"
    assert device_of(state_of(world, {WHOLE: 1}, cpus_free=[9.0, 9.0], memory_free=[4.0 * GIB, GIB])) == "a"
    full = state_of(world, {WHOLE: 1}, cpus=[64.0, 64.0], cpus_free=[0.0, 0.0], memory_free=[NAN, NAN])
    assert decide(full, 1000.0, Policy()) == []


def test_two_at_once_do_not_take_the_same_cpus():
    jobs = [replace(job(cpus=5.0), id=name) for name in ("one", "two")]
    state = state_of(World([GPU("a"), GPU("b")], jobs), {WHOLE: 1}, cpus_free=[8.0])
    assert [type(decision) for decision in decide(state, 1000.0, Policy())] == [Place]


def test_more_cpus_than_any_server_has_are_refused_at_once():
    state = state_of(World([GPU("a")], [job(cpus=65.0)]), {WHOLE: 1}, cpus_free=[64.0])
    assert [decision.why for decision in decide(state, 1000.0, Policy()) if isinstance(decision, Refuse)] == [
        "host_too_small"
    ]


def test_a_demand_without_devices_sits_where_cpus_are_missed_least():
    gpus = [GPU("a"), GPU("b", server="beta")]
    world = World(gpus, [held("n", "b", 1), Notebook("other", state="none")])
    seen = {Shape(1, 1.0, cpus=8.0): 9, Shape(0, 0.0, cpus=4.0): 1}
    state = state_of(world, seen, cpus_free=[16.0, 16.0], memory_free=[NAN, NAN])
    assert packing.seat(state, 10.0, 0.0, Policy()) == state.servers.index("beta")
    assert packing.seat(state, 17.0, 0.0, Policy()) is None
