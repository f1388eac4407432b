"""Shares that move with the load."""

from __future__ import annotations

import pytest

from jupyter_gpushare.model import Expand, Shrink
from tests.core.builders import GIB, GPU, Notebook, World, acts


def busy(name: str, gpus: float = 0.1, use: float = 0.1, **more) -> Notebook:
    book = Notebook(
        name, user=name, on="a", gpus=gpus, lease=True, state="active", bursting=True, context=True, memory=GIB,
        memory_used=GIB, confidence=1.0, **more,
    )  # fmt: skip
    book.held["a"].use = use
    return book


def share(world: World, name: str) -> float:
    return world[name].held["a"].share


def run(world: World, seconds: float) -> None:
    """Lets time pass; everybody who computes uses all of their share."""
    for _ in range(int(seconds / 5)):
        world.now += 5.0
        world.settle()
        for book in world.notebooks:
            for held in book.held.values():
                held.use = held.share if book.bursting else 0.0


def test_alone_on_a_device_a_busy_session_grows_to_all_of_it():
    world = World([GPU("a")], [busy("n")])
    world.settle()
    run(world, 200)

    assert share(world, "n") == pytest.approx(1.0)


def test_it_shrinks_when_its_neighbour_returns_and_grows_when_that_one_idles():
    world = World([GPU("a")], [busy("n"), busy("m")])
    run(world, 300)
    assert (share(world, "n"), share(world, "m")) == (pytest.approx(0.5), pytest.approx(0.5))

    world.rest("m")
    world.settle()
    run(world, 100)
    assert share(world, "n") == pytest.approx(1.0)
    assert share(world, "m") == pytest.approx(0.0)

    world.cell("m")
    decisions = world.settle()
    assert ("place", "m") in acts(decisions)
    assert share(world, "n") + share(world, "m") == pytest.approx(1.0)
    assert share(world, "m") >= 0.1


def test_an_idle_holder_is_shown_with_its_guarantee_while_there_is_room():
    world = World([GPU("a")], [busy("n", gpus=0.3)])
    world.rest("n")
    world.settle()

    assert share(world, "n") == pytest.approx(0.3)


def test_a_borrowed_share_shrinks_to_nothing_before_a_guarantee_does():
    guest = busy("guest", gpus=0.4, use=0.0)
    guest.held["a"].borrowed = True
    world = World([GPU("a")], [busy("one", gpus=0.5), busy("two", gpus=0.5), guest])
    world.settle()

    assert [share(world, name) for name in ("one", "two", "guest")] == pytest.approx([0.5, 0.5, 0.0])


def test_users_with_more_weight_get_more_of_what_is_over():
    world = World([GPU("a")], [busy("n", use=0.6), busy("m", use=0.6)], weights={"n": 3.0})
    for book in world.notebooks:
        book.held["a"].target = 1.0
    world.settle()

    assert share(world, "n") == pytest.approx(0.75)


def test_changes_that_nobody_would_see_are_not_decided():
    world = World([GPU("a")], [busy("n", gpus=0.3)])
    world["n"].held["a"].share = 0.303

    assert world.decide() == []


def test_an_expansion_says_so():
    world = World([GPU("a")], [busy("n")])
    world.now = 1e4

    assert world.decide() == [Expand(session="n", why="busy", device="a", share=0.2, target=0.2)]


def test_a_share_shrinks_only_when_somebody_waits():
    def using_little(*others: Notebook) -> World:
        world = World([GPU("a")], [busy("n", use=0.05), *others], now=1e4)
        world["n"].held["a"].share = world["n"].held["a"].target = 0.8
        return world

    assert using_little().decide() == []
    waiting = Notebook("w", user="w", on="a", gpus=0.95, gated=True, waiting_since=9999.0)
    assert using_little(waiting).decide() == [Shrink(session="n", why="quiet", device="a", share=0.4, target=0.4)]
