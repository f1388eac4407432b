"""Away from devices that are draining or failing."""

from __future__ import annotations

import pytest

from jupyter_gpushare.core.policy import Policy
from jupyter_gpushare.model import Move
from tests.core.builders import GIB, GPU, Notebook, World, acts

LEAVING = GPU("a", offered=False, leaving=True)


def idle(**more) -> Notebook:
    return Notebook(
        "n", on="a", lease=True, state="idle", context=True, memory=GIB, memory_used=GIB, idle_since=0.0, **more
    )


def test_what_is_only_bound_is_bound_elsewhere():
    world = World([LEAVING, GPU("b")], [Notebook("n", on="a", state="bound")])
    (place,) = world.step()

    assert (place.why, place.devices, place.lease) == ("leaving", ("b",), False)
    assert world.settle() == []


def test_a_mask_that_cannot_be_rewritten_stays():
    assert World([LEAVING, GPU("b")], [Notebook("n", on="a", state="bound", cooperative=False)]).decide() == []


def test_an_idle_session_moves_to_a_device_of_its_kind_on_its_server():
    gpus = [LEAVING, GPU("far", server="beta"), GPU("kind", model="H100"), GPU("b")]
    world = World(gpus, [idle()])

    assert world.step() == [Move(session="n", why="leaving", devices={"a": "b"})]
    assert world.settle() == []


@pytest.mark.parametrize("change", [{"pinned_until": 9e9}, {"unparkable": True}, {"idle_since": float("nan")}])
def test_who_is_kept_cannot_be_parked_or_is_not_known_to_be_idle_stays(change):
    book = idle()
    for name, value in change.items():
        setattr(book, name, value)

    assert World([LEAVING, GPU("b")], [book]).decide() == []


def test_nothing_moves_to_where_its_memory_does_not_fit():
    full = Notebook("x", user="x", on="b", lease=True, state="active", bursting=True, context=True, memory=80 * GIB)

    assert acts(World([LEAVING, GPU("b")], [idle(), full]).decide()) == []


def test_two_that_leave_do_not_both_take_the_same_room():
    first, second = idle(), idle()
    first.id, second.id = "n1", "n2"
    first.memory = second.memory = 50 * GIB

    assert acts(World([LEAVING, GPU("b")], [first, second]).decide()) == [("move", "n1")]


def test_a_long_session_under_protection_stays():
    book = idle(protected_until=9e9, horizon="long")

    assert World([LEAVING, GPU("b")], [book]).decide() == []


# --- hot ones --------------------------------------------------------------------------------------------------


def throttled(**more) -> GPU:
    return GPU("a", **{"temperature_c": 92.0, "clock_fraction": 0.6} | more)


def moves(world: World) -> list[str]:
    return [f"{d.session}: {d.why} {d.devices}" for d in world.decide() if isinstance(d, Move)]


def test_an_idle_session_leaves_a_throttled_device_for_a_cool_one_of_its_kind_and_server():
    gpus = [throttled(), GPU("far", server="beta"), GPU("kind", model="H100"), GPU("b"), GPU("warm", temperature_c=90)]

    assert moves(World(gpus, [idle()])) == ["n: hot {'a': 'b'}"]


def test_a_device_that_is_only_hot_is_left_before_it_slows_down():
    assert moves(World([throttled(clock_fraction=1.0), GPU("b")], [idle(compute_p=1.0)])) == ["n: hot {'a': 'b'}"]


@pytest.mark.parametrize(
    ("book", "gpu"),
    [
        ({"compute_p": 0.0}, {}),
        ({"gaps": (50_000.0,) * 16, "memory_used": 60 * GIB}, {"link_gb_s": 5.0}),
        ({"memory_used": 60 * GIB}, {"link_gb_s": 0.5}),
        ({"duration_s": 0.1}, {}),
        ({"memory_used": float("nan")}, {}),
        ({}, {"temperature_c": float("nan"), "clock_fraction": 1.0}),
        ({"pinned_until": 9e9}, {}),
        ({"protected_until": 9e9}, {}),
        ({"gated": True}, {}),
        ({"idle_since": 999.0, "bursting": True, "state": "active"}, {}),
        ({"unparkable": True}, {}),
    ],
    ids=[
        "memory-bound", "gone for long", "costs more than it saves", "little left to do", "cost unknown",
        "heat unknown", "pinned", "protected", "cell waits", "computes", "cannot be parked",
    ],
)  # fmt: skip
def test_who_gains_less_than_it_costs_or_is_kept_stays_where_it_is_hot(book, gpu):
    session = idle()
    for name, value in book.items():
        setattr(session, name, value)
    for held in session.held.values():
        held.memory_used = session.memory_used

    assert moves(World([throttled(**gpu), GPU("b")], [session])) == []


def test_one_at_a_time_leaves_a_server_since_they_share_its_link():
    first, second, third = idle(), idle(), idle()
    first.id, second.id, third.id = "n1", "n2", "n3"
    gpus = [throttled(), GPU("b"), GPU("c", server="beta", temperature_c=92.0, clock_fraction=0.6)]
    gpus.append(GPU("d", server="beta"))
    third.on = {"c": third.held.pop("a")}
    world = World(gpus, [first, second, third])

    assert moves(world) == ["n1: hot {'a': 'b'}", "n3: hot {'c': 'd'}"]
    world.step()
    assert moves(world) == ["n2: hot {'a': 'b'}"]


def test_nothing_moves_where_nothing_may_be_taken():
    assert moves(World([throttled(), GPU("b")], [idle()], policy=Policy(reclaim="never"))) == []
