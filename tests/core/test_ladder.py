"""Taking idle devices back: who, in which order, with which notice, and never more than needed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from jupyter_gpushare.core.policy import Policy
from jupyter_gpushare.model import Warn
from tests.core.builders import GIB, GPU, NAN, RUNGS, Notebook, World, acts


def holder(name: str, on: str = "a", memory: float = 60 * GIB, **more) -> Notebook:
    """Idle, with its memory on the device."""
    return Notebook(
        name, user=name, on=on, lease=True, state="idle", memory=memory,
        **{"idle_since": 0.0, "context": True, "memory_used": memory} | more,
    )  # fmt: skip


def waiter(name: str = "w", memory: float = 40 * GIB, **more) -> Notebook:
    return Notebook(name, user=name, gated=True, waiting_since=999.0, memory=memory, **more)


def world(*books: Notebook, gpus: tuple[GPU, ...] = (GPU("a"),), **policy) -> World:
    return World(list(gpus), list(books), policy=Policy(**policy))


def to_park(warned: World) -> World:
    """Past trimming and the notice."""
    warned.settle()
    warned.now += warned.policy.warn_before_s
    return warned


def test_the_ladder_trims_warns_parks_and_the_waiter_gets_in():
    it = world(holder("h"), waiter())

    assert acts(it.step()) == [("trim", "h")]
    (warn,) = it.step()
    assert warn == Warn(session="h", why="waiter", rung="park", in_s=5.0)
    assert it.settle() == []
    it.now += 4.9
    assert it.step() == []
    it.now += 0.1
    assert acts(it.settle()) == [("park", "h"), ("place", "w")]
    assert it["h"].parked_bytes == 60 * GIB

    it.rest("w")
    it.cell("h")
    it.now += 30.0
    it.settle()
    it.now += 5.0
    assert acts(it.settle()) == [("park", "w"), ("resume", "h")]
    assert it["h"].held["a"].memory_used == 60 * GIB


def test_nothing_is_taken_while_nobody_waits():
    it = world(holder("h"), holder("i", memory=10 * GIB))
    it.now = 1e6

    assert acts(it.decide()) == []


def test_a_kernel_that_does_not_cooperate_is_not_asked_to_trim():
    assert acts(world(holder("h", cooperative=False), waiter()).decide()) == [("warn", "h")]


def test_what_has_nothing_on_its_device_is_unbound_without_notice():
    it = world(holder("h", context=False, memory_used=NAN), Notebook("w", gpus=1, waiting_since=999.0))

    assert acts(it.step()) == [("unbind", "h")]
    assert it["h"].state == "none"
    assert acts(it.step()) == [("place", "w")]


@pytest.mark.parametrize(
    "change",
    [
        {"pinned_until": 5000.0},
        {"protected_until": 5000.0},
        {"unparkable": True},
        {"idle_since": NAN},
        {"bursting": True, "state": "active"},
        {"gated": True},
        {"memory_used": NAN},
    ],
)
def test_never_taken(change):
    it = world(holder("h"), waiter())
    for name, value in change.items():
        if name == "memory_used":
            it["h"].held["a"].memory_used = value
        else:
            setattr(it["h"], name, value)

    assert [act for act in acts(it.decide()) if act[0] != "place"] == []


def test_a_pinned_session_is_not_unbound_either():
    whole = Notebook("w", gpus=1, waiting_since=999.0)

    assert acts(world(holder("h", context=False, pinned_until=5000.0), whole).decide()) == []


def test_whole_devices_are_not_unbound_while_their_kernel_starts():
    it = world(holder("h", context=False, gpus=1, idle_since=1000.0), Notebook("w", gpus=1, waiting_since=999.0))
    it["h"].held["a"].share = 1.0
    assert acts(it.settle()) == []

    it.now += 300.0
    assert acts(it.settle()) == [("unbind", "h"), ("place", "w")]


def test_what_has_nothing_on_its_device_lends_its_memory_too():
    assert acts(world(holder("h", context=False, memory_used=NAN), waiter()).decide()) == [("place", "w")]


def test_nothing_is_taken_on_stale_readings():
    assert acts(world(holder("h"), waiter(), gpus=(GPU("a", fresh=False),)).decide()) == []


def test_a_pin_after_the_notice_takes_it_back():
    it = world(holder("h"), waiter())
    it.settle()
    assert it["h"].warned_rung == RUNGS.index("park")

    it["h"].pinned_until = 9000.0
    assert it.step() == [Warn(session="h", why="withdrawn", rung="park", in_s=None)]
    assert it["h"].warned_rung == -1
    it.now += 10.0
    assert it.step() == []


def test_a_burst_after_the_notice_takes_it_back():
    it = world(holder("h"), waiter())
    it.settle()
    it.burst("h")

    assert Warn(session="h", why="withdrawn", rung="park", in_s=None) in it.step()


def test_a_waiter_that_leaves_takes_the_notice_back():
    it = world(holder("h"), waiter())
    it.settle()
    it["w"].gated, it["w"].state, it["w"].waiting_since = False, "none", NAN

    assert it.step() == [Warn(session="h", why="withdrawn", rung="park", in_s=None)]


def test_only_as_many_as_let_the_waiter_in():
    it = world(*(holder(f"h{i}", memory=20 * GIB) for i in range(4)), waiter(memory=30 * GIB))

    assert len(acts(it.decide())) == 2


def test_one_large_victim_spares_the_small_ones_before_it():
    small = holder("small", memory=10 * GIB, gaps=(1.0, 9000.0, 9000.0))
    large = holder("large", memory=60 * GIB)
    it = world(small, large, waiter(memory=60 * GIB))

    assert acts(it.decide()) == [("trim", "large")]


def test_one_victim_makes_room_for_as_many_waiters_as_fit():
    it = to_park(world(holder("h", memory=80 * GIB), holder("i", "b", memory=80 * GIB),
                       waiter("v"), waiter("w"), gpus=(GPU("a"), GPU("b"))))  # fmt: skip
    decisions = it.settle()

    assert sorted(acts(decisions)) == [("park", "h"), ("place", "v"), ("place", "w")]


def test_one_that_is_being_parked_is_room_enough():
    going = holder("h", memory=60 * GIB)
    going.state = "parking"

    assert acts(world(going, holder("i", memory=20 * GIB), waiter(memory=40 * GIB)).decide()) == []


def test_the_one_who_surely_comes_back_soon_is_spared():
    soon = holder("soon", memory=40 * GIB, idle_since=900.0, gaps=(120.0,) * 5)
    later = holder("later", memory=40 * GIB, idle_since=900.0, gaps=(5000.0,) * 5)
    it = world(soon, later, waiter(memory=20 * GIB))

    assert acts(it.decide()) == [("trim", "later")]


def test_an_idle_time_set_by_the_admin_is_waited_for():
    it = world(holder("h", idle_since=990.0), waiter(), idle_after_s=60.0)
    assert it.settle() == []
    it.now = 1045.0  # the notice begins in time for parking at 60 s
    assert acts(it.settle()) == [("trim", "h"), ("warn", "h")]
    it.now = 1050.0
    assert acts(it.settle()) == [("park", "h"), ("place", "w")]


def test_a_whole_demand_takes_back_what_is_idle_on_its_devices():
    it = world(holder("h", memory=GIB), holder("i", "b", memory=GIB),
               Notebook("w", gpus=2, waiting_since=999.0), gpus=(GPU("a"), GPU("b")))  # fmt: skip

    it.settle()
    it.now += 5.0
    assert sorted(acts(it.settle())) == [("park", "h"), ("park", "i"), ("place", "w")]


def test_taken_is_only_where_the_waiter_may_go():
    it = world(holder("h", "a"), holder("i", "b"), waiter(allowed=("b",)), gpus=(GPU("a"), GPU("b")))

    assert acts(it.decide()) == [("trim", "i")]


def test_who_could_not_be_let_in_by_it_takes_nothing():
    busy = replace(holder("busy", memory=60 * GIB), state="active", bursting=True, idle_since=NAN)

    assert acts(world(busy, holder("h", memory=10 * GIB), waiter(memory=40 * GIB)).decide()) == []


def test_never_takes_nothing_and_withdraws():
    it = world(holder("h"), waiter())
    it.settle()
    it.policy = Policy(reclaim="never")

    assert acts(it.decide()) == [("warn", "h")]
    assert it.decide()[0].in_s is None


def test_always_takes_whatever_is_idle_long_enough():
    it = world(holder("h", cooperative=False), reclaim="always", idle_after_s=60.0)

    assert acts(it.settle()) == [("warn", "h")]
    it.now += 5.0
    assert acts(it.settle()) == [("park", "h")]


def test_without_parking_a_kernel_is_stopped_only_where_an_admin_allows_it_and_after_a_long_notice():
    stuck = {"gpus": (GPU("a", can_park=False),)}
    assert acts(world(holder("h"), waiter(), **stuck).decide()) == []

    it = world(holder("h", idle_since=-5000.0), waiter(), stop_idle_kernels=True, **stuck)
    assert it.step() == [Warn(session="h", why="waiter", rung="stop", in_s=300.0)]
    it.now += 299.0
    assert it.step() == []
    it.now += 1.0
    assert acts(it.settle()) == [("stop", "h"), ("place", "w")]


def test_a_kernel_is_not_stopped_before_its_time():
    it = world(holder("h", idle_since=900.0), waiter(), stop_idle_kernels=True, gpus=(GPU("a", can_park=False),))
    assert acts(it.decide()) == []

    it.now = 900.0 + 3600.0 - 300.0
    assert acts(it.decide()) == [("warn", "h")]


def test_parking_that_failed_is_not_tried_again():
    it = to_park(world(holder("h"), waiter()))
    it["h"].unparkable = True

    assert [(d.session, d.in_s) for d in it.decide()] == [("h", None)]


def test_what_is_needed_stays_the_same_from_round_to_round():
    """Two equal victims: the one that had notice is the one that is taken."""
    it = world(holder("h", memory=40 * GIB), holder("i", memory=40 * GIB), waiter(memory=20 * GIB))
    it.settle()
    noticed = [book.id for book in it.notebooks if book.warned_rung == RUNGS.index("park")]
    it["i"].gaps = it["h"].gaps = (5.0, 4000.0)
    it.now += 5.0

    assert noticed == [session for act, session in acts(it.step()) if act == "park"]
    assert np.isnan(it["h" if noticed == ["i"] else "i"].warned_until)


def test_over_the_cap_of_a_user_only_their_own_idle_sessions_make_room():
    own, other = holder("own", memory=GIB, gpus=0.8), holder("other", "b", memory=GIB)
    it = world(own, other, waiter(gpus=0.5, memory=GIB), gpus=(GPU("a"), GPU("b")))
    it["own"].user = "w"
    it.caps["w"] = 1.0

    assert acts(it.settle()) == [("warn", "own")]
    it.now += 5.0
    assert acts(it.settle()) == [("park", "own"), ("place", "w")]
