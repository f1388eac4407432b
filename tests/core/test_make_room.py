"""Idle sessions move together so that a big demand fits, where that pays."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpushare.core.policy import Policy
from jupyter_gpushare.model import Move, ParkSession, Place
from tests.core.builders import GIB, GPU, Notebook, World
from tests.core.test_rules import examples

NOW = 1000.0
PATIENT = Policy(idle_after_s=3600.0)  # nobody is parked for an hour


def idle(name: str, on: str, gpus: float = 0.25, memory: float = 4 * GIB, **more) -> Notebook:
    return Notebook(
        name, user=name, on=on, gpus=gpus, lease=True, state="idle", context=True, memory=memory, memory_used=memory,
        idle_since=more.pop("idle_since", NOW - 10), **more,
    )  # fmt: skip


def big(gpus: int = 1, **more) -> Notebook:
    return Notebook("big", user="big", gpus=gpus, memory=60 * GIB, waiting_since=NOW, **more)


def moves(world: World) -> list[tuple[str, dict[str, str]]]:
    return [(d.session, d.devices) for d in world.decide() if isinstance(d, Move)]


def test_the_cheaper_of_two_moves_and_the_big_demand_gets_a_whole_device():
    small, large = idle("n1", "a", memory=2 * GIB), idle("n2", "b", memory=8 * GIB)
    world = World([GPU("a"), GPU("b")], [small, large, big()], policy=PATIENT)

    assert moves(world) == [("n1", {"a": "b"})]
    everything = world.settle()
    assert [d.devices for d in everything if isinstance(d, Place) and d.session == "big"] == [("a",)]
    assert not any(isinstance(d, ParkSession) for d in everything)
    assert world["n1"].leased
    assert world["n2"].leased


def test_several_make_room_for_several_devices_of_one_server():
    books = [idle(f"n{i}", uuid) for i, uuid in enumerate("abc")]
    world = World([GPU(uuid) for uuid in "abc"], [*books, big(2)], policy=PATIENT)
    world.settle()

    assert len(world["big"].held) == 2
    assert world["big"].leased
    assert len({uuid for book in books for uuid in book.held}) == 1


def test_nothing_moves_where_nobody_waits_or_the_demand_fits_anyway():
    books = [idle("n1", "a"), idle("n2", "b")]

    assert moves(World([GPU("a"), GPU("b")], books, policy=PATIENT)) == []
    assert moves(World([GPU("a"), GPU("b"), GPU("c")], [*books, big()], policy=PATIENT)) == []


def test_nothing_moves_where_it_would_not_help():
    books = [idle("n1", "a"), idle("n2", "b")]
    for book in books:
        book.pinned_until = 9e9
    assert moves(World([GPU("a"), GPU("b")], [*books, big()], policy=PATIENT)) == []
    full = [idle("n1", "a", gpus=0.6), idle("n2", "b", gpus=0.6)]
    assert moves(World([GPU("a"), GPU("b")], [*full, big()], policy=PATIENT)) == []
    crowded = [idle("n1", "a", memory=50 * GIB), idle("n2", "b", memory=50 * GIB)]
    assert moves(World([GPU("a"), GPU("b")], [*crowded, big()], policy=PATIENT)) == []


def test_a_move_that_takes_longer_than_the_wait_it_saves_is_not_made():
    """4 GiB over 1 GB/s take 8.6 s of a quarter of a device; over 1 MB/s, over an hour of it, for at most 300 s."""
    for link_gb_s, expected in ((1.0, 1), (0.001, 0)):
        gpus = [GPU("a", link_gb_s=link_gb_s), GPU("b", link_gb_s=link_gb_s)]
        world = World(gpus, [idle("n1", "a"), idle("n2", "b"), big()], policy=PATIENT)
        assert len(moves(world)) == expected


def test_while_one_is_on_its_way_nothing_more_moves_on_that_server():
    going = idle("n0", "b", gpus=0.25)
    going.state = "parking"
    gpus = [GPU("a"), GPU("b"), GPU("c")]
    world = World(gpus, [idle("n1", "a"), going, idle("n2", "b"), idle("n3", "c"), big(3)], policy=PATIENT)

    assert moves(world) == []


def test_an_admin_who_takes_nothing_moves_nothing():
    books = [idle("n1", "a"), idle("n2", "b"), big()]

    assert moves(World([GPU("a"), GPU("b")], books, policy=Policy(reclaim="never"))) == []


@st.composite
def crowds(draw: st.DrawFn) -> World:
    """Idle sessions of all sizes on a few devices, some kept, some hot or leaving, and one or two big demands."""
    count = draw(st.integers(2, 4))
    gpus = []
    for uuid in "abcd"[:count]:
        leaving = draw(st.sampled_from([False, False, False, True]))
        gpus.append(
            GPU(
                uuid,
                leaving=leaving,
                offered=not leaving,
                can_park=draw(st.sampled_from([True, True, True, False])),
                link_gb_s=draw(st.sampled_from([25.0, 1.0, 0.01])),
                temperature_c=draw(st.sampled_from([40.0, 85.0, 92.0, np.nan])),
                clock_fraction=draw(st.sampled_from([1.0, 1.0, 0.6])),
            )
        )
    books, free = [], dict.fromkeys("abcd", 1.0)
    for i in range(draw(st.integers(1, 6))):
        uuid, share = draw(st.sampled_from("abcd"[:count])), draw(st.sampled_from([0.1, 0.25, 0.5]))
        if free[uuid] < share:
            continue
        free[uuid] -= share
        book = idle(f"n{i}", uuid, gpus=share, memory=draw(st.sampled_from([0.1, 1.0, 8.0])) * GIB)
        book.idle_since = draw(st.sampled_from([NOW - 1, NOW - 500, np.nan]))
        book.compute_p = draw(st.sampled_from([0.0, 0.5, 1.0]))
        book.gaps = tuple(draw(st.lists(st.sampled_from([5.0, 600.0, 5000.0]), max_size=4)))
        book.pinned_until = draw(st.sampled_from([-np.inf, -np.inf, 9e9]))
        book.protected_until = draw(st.sampled_from([-np.inf, -np.inf, 9e9]))
        if draw(st.booleans()):
            book.bursting, book.state, book.idle_since = True, "active", np.nan
        books.append(book)
    books += [big()] if draw(st.booleans()) else [big(2)]
    return World(gpus, books, now=NOW, policy=draw(st.sampled_from([Policy(), PATIENT, Policy(idle_after_s=30.0)])))


@examples(200)
@given(crowds())
def test_nobody_who_is_kept_moves_and_no_move_costs_more_than_the_most_it_can_gain(world):
    """By the formulas of core/README.md, worked out here from the world alone."""
    gpus = {gpu.uuid: gpu for gpu in world.gpus}
    before = {book.id: (dict(book.held), book) for book in world.notebooks}
    found = [d for d in world.decide() if isinstance(d, Move)]
    cost = {
        d.session: sum(2 * before[d.session][1].memory / (gpus[a].link_gb_s * 1e9) for a in d.devices) for d in found
    }
    for d in found:
        book = before[d.session][1]
        assert book.state == "idle"
        assert not book.bursting
        assert book.idle_since <= NOW
        assert max(book.pinned_until, book.protected_until) <= NOW
        assert all(gpus[uuid].offered and gpus[uuid].can_park for uuid in d.devices.values())
        if d.why == "leaving":
            assert any(gpus[uuid].leaving for uuid in d.devices)
        if d.why == "hot":
            pace = [_pace(gpus[a]) / _pace(gpus[b]) for a, b in d.devices.items()]
            assert cost[d.session] < 600.0 * book.compute_p * (1 - min(pace))
    making = [d.session for d in found if d.why == "makes_room"]
    if making:
        waiter = world["big"]
        spared = sum(before[name][1].guarantee * cost[name] / 2 for name in making)
        assert sum(before[name][1].guarantee * cost[name] for name in making) < waiter.gpus * 300.0 + spared


def _pace(gpu: GPU) -> float:
    near = np.clip(1 - (gpu.temperature_limit_c - gpu.temperature_c) / 15, 0, 1)
    return float(gpu.clock_fraction * (1 - 0.3 * near))


@examples(200)
@given(crowds())
def test_who_made_room_was_not_moved_in_vain(world):
    """When the moves are done the big demand is let in, and then all is at rest."""
    made_room = any(isinstance(d, Move) and d.why == "makes_room" for d in world.decide())
    world.settle()

    assert world["big"].leased or not made_room


@pytest.mark.parametrize("seed", range(3))
def test_moves_end(seed):
    """Sessions that come and go on a few devices never set off moves without end."""
    rng = np.random.default_rng(seed)
    books = [idle(f"n{i}", "abc"[i % 3], gpus=0.25, memory=2 * GIB) for i in range(9)]
    world = World([GPU(uuid) for uuid in "abc"], [*books, big()], policy=PATIENT)
    for _ in range(30):
        world.settle()
        world.now += 60.0
        name = f"n{rng.integers(9)}"
        if world[name].bursting:
            world.rest(name)
        elif world[name].held and not world[name].gated:
            world.cell(name)
