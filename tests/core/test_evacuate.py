"""Away from devices that are draining or failing."""

from __future__ import annotations

import pytest

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
