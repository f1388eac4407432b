"""More devices than asked for, while nobody waits."""

from __future__ import annotations

import copy

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from jupyter_gpushare.model import Place
from tests.core.builders import GIB, GPU, Notebook, World


def job(name: str, on: str, most: int, **more) -> Notebook:
    return Notebook(
        name, user=more.pop("user", name), on=on, gpus=len(on.split()), gpus_max=most, lease=True, state="active",
        bursting=True, context=True, memory=GIB, memory_used=GIB, **more,
    )  # fmt: skip


def cluster(count: int, *books: Notebook, **more) -> World:
    return World([GPU(f"g{i}") for i in range(count)], list(books), **more)


def width(world: World, name: str) -> int:
    return len(world[name].held)


def settle(world: World) -> None:
    world.settle()
    world.now += world.policy.window_s
    world.settle()


def test_a_job_that_can_use_more_devices_gets_the_free_ones_up_to_its_most():
    world = cluster(8, job("j", "g0", 4))
    settle(world)

    assert width(world, "j") == 4
    assert all(held.lease and not held.borrowed for held in world["j"].held.values())


def test_who_asks_for_a_number_keeps_it():
    world = cluster(4, job("j", "g0 g1", 0), job("k", "g2", 1))
    settle(world)
    assert (width(world, "j"), width(world, "k")) == (2, 1)


def test_free_devices_are_divided_by_how_much_each_has_of_what_it_asked_for():
    world = cluster(9, job("small", "g0", 9), job("large", "g1 g2", 9))
    settle(world)
    assert (width(world, "small"), width(world, "large")) == (3, 6)


def test_it_does_not_grow_before_it_has_had_its_devices_for_the_window():
    world = cluster(2, job("j", "g0", 2))
    world["j"].held["g0"].share_since = world.now
    world.settle()
    assert width(world, "j") == 1


def test_it_gives_back_what_somebody_waits_for_and_no_more():
    world = cluster(4, job("j", "g0 g1 g2 g3", 4))
    world["j"].gpus = 1
    world.notebooks.append(Notebook("n", gpus=2, state="waiting", waiting_since=world.now, memory=GIB))
    world.settle()

    assert world["n"].leased
    assert width(world, "j") == 2
    assert not set(world["n"].held) & set(world["j"].held)


def test_while_somebody_waits_it_does_not_grow():
    waits = Notebook("n", gpus=2, state="waiting", waiting_since=1000.0, memory=GIB)
    holds = Notebook("m", gpus=2, on="g1 g2", lease=True, state="active", bursting=True, context=True, memory=GIB)
    world = cluster(4, job("j", "g0", 4), holds, waits)
    settle(world)
    assert width(world, "j") == 1


def test_when_it_rests_it_keeps_what_it_asked_for():
    world = cluster(4, job("j", "g0 g1 g2", 4))
    world["j"].gpus = 2
    world.rest("j")
    world.settle()
    assert (width(world, "j"), world["j"].leased) == (2, True)


def test_a_users_cap_holds_for_widths_too_and_their_own_next_session_comes_first():
    world = cluster(4, job("j", "g0", 4, user="ann"), caps={"ann": 2.0})
    settle(world)
    assert width(world, "j") == 2

    world.notebooks.append(Notebook("n", user="ann", gpus=1, state="waiting", waiting_since=world.now, memory=GIB))
    world.settle()
    assert (width(world, "j"), world["n"].leased) == (1, True)


def test_it_leaves_a_draining_device_that_it_can_do_without():
    world = cluster(3, job("j", "g0 g1", 2))
    world["j"].gpus = 1
    world.gpus[0].leaving, world.gpus[0].offered = True, False
    world.settle()
    assert list(world["j"].held) == ["g1", "g2"]


def test_a_decision_says_why():
    world = cluster(2, job("j", "g0", 2))
    world.now += world.policy.window_s
    placed = [decision for decision in world.settle() if isinstance(decision, Place)]
    assert [decision.why for decision in placed] == ["spare"]


@st.composite
def clusters(draw: st.DrawFn) -> World:
    """Two servers, jobs of any width, small sessions beside them, and some who wait."""
    gpus = [GPU(f"{server}{i}", server=server) for server in "ab" for i in range(4)]
    world = World(gpus, caps={"ann": draw(st.sampled_from([2.0, np.inf]))})
    free = {"a": ["a0", "a1", "a2", "a3"], "b": ["b0", "b1", "b2", "b3"]}
    for index in range(draw(st.integers(1, 3))):
        server = draw(st.sampled_from("ab"))
        asked, extra = draw(st.integers(1, 2)), draw(st.integers(0, 2))
        mine = free[server][: asked + extra]
        free[server] = free[server][asked + extra :]
        if len(mine) < asked:
            continue
        book = job(f"j{index}", " ".join(mine), draw(st.integers(asked, 4)), user=draw(st.sampled_from(["ann", "bob"])))
        book.gpus = asked
        book.gpus_max = max(book.gpus_max, len(mine))
        world.notebooks.append(book)
        if draw(st.booleans()):
            world.rest(book.id)
    for index in range(draw(st.integers(0, 3))):
        gpus_ = draw(st.sampled_from([0.1, 0.5, 1, 2, 4]))
        world.notebooks.append(
            Notebook(f"n{index}", user=draw(st.sampled_from(["ann", "bob"])), gpus=gpus_, gated=gpus_ < 1,
                     waiting_since=world.now - draw(st.integers(0, 300)), memory=GIB)
        )  # fmt: skip
    return world


@settings(max_examples=200, deadline=None)
@given(clusters())
def test_no_job_has_less_than_it_asked_for_or_more_than_it_can_use_and_no_device_is_promised_twice(world: World):
    for _ in range(4):
        before = copy.deepcopy(world)
        world.settle()
        world.now += world.policy.window_s
        for book in world.notebooks:
            if not book.id.startswith("j"):
                continue
            assert book.gpus <= len(book.held) <= max(book.gpus_max, len(before[book.id].held))
            assert len({uuid[0] for uuid in book.held}) == 1, "one server"
            if not book.bursting:
                assert len(book.held) == book.gpus
        for gpu in world.gpus:
            own = [b for b in world.notebooks if gpu.uuid in b.held and not b.held[gpu.uuid].borrowed and b.leased]
            assert sum(book.guarantee for book in own) <= 1 + 1e-6
        if any(width(world, book.id) > width(before, book.id) for book in before.notebooks if book.user == "ann"):
            used = sum(
                book.guarantee * len(book.held) for book in world.notebooks if book.user == "ann" and book.leased
            )
            assert used <= world.caps["ann"] + 1e-6


@settings(max_examples=100, deadline=None)
@given(clusters())
def test_nobody_waits_for_one_device_while_others_have_more_than_they_asked_for(world: World):
    world.caps = {}
    world.settle()
    if any(book.gpus <= 1 and not book.leased for book in world.notebooks):
        assert all(width(world, book.id) <= np.ceil(book.gpus) for book in world.notebooks)
