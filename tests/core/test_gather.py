"""Gangs: devices on several servers, all of them or none, on few servers that are close."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpushare.core.admit import refusal
from jupyter_gpushare.core.choose import choose
from jupyter_gpushare.core.policy import Policy
from jupyter_gpushare.model import Place, StopKernel, Unbind, Warn
from tests.core.builders import GPU, NAN, Notebook, World
from tests.core.test_rules import examples

NOW = 1000.0
SERVERS = ("alpha", "beta", "gamma", "delta")


def gang(name: str, gpus: int, **more) -> Notebook:
    return Notebook(
        name, user=more.pop("user", name), gpus=gpus, spread=True, cooperative=False, unparkable=True,
        waiting_since=more.pop("waiting_since", NOW), **more,
    )  # fmt: skip


def three_servers(each: int = 2) -> list[GPU]:
    return [GPU(f"{server}{i}", server=server) for server in SERVERS[:3] for i in range(each)]


def servers_of(world: World, name: str) -> list[str]:
    return sorted(next(gpu.server for gpu in world.gpus if gpu.uuid == uuid) for uuid in world[name].held)


def test_it_gets_devices_of_several_servers_in_one_decision():
    world = World(three_servers(), [gang("pool", 4)])
    decisions = [decision for decision in world.decide() if isinstance(decision, Place)]
    assert [(decision.session, decision.lease, len(decision.devices)) for decision in decisions] == [("pool", True, 4)]
    world.settle()
    assert len(set(servers_of(world, "pool"))) == 2


def test_a_session_that_is_none_stays_on_one_server():
    world = World(three_servers(), [Notebook("n", gpus=4, waiting_since=NOW)])
    assert refusal(world.state(), 0) == "too_few_devices"
    assert refusal(World(three_servers(), [gang("pool", 4)]).state(), 0) is None
    assert refusal(World(three_servers(), [gang("pool", 7)]).state(), 0) == "too_few_in_all"


def test_one_server_that_holds_all_of_it_goes_before_better_devices_on_several():
    gpus = [GPU("a0"), GPU("a1"), GPU("b0", server="beta", model="H100", tflops=900.0)]
    world = World([*gpus, GPU("c0", server="gamma", model="H100", tflops=900.0)], [gang("pool", 2)])
    world.settle()
    assert servers_of(world, "pool") == ["alpha", "alpha"]


def test_of_servers_that_give_as_much_those_with_the_widest_link_are_taken():
    links = {("alpha", "beta"): 1.0, ("alpha", "gamma"): 1.0, ("beta", "gamma"): 50.0}
    world = World(three_servers(), [gang("pool", 4)], links=links)
    world.settle()
    assert servers_of(world, "pool") == ["beta", "beta", "gamma", "gamma"]


def test_a_link_that_nobody_knows_is_taken_for_none():
    world = World(three_servers(1), [gang("pool", 2)], links={("alpha", "gamma"): 0.1})
    world.settle()
    assert servers_of(world, "pool") == ["alpha", "gamma"]


def test_two_that_together_exceed_the_cluster_take_turns_whole():
    world = World(three_servers(), [gang("one", 4), gang("two", 4, waiting_since=NOW + 1)])
    world.settle()
    first, second = sorted(("one", "two"), key=lambda name: -len(world[name].held))
    assert [len(world[name].held) for name in (first, second)] == [4, 0]
    world[first].on, world[first].state = {}, "dead"
    world.settle()
    assert len(world[second].held) == 4


def test_an_idle_one_is_ended_for_who_waits_after_notice_as_no_kernel_is_without_an_admins_word():
    """A gang's workers have contexts that no node can park; what ends with them is no notebook."""
    devices = three_servers(1)
    on = " ".join(gpu.uuid for gpu in devices)
    idle = {"on": on, "lease": True, "state": "idle", "context": True, "memory_used": 0.0}
    quick = Policy(stop_after_s=100.0, stop_warn_s=10.0)
    for pool, ends in ((gang("pool", 3, **idle), True), (Notebook("pool", gpus=3, unparkable=True, **idle), False)):
        pool.waiting_since, pool.idle_since = NAN, NOW - 200.0
        world = World(devices, [pool, gang("next", 3)], policy=quick)
        seen = world.step()
        world.now += 11.0
        seen += world.step()
        assert [isinstance(one, StopKernel) for one in seen if isinstance(one, Warn | StopKernel)] == [False, True][
            : 2 * ends
        ]


def test_an_idle_one_that_opened_no_device_gives_all_of_them_back_for_who_waits():
    devices = three_servers(1)
    pool = gang("pool", 3, on=" ".join(gpu.uuid for gpu in devices), lease=True, state="idle", idle_since=NOW - 999.0)
    pool.waiting_since = NAN
    world = World(devices, [pool, gang("next", 2)])
    assert [d.session for d in world.settle() if isinstance(d, Unbind)] == ["pool"]
    assert len(world["next"].held) == 2


@st.composite
def clusters(draw: st.DrawFn) -> World:
    """Up to four servers of up to three devices, some full; gangs that wait, and sessions of one server beside them."""
    gpus = [
        GPU(f"{server}{i}", server=server, tflops=draw(st.sampled_from([100.0, 312.0])))
        for server in SERVERS[: draw(st.integers(1, 4))]
        for i in range(draw(st.integers(1, 3)))
    ]
    books: list[Notebook] = [
        Notebook(f"full{i}", user="other", gpus=1, on=gpu.uuid, lease=True, state="active", bursting=True, context=True)
        for i, gpu in enumerate(gpus)
        if draw(st.sampled_from([False, False, True]))
    ]
    for i in range(draw(st.integers(1, 4))):
        book = gang(f"pool{i}", draw(st.integers(1, 6)), waiting_since=NOW - i)
        book.spread = draw(st.sampled_from([True, True, False]))
        books.append(book)
    pairs = itertools.combinations(dict.fromkeys(gpu.server for gpu in gpus), 2)
    links = {pair: draw(st.sampled_from([0.1, 10.0, 400.0, NAN])) for pair in pairs}
    return World(gpus, books, links=links)


def waiting(world: World) -> list[Notebook]:
    return [book for book in world.notebooks if book.id.startswith("pool")]


@examples(150)
@given(clusters())
def test_each_has_all_or_nothing_and_no_device_is_promised_twice(world: World):
    for _ in range(12):
        decisions = world.step()
        for book in waiting(world):
            assert len(book.held) in (0, book.gpus)
        for gpu in world.gpus:
            of = [book for book in world.notebooks if gpu.uuid in book.held and book.held[gpu.uuid].lease]
            assert sum(book.guarantee for book in of) <= 1.0 + 1e-9
        if not decisions:
            break


@examples(150)
@given(clusters())
def test_nobody_waits_in_vain_where_those_before_have_ended(world: World):
    """Every gang that the cluster can hold at all has its turn once the others end: none starves, none is left half."""
    for book in world.notebooks:
        if book.id.startswith("full"):
            book.on, book.state, book.bursting, book.context = {}, "dead", False, False
    served = set()
    for _ in range(2 * len(world.notebooks) + 2):
        world.settle()
        for book in waiting(world):
            if book.held:
                served.add(book.id)
                book.on, book.state = {}, "dead"
    possible = {book.id for book in waiting(world) if book.spread and book.gpus <= len(world.gpus)}
    assert possible <= served


@examples(150)
@given(clusters(), st.integers(1, 6))
def test_it_lies_on_as_few_servers_as_can_be(world: World, count: int):
    world.notebooks = [gang("pool", count)]
    state, devices = world.state(), np.arange(len(world.gpus))
    chosen = choose(state, 0, devices, np.zeros(devices.size))
    if chosen is None:
        assert count > devices.size
        return
    assert len(set(chosen.tolist())) == count
    sizes = sorted(np.bincount(state.devices.server), reverse=True)
    fewest = next(k for k in range(1, len(sizes) + 1) if sum(sizes[:k]) >= count)
    assert len(set(state.devices.server[chosen].tolist())) == fewest
