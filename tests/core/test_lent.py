"""What holders do not use is lent, what they may need is not: idle time, and the part that a burst is seen to leave."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpushare.core.room import SPARE, claim
from tests.core.builders import GIB, GPU, NAN, Held, Notebook, World, acts


def trains(name: str, on: str, gpus: float, steady: float = NAN) -> Notebook:
    """Computes under a lease of its own, and was seen to use `steady` of each device."""
    held = {
        uuid: Held(lease=True, share=1.0, target=1.0, use=steady, memory_used=GIB, steady=steady) for uuid in on.split()
    }
    return Notebook(name, user=name, state="active", gpus=gpus, bursting=True, context=True, memory=GIB, on=held)


def cell(name: str, gpus: float) -> Notebook:
    return Notebook(name, user=name, gpus=gpus, gated=True, waiting_since=900.0, memory=GIB)


shares = st.floats(0.01, 1.0)
uses = st.floats(0.0, 1.0) | st.just(NAN)


@given(shares, uses)
def test_a_burst_keeps_at_most_its_guarantee_and_all_of_it_while_unknown(guarantee: float, steady: float) -> None:
    kept = float(claim(guarantee, steady))
    assert kept <= guarantee
    assert kept == guarantee if np.isnan(steady) else kept >= min(guarantee, steady)


@given(shares, st.floats(0.0, 1.0), st.floats(0.0, 1.0))
def test_who_uses_more_keeps_more(guarantee: float, one: float, other: float) -> None:
    least, most = sorted((one, other))
    assert claim(guarantee, least) <= claim(guarantee, most)


@given(st.floats(0.0, 1.0), shares)
def test_a_share_is_lent_exactly_where_what_is_left_is_enough(steady: float, share: float) -> None:
    share = min(share, 0.99)
    world = World([GPU("a")], [trains("owner", "a", 1, steady), cell("waiter", share)])
    fits = min(1.0, steady + SPARE) + share <= 1.0
    if abs(min(1.0, steady + SPARE) + share - 1.0) > 1e-3:
        assert acts(world.decide()) == ([("place", "waiter")] if fits else [])


def test_a_burst_of_which_nothing_is_known_yet_lends_nothing() -> None:
    assert acts(World([GPU("a")], [trains("owner", "a", 1), cell("waiter", 0.1)]).decide()) == []


def test_devices_that_a_task_asked_for_and_does_not_use_are_lent_to_the_next_task() -> None:
    owner = trains("owner", "a b", 2, steady=0.9)
    owner.held["b"].steady = 0.0
    world = World([GPU("a"), GPU("b")], [owner, cell("waiter", 1)])
    (place,) = (decision for decision in world.step() if decision.session == "waiter" and hasattr(decision, "lease"))

    assert (place.devices, place.lease, place.borrowed) == (("b",), True, True)
    assert world["owner"].leased  # it keeps its guarantee: when it uses the device again, the borrower's share shrinks


def test_a_cell_that_asks_for_a_whole_device_borrows_an_idle_holders() -> None:
    idle = Notebook("idle", gpus=1, state="idle", context=True, on="a", lease=True, memory=GIB, memory_used=GIB)
    idle.idle_since = 999.0
    world = World([GPU("a")], [idle, cell("waiter", 1)])
    world.step()

    assert world["waiter"].held["a"].borrowed
    assert world["waiter"].bursting


def test_a_kernel_that_starts_with_a_whole_device_does_not_start_on_borrowed_time() -> None:
    idle = Notebook("idle", gpus=1, state="idle", context=True, on="a", lease=True, memory=GIB, memory_used=GIB)
    idle.idle_since = 999.0
    world = World([GPU("a")], [idle, Notebook("start", gpus=1, waiting_since=900.0)])

    assert ("place", "start") not in acts(world.decide())


def test_behind_a_gang_that_waits_another_cell_borrows_what_the_gang_could_not_use() -> None:
    """The gang's own devices are not delayed: what is borrowed commits nothing."""
    owners = [trains("x", "a", 1, steady=0.5), trains("y", "b", 1)]
    gang = Notebook("gang", user="gang", gpus=2, gated=True, waiting_since=800.0, memory=GIB)
    world = World([GPU("a"), GPU("b")], [*owners, gang, cell("late", 1)])
    world.step()

    assert world["late"].held["a"].borrowed
    assert not world["gang"].leased
