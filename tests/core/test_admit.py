"""Who gets devices, at once or in line."""

from __future__ import annotations

import numpy as np
import pytest

from jupyter_gpushare.model import Place, Refuse
from tests.core.builders import GIB, GPU, NAN, Notebook, World, acts


def busy(name: str, on: str, gpus: float, **more) -> Notebook:
    return Notebook(
        name, user=name, on=on, gpus=gpus, lease=True, state="active", bursting=True, context=True,
        **{"memory_used": GIB, "memory": 2 * GIB} | more,
    )  # fmt: skip


def idle(name: str, on: str, gpus: float, **more) -> Notebook:
    return Notebook(
        name, user=name, on=on, gpus=gpus, lease=True, state="idle", context=True,
        **{"memory_used": GIB, "memory": 2 * GIB, "idle_since": 990.0} | more,
    )  # fmt: skip


def cell(name: str, on: str = "", gpus: float = 0.1, **more) -> Notebook:
    return Notebook(
        name,
        user=name,
        on=on,
        gpus=gpus,
        gated=True,
        **{"state": "waiting", "waiting_since": 995.0, "memory": GIB} | more,
    )


# --- binding --------------------------------------------------------------------------------------------------


def test_an_ordinary_session_is_bound_at_once_even_where_all_is_full():
    world = World([GPU("a")], [busy("b", "a", 0.9), Notebook("n", gpus=0.5, waiting_since=1000.0)])
    (place,) = [d for d in world.step() if isinstance(d, Place)]

    assert (place.session, place.lease, place.share, place.devices) == ("n", False, 0.0, ("a",))
    assert world["n"].state == "bound"


def test_a_new_session_prefers_a_device_with_room_to_a_better_one_without():
    world = World([GPU("best", tflops=900.0), GPU("other")], [busy("b", "best", 0.9), Notebook("n", gpus=0.5)])
    world.step()

    assert list(world["n"].held) == ["other"]


def test_a_session_that_asks_for_nothing_gets_nothing():
    assert World([GPU("a")], [Notebook("n", gpus=0.0, state="none")]).decide() == []


def test_where_nothing_is_offered_it_waits_and_is_not_refused():
    assert World([GPU("a", offered=False)], [Notebook("n")]).decide() == []


@pytest.mark.parametrize(
    ("notebook", "reason"),
    [
        (Notebook("n", allowed=()), "no_such_device"),
        (Notebook("n", gpus=3), "too_few_devices"),
        (Notebook("n", memory=100 * GIB), "memory_too_large"),
        (Notebook("n", gpus=2, user="small"), "over_limit"),
    ],
)
def test_what_can_never_be_is_refused_with_its_reason(notebook, reason):
    world = World(
        [GPU("a"), GPU("b"), GPU("c", server="beta")], [notebook], caps={"small": 1.0}
    )  # three devices, but no server has three

    assert world.decide() == [Refuse(session="n", why=reason)]


# --- cells ----------------------------------------------------------------------------------------------------


def test_a_cell_on_a_free_device_gets_its_lease_at_once():
    world = World([GPU("a")], [cell("n", on="a")])
    (place,) = world.step()

    assert (place.lease, place.borrowed, place.why) == (True, False, "room")
    assert place.share == pytest.approx(0.1)
    assert world.settle() == []


def test_a_holder_that_comes_back_is_admitted_at_once_and_the_others_make_room():
    world = World([GPU("a")], [idle("owner", "a", 0.8), busy("guest", "a", 0.5, borrowed=True)])
    world.settle()
    assert world["guest"].held["a"].share == pytest.approx(0.5)

    world.cell("owner")
    decisions = world.step()

    assert acts(decisions) == [("place", "owner")]
    assert world["owner"].held["a"].share == pytest.approx(0.8)
    assert world["guest"].held["a"].share == pytest.approx(0.2)


def test_room_lent_by_an_idle_holder_is_borrowed():
    world = World([GPU("a")], [idle("owner", "a", 0.8), cell("guest", on="a", gpus=0.5)])
    (place,) = [d for d in world.step() if isinstance(d, Place)]

    assert (place.lease, place.borrowed, place.why) == (True, True, "lent")


def test_a_borrowed_lease_becomes_its_own_when_there_is_room_again():
    world = World([GPU("a")], [cell("guest", on="a", gpus=0.5, lease=True, borrowed=True, state="idle")])
    (place,) = [d for d in world.step() if isinstance(d, Place)]

    assert (place.lease, place.borrowed) == (True, False)


def test_a_cell_waits_where_those_who_compute_need_all():
    world = World([GPU("a")], [busy("b", "a", 0.8), cell("n", on="a", gpus=0.5)])

    assert acts(world.decide()) == []


def test_a_cell_without_a_context_goes_to_a_device_that_can_take_it():
    world = World([GPU("a"), GPU("b")], [busy("x", "a", 0.8), cell("n", on="a", gpus=0.5)])
    (place,) = [d for d in world.step() if isinstance(d, Place)]

    assert (place.devices, place.lease, place.borrowed) == (("b",), True, False)


def test_a_cell_whose_memory_lies_on_a_device_stays_with_it():
    world = World([GPU("a"), GPU("b")], [busy("x", "a", 0.8), cell("n", on="a", gpus=0.5, context=True)])

    assert acts(world.decide()) == []


def test_a_kernel_that_cannot_wait_is_leased_as_borrowed():
    stubborn = Notebook("n", on="a", gpus=0.5, bursting=True, state="active", context=True, cooperative=False)
    world = World([GPU("a")], [busy("x", "a", 0.8), stubborn])
    (place,) = [d for d in world.decide() if isinstance(d, Place)]

    assert (place.session, place.lease, place.borrowed) == ("n", True, True)
    assert place.share <= 0.2 + 1e-9


def test_memory_is_admitted_too():
    full = busy("b", "a", 0.1, memory=70 * GIB)
    world = World([GPU("a", memory_unaccounted=5 * GIB)], [full, cell("n", on="a", memory=6 * GIB, context=True)])
    assert acts(world.decide()) == []

    world["n"].memory = 5 * GIB
    assert acts(world.decide()) == [("place", "n")]


def test_a_demand_without_memory_counts_as_its_part_of_the_device():
    world = World(
        [GPU("a")], [busy("b", "a", 0.1, memory=45 * GIB), cell("n", on="a", gpus=0.5, memory=NAN, context=True)]
    )

    assert acts(world.decide()) == []


def test_nothing_is_granted_on_memory_that_was_not_read():
    unread = {"memory_total": NAN, "memory_used": NAN, "memory_unaccounted": NAN}
    shared = World([GPU("a", **unread)], [busy("b", "a", 0.1), cell("n", on="a", memory=NAN)])
    alone = World([GPU("a", **unread)], [cell("n", on="a", memory=NAN)])

    assert acts(shared.decide()) == []
    assert acts(alone.decide()) == [("place", "n")]


def test_an_exclusive_process_device_takes_one_tree():
    world = World([GPU("a", single=True)], [idle("b", "a", 0.1, cooperative=False, idle_since=NAN), cell("n", on="a")])

    assert acts(world.decide()) == []


def test_the_cap_of_a_user_holds_over_all_sessions():
    world = World([GPU("a"), GPU("b")], [busy("one", "a", 0.9), cell("two", on="b", gpus=0.5)], caps={"one": 1.0})
    world["two"].user = "one"
    assert acts(world.decide()) == []

    world.caps["one"] = 1.4
    assert acts(world.decide()) == [("place", "two")]


# --- whole devices --------------------------------------------------------------------------------------------


def test_a_whole_demand_gets_all_its_devices_on_one_server_or_none():
    gpus = [GPU("a"), GPU("b", server="beta"), GPU("c", server="beta")]
    world = World(gpus, [Notebook("n", gpus=2, waiting_since=1000.0), busy("x", "c", 0.1)])
    assert acts(world.decide()) == []

    world.notebooks.pop()
    (place,) = world.step()
    assert (sorted(place.devices), place.lease, place.share) == (["b", "c"], True, 1.0)


def test_a_whole_device_is_not_one_with_leftovers():
    assert acts(World([GPU("a", blocked=True)], [Notebook("n", gpus=1)]).decide()) == []


def test_an_exclusive_device_is_one_without_any_context_and_nobody_comes_after():
    world = World(
        [GPU("a"), GPU("b")],
        [Notebook("ctx", on="a", state="idle", context=True, memory_used=GIB), Notebook("n", gpus=0.2, exclusive=True)],
    )
    world.settle()
    assert list(world["n"].held) == ["b"]

    world.notebooks.append(cell("late", on="b", context=True))
    assert acts(world.decide()) == []


def test_an_exclusive_demand_prefers_a_device_nobody_is_bound_to():
    world = World(
        [GPU("a", tflops=900.0), GPU("b")],
        [Notebook("b1", on="a", state="bound"), Notebook("n", gpus=1, exclusive=True)],
    )
    world.step()

    assert list(world["n"].held) == ["b"]


def test_small_ones_behind_do_not_take_what_the_big_one_will_get_next():
    gpus = [GPU("a"), GPU("b")]
    big = Notebook("big", user="big", gpus=2, waiting_since=900.0)
    world = World(gpus, [busy("x", "a", 0.1), big, cell("late", on="b", waiting_since=999.0)])
    assert acts(world.decide()) == []

    world.notebooks.remove(big)
    assert acts(world.decide()) == [("place", "late")]


def test_behind_a_big_one_new_sessions_are_still_bound():
    big = Notebook("big", user="big", gpus=2, waiting_since=900.0)
    world = World([GPU("a"), GPU("b")], [busy("x", "a", 0.1), big, Notebook("late", waiting_since=999.0)])

    assert acts(world.decide()) == [("place", "late")]


def test_a_server_whose_line_has_no_head_goes_on():
    big = Notebook("big", user="big", gpus=1, waiting_since=900.0, allowed=("a",))
    world = World([GPU("a"), GPU("b", server="beta")], [busy("x", "a", 0.1), big, cell("late", on="b")])

    assert acts(world.decide()) == [("place", "late")]


def test_nobody_starves_behind_a_stream_of_small_cells():
    """Six notebooks take turns for ever; a demand for the whole device comes and is served."""
    small = [cell(f"s{i}", on="a", memory=2 * GIB, memory_used=GIB, context=True) for i in range(6)]
    world = World([GPU("a")], [*small, Notebook("big", user="big", gpus=1, waiting_since=1000.0)])
    for round_ in range(200):
        world.now += 5.0
        world.step()
        for i, book in enumerate(small):
            if book.bursting and (round_ + i) % 3 == 0:
                world.rest(book.id)
            elif not book.bursting and not book.gated and (round_ + i) % 4 == 0:
                world.cell(book.id)
        if world["big"].leased:
            break

    assert world["big"].leased
    assert world.now < 1000.0 + 60 * 5.0


# --- back from host memory --------------------------------------------------------------------------------------


def parked(name: str, on: str, **more) -> Notebook:
    return Notebook(name, user=name, on=on, gpus=0.5, state="parked", parked_bytes=10 * GIB, **more)


def test_a_parked_session_comes_back_to_its_device_when_its_cell_runs():
    world = World([GPU("a"), GPU("b", tflops=900.0)], [parked("p", "a")])
    assert world.decide() == []

    world.cell("p")
    (resume,) = world.step()
    assert (resume.devices, resume.memory, resume.share) == ({"a": "a"}, int(11 * GIB), 0.5)
    assert world["p"].state == "active"


def test_a_parked_session_comes_back_to_another_device_of_its_kind_when_its_own_is_full():
    gpus = [GPU("a"), GPU("far", server="beta"), GPU("other", model="H100"), GPU("b")]
    world = World(gpus, [parked("p", "a", gated=True, waiting_since=999.0), busy("x", "a", 0.8)])
    (resume,) = [d for d in world.decide() if d.session == "p"]

    assert resume.devices == {"a": "b"}


def test_a_parked_session_waits_until_its_memory_fits():
    world = World(
        [GPU("a")],
        [parked("p", "a", gated=True, waiting_since=999.0, memory=GIB), busy("x", "a", 0.1, memory=70 * GIB)],
    )
    assert acts(world.decide()) == []

    world["x"].memory = 69 * GIB
    assert acts(world.decide()) == [("resume", "p")]


def test_what_filled_its_device_comes_back_to_it_when_that_is_empty():
    """Restoring takes somewhat more than was parked, but an empty device has no more than it has."""
    back = Notebook("p", user="p", on="a", gpus=0.5, state="parked", parked_bytes=78 * GIB, gated=True)
    world = World([GPU("a", memory_total=80 * GIB)], [back])
    (resume,) = world.decide()

    assert resume.memory == 80 * GIB


def test_usage_decides_who_is_next_for_the_last_room():
    world = World([GPU("a")], [cell("heavy", on="a", gpus=0.8), cell("light", on="a", gpus=0.8)], usage={"heavy": 1e6})

    assert acts(world.decide()) == [("place", "light")]
    assert np.isclose(world.decide()[0].share, 0.8)


def test_what_comes_back_keeps_room_for_all_of_its_parked_memory():
    """Its demand says less than what was parked: the next one in line counts with what was parked."""
    back = parked("p", "a", gated=True, waiting_since=900.0, memory=GIB)
    world = World([GPU("a", memory_total=20 * GIB)], [back, cell("n", on="a", memory=10 * GIB)])
    assert acts(world.decide()) == [("resume", "p")]

    back.state, back.gated, back.held["a"].lease = "resuming", False, True
    assert acts(world.decide()) == []
    world["n"].memory = 9 * GIB
    assert acts(world.decide()) == [("place", "n")]


@pytest.mark.parametrize("memory", [NAN, 20 * GIB])
def test_where_memory_has_no_known_size_one_session_at_a_time_is_let_in_whatever_memory_it_names(memory):
    """A7: unified memory. What a session was once seen to hold must not shut it out for ever."""
    gpu = GPU("a", memory_total=NAN, memory_used=NAN, memory_unaccounted=NAN)
    world = World([gpu], [cell("first", "a", 0.3, memory=memory), cell("second", "a", 0.3, memory=memory)])
    assert [d.session for d in world.decide() if isinstance(d, Place) and d.lease] == ["first"]
