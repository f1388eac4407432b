"""What is kept for the first in line is used meanwhile by who will be gone in time, and by nobody else."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jupyter_gpushare.model import Place
from tests.core.builders import GIB, GPU, NAN, Notebook, World

NOW = 1000.0


def computing(
    name: str, on: str, gpus: float = 0.5, told: float = NAN, ran: tuple[float, ...] = (), **more
) -> Notebook:
    return Notebook(
        name, user=name, on=on, gpus=gpus, lease=True, state="active", bursting=True, context=True, memory=GIB,
        memory_used=GIB, duration_s=told, ran=ran, burst_since=NOW - 10, **more,
    )  # fmt: skip


def whole(**more) -> Notebook:
    """First in line, for all of a device."""
    return Notebook("big", user="big", gpus=1, memory=40 * GIB, waiting_since=NOW - 100, **more)


def cell(name: str, gpus: float = 0.3, ran: tuple[float, ...] = (), told: float = NAN, **more) -> Notebook:
    return Notebook(
        name, user=name, state="waiting", gpus=gpus, on="a", gated=True, memory=GIB, waiting_since=NOW - 1, ran=ran,
        duration_s=told, **more,
    )  # fmt: skip


def let_in(world: World) -> set[str]:
    return {d.session for d in world.decide() if isinstance(d, Place) and d.lease}


QUICK, SLOW = (5.0,) * 12, (900.0,) * 12


def test_a_quick_cell_runs_on_what_is_kept_for_one_that_must_wait_an_hour():
    world = World([GPU("a")], [computing("long", "a", told=3600.0), whole(), cell("quick", ran=QUICK)], now=NOW)

    assert let_in(world) == {"quick"}


@pytest.mark.parametrize(
    ("holder", "waiter"),
    [
        (computing("long", "a", told=3600.0), cell("slow", ran=(5000.0,) * 12)),
        (computing("long", "a", told=3600.0), cell("new")),
        (computing("soon", "a", told=30.0), cell("quick", ran=QUICK)),
        (computing("soon", "a", ran=(12.0,) * 12), cell("quick", ran=QUICK)),
        (computing("new", "a"), cell("quick", ran=SLOW)),
        (computing("long", "a", told=3600.0), cell("kept", ran=QUICK, unparkable=True)),
    ],
    ids=[
        "takes too long", "nobody knows how long", "the first in line is nearly there", "by its habit so too",
        "nothing known of who computes", "could not be taken off again",
    ],
)  # fmt: skip
def test_who_might_not_be_gone_in_time_does_not(holder, waiter):
    assert let_in(World([GPU("a")], [holder, whole(), waiter], now=NOW)) == set()


def test_where_nothing_can_be_parked_nobody_goes_before():
    holder = computing("long", "a", told=3600.0)

    assert let_in(World([GPU("a", can_park=False)], [holder, whole(), cell("quick", ran=QUICK)], now=NOW)) == set()


def test_what_lies_idle_there_counts_as_gone_unless_it_is_kept():
    idle = Notebook(
        "idle", user="idle", on="a", gpus=0.5, lease=True, state="idle", context=True, memory=GIB, memory_used=GIB,
        idle_since=NOW - 1,
    )  # fmt: skip
    quick = cell("quick", ran=QUICK)
    assert let_in(World([GPU("a")], [idle, whole(), quick], now=NOW)) == set()
    idle.pinned_until = NOW + 3600.0
    assert let_in(World([GPU("a")], [idle, whole(), quick], now=NOW)) == {"quick"}


def test_a_job_that_says_how_long_it_takes_goes_before_one_of_two_devices():
    long_, two = computing("long", "a", gpus=1, told=36_000.0), whole()
    two.gpus = 2
    job = Notebook("job", user="job", gpus=1, memory=GIB, waiting_since=NOW - 1, duration_s=600.0)
    world = World([GPU("a"), GPU("b")], [long_, two, job], now=NOW)

    assert let_in(world) == {"job"}
    job.duration_s = NAN
    assert let_in(world) == set()
    job.duration_s = 36_000.0
    assert let_in(world) == set()


@settings(max_examples=8)
@given(st.integers(0, 2**32 - 1))
def test_the_first_in_line_starts_as_soon_as_without_those_behind_it(seed: int):
    """A burst that ends when it was said to, and cells that keep their habit: the whole device is there at its time."""
    rng = np.random.default_rng(seed)
    told = float(rng.uniform(60, 240))
    cells = [cell(f"c{i}", gpus=0.1, ran=(float(rng.uniform(2, 60)),) * 12) for i in range(4)]
    world = World([GPU("a")], [computing("long", "a", gpus=0.2, told=told), whole(), *cells], now=NOW)
    ends: dict[str, float] = {"long": NOW - 10 + told}
    while not world["big"].leased:
        world.step()
        for book in cells:
            if book.bursting:
                ends.setdefault(book.id, world.now + book.ran[0])
        world.now += 2.0
        for name, at in list(ends.items()):
            if world[name].bursting and world.now >= at:
                world.rest(name)
                del ends[name]
                for held in world[name].held.values():
                    held.memory_used = GIB
        assert world.now <= NOW + told + 30.0, "those behind it kept it waiting"
