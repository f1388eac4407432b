"""Who is next: usage decays, only contended use counts, weights pay off, waiting ages."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpushare.core.fairness import AGEING_S, K, charge, decay, order, priority, worth
from jupyter_gpushare.core.policy import Policy, Weights
from tests.core.builders import GPU, NAN, Notebook, World

POLICY = Policy(half_life_s=3600.0)
amount = st.floats(0, 1e6)
step = st.floats(0, 1e5)


def due(weight: list[float], usage: list[float], capacity: float = 4.0, policy: Policy = POLICY) -> np.ndarray:
    return priority(np.array(weight), np.array(usage), capacity, policy)


@given(amount, step, step)
def test_decay_over_two_stretches_is_decay_over_their_sum(usage: float, first_s: float, second_s: float) -> None:
    twice = decay(decay(np.array([usage]), first_s, 3600.0), second_s, 3600.0)
    assert twice == pytest.approx(decay(np.array([usage]), first_s + second_s, 3600.0))


def test_usage_is_halved_in_a_half_life_and_never_grows_by_a_clock_gone_back() -> None:
    assert decay(np.array([8.0]), 3600.0, 3600.0).tolist() == [4.0]
    assert decay(np.array([8.0]), -5.0, 3600.0).tolist() == [8.0]


def test_only_contended_use_is_charged_by_the_devices_worth() -> None:
    charged = charge(
        np.array([1.0, 0.0]),
        user=np.array([0, 0, 1]),
        share=np.array([0.5, 0.5, 0.25]),
        worth=np.array([2.0, 1.0, 1.0]),
        contended=np.array([True, False, True]),
        dt_s=10.0,
    )
    assert charged.tolist() == [11.0, 2.5]


@given(st.lists(st.tuples(st.integers(0, 2), st.floats(0, 1), st.floats(0.1, 4), st.booleans()), max_size=10), step)
def test_a_charge_never_lowers_usage(rows: list[tuple[int, float, float, bool]], dt_s: float) -> None:
    table = np.array(rows, dtype=float).reshape(len(rows), 4)
    before = np.array([1.0, 2.0, 3.0])
    after = charge(before, table[:, 0].astype(np.int64), table[:, 1], table[:, 2], table[:, 3].astype(bool), dt_s)
    assert (after >= before).all()
    assert after.sum() - before.sum() == pytest.approx((table[:, 1] * table[:, 2] * table[:, 3]).sum() * dt_s)


def test_a_device_is_worth_its_compute_and_bandwidth_over_the_mean() -> None:
    gpus = [GPU("a", tflops=300, bandwidth_gb_s=2000), GPU("b", tflops=100, bandwidth_gb_s=1000)]
    assert worth(World(gpus).state().devices) == pytest.approx([(1.5 + 4 / 3) / 2, (0.5 + 2 / 3) / 2])


def test_a_device_of_which_nothing_is_known_counts_one() -> None:
    gpus = [GPU("a", tflops=NAN, bandwidth_gb_s=NAN), GPU("b", tflops=NAN, bandwidth_gb_s=500)]
    assert worth(World(gpus).state().devices).tolist() == [1.0, 1.0]


def test_priority_is_the_formula() -> None:
    full = 4 * 3600.0 / math.log(2)  # what four devices used without pause tend to
    found = due([1.0, 3.0], [0.5 * full, 0.1 * full])
    assert found == pytest.approx([max(0.25 + K * (0.25 - 0.5), 0), 0.75 + K * (0.75 - 0.1)])


@given(st.lists(st.tuples(st.floats(0.1, 10), amount), min_size=1, max_size=6), amount, st.integers(0, 5))
def test_more_usage_never_raises_and_more_weight_never_lowers_a_priority(
    rows: list[tuple[float, float]], more: float, who: int
) -> None:
    who %= len(rows)
    weight, usage = [w for w, _ in rows], [u for _, u in rows]
    before = due(weight, usage)
    assert (before >= 0).all()
    used = [u + more * (i == who) for i, u in enumerate(usage)]
    assert due(weight, used)[who] <= before[who] + 1e-12
    heavier = [w + more * (i == who) for i, w in enumerate(weight)]
    assert due(heavier, usage)[who] >= before[who] - 1e-12


def test_without_the_fairness_objective_only_weight_counts() -> None:
    policy = Policy(half_life_s=3600.0, weights=Weights(fairness=0.0))
    assert due([1.0, 1.0], [1e9, 0.0], policy=policy).tolist() == [0.5, 0.5]


@pytest.mark.parametrize("capacity", [0.0, 4.0])
def test_nobody_and_no_devices_are_no_error(capacity: float) -> None:
    assert due([], [], capacity).shape == (0,)
    assert due([1.0], [5.0], 0.0)[0] == 1.0 + K


# --- the line --------------------------------------------------------------------------------------------------

FULL = 4 * 3600.0 / math.log(2)


def line(
    waiting: list[tuple[str, str, float]],
    usage: dict[str, float] | None = None,
    held: dict[str, float] | None = None,
    now: float = 1e5,
    gpus: float = 0.1,
    **of: dict[str, float] | dict[str, str],
) -> list[str]:
    """Ids in order, of (id, user, seconds waited); NaN does not wait. `usage` is a part of what four devices give."""
    notebooks = [Notebook(name, user=user, waiting_since=now - waited, gpus=gpus) for name, user, waited in waiting]
    parts = {user: part * FULL for user, part in (usage or {}).items()}
    state = World([GPU("a")], notebooks, now=now, usage=parts, **of).state()  # type: ignore[arg-type]
    holds = np.array([(held or {}).get(name, 0.0) for name in state.users.name])
    rows = order(state.sessions, state.users, holds, 4.0, now, POLICY)
    return [state.sessions.id[row] for row in rows]


def test_who_had_less_goes_first_and_who_does_not_wait_is_not_in_line() -> None:
    found = line([("n1", "a", 1.0), ("n2", "b", 1.0), ("n3", "b", NAN)], {"a": 0.5, "b": 0.1})
    assert found == ["n2", "n1"]


def test_who_holds_less_now_goes_first_and_the_second_of_one_user_counts_the_first() -> None:
    assert line([("n1", "a", 1.0), ("n2", "b", 1.0)], held={"a": 0.5}) == ["n2", "n1"]
    assert line([("n1", "a", 2.0), ("n2", "a", 2.0), ("n3", "b", 1.0)]) == ["n1", "n3", "n2"]


def test_twice_the_weight_goes_twice_as_often() -> None:
    waiting = [(f"{user}{i}", user, 1.0) for user in "ab" for i in range(8)]
    found = line(waiting, weights={"b": 2.0})
    assert sum(name[0] == "b" for name in found[:6]) == 4


def test_within_a_user_the_first_to_come_is_first_and_ties_go_by_id() -> None:
    assert line([("n2", "a", 5.0), ("n1", "a", 5.0), ("n3", "a", 6.0)]) == ["n3", "n1", "n2"]


part = st.floats(0, 2)
parts = st.fixed_dictionaries({"a": part, "b": part, "c": part})


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 10_000)), max_size=8),
    parts,
    parts,
    st.sampled_from([{}, {"a": "x", "b": "x", "c": "y"}]),
)
def test_nobody_is_behind_one_who_came_an_ageing_time_later(
    waits: list[tuple[str, int]], usage: dict[str, float], held: dict[str, float], groups: dict[str, str]
) -> None:
    waiting = [(f"n{i}", user, float(waited)) for i, (user, waited) in enumerate(waits)]
    found = line(waiting, usage, held, groups=groups)
    assert sorted(found) == sorted(name for name, _, _ in waiting)
    waited = {name: seconds for name, _, seconds in waiting}
    owner = {name: user for name, user, _ in waiting}
    for i, ahead in enumerate(found):
        for behind in found[i + 1 :]:
            assert waited[behind] <= waited[ahead] + AGEING_S
            assert owner[behind] != owner[ahead] or waited[behind] <= waited[ahead]


@given(parts, parts, st.floats(0.1, 2))
def test_using_or_holding_more_never_brings_anyone_forward(
    usage: dict[str, float], held: dict[str, float], more: float
) -> None:
    waiting = [("n1", "a", 5.0), ("n2", "b", 700.0), ("n3", "c", 30.0)]
    before = line(waiting, usage, held).index("n1")
    assert line(waiting, usage | {"a": usage["a"] + more}, held).index("n1") >= before
    assert line(waiting, usage, held | {"a": held["a"] + more}).index("n1") >= before


@given(parts, st.sampled_from([{}, {"a": "x", "b": "x", "c": "y"}]))
def test_the_order_does_not_depend_on_the_order_of_rows(usage: dict[str, float], groups: dict[str, str]) -> None:
    waiting = [("n1", "a", 5.0), ("n2", "b", 700.0), ("n3", "c", 30.0), ("n4", "a", 5.0)]
    assert line(waiting, usage, groups=groups) == line(waiting[::-1], usage, groups=groups)


def test_the_order_does_not_depend_on_the_size_of_what_is_asked() -> None:
    waiting = [(f"{user}{i}", user, 9.0 - i) for user in "abc" for i in range(3)]
    small = line(waiting, {"a": 0.1}, {"b": 0.2})
    assert line(waiting, {"a": 0.1}, {"b": 1.0}, gpus=0.5) == small


# --- groups ----------------------------------------------------------------------------------------------------


def test_one_group_of_all_is_as_none() -> None:
    waiting = [("n1", "a", 5.0), ("n2", "b", 700.0), ("n3", "c", 30.0)]
    usage = {"a": 0.3, "b": 0.2}
    assert line(waiting, usage, groups=dict.fromkeys("abc", "all")) == line(waiting, usage)


def test_many_members_go_no_more_often_than_one() -> None:
    """Ten users of one group wait with a session each, one of another with ten: by turns."""
    waiting = [(f"m{i}", f"m{i}", 5.0) for i in range(10)] + [(f"s{i}", "solo", 5.0) for i in range(10)]
    groups = {f"m{i}": "many" for i in range(10)} | {"solo": "one"}
    found = line(waiting, groups=groups)
    assert [sum(name[0] == "s" for name in found[: 2 * n]) for n in (1, 2, 3, 4, 5)] == [1, 2, 3, 4, 5]


def test_what_members_used_and_hold_counts_against_their_group() -> None:
    waiting = [("n1", "fresh", 5.0), ("n2", "solo", 5.0)]
    groups = {"fresh": "g", "greedy": "g", "solo": "h"}
    idle = ("n3", "greedy", NAN)
    assert line([*waiting, idle], {"greedy": 0.6}, groups=groups) == ["n2", "n1"]
    assert line([*waiting, idle], held={"greedy": 2.0}, groups=groups) == ["n2", "n1"]


def test_within_a_group_who_had_less_goes_first() -> None:
    waiting = [("n1", "a", 5.0), ("n2", "b", 5.0), ("n3", "c", 5.0)]
    groups = {"a": "x", "b": "x", "c": "y"}
    found = line(waiting, {"a": 0.2}, groups=groups)
    assert found.index("n2") < found.index("n1")


def served(users: dict[str, str], weights: dict[str, float], devices: int, seconds: float = 1.5e5) -> dict[str, float]:
    """Parts of the time of so many devices by user, when everybody always wants two: charged and ordered as it is.

    Cells of ten minutes; the time a cell waits is left out (0), since it is the standings that are looked at.
    """
    now, step_s = 0.0, 600.0 / devices
    had = dict.fromkeys(users, 0.0)
    state = World([GPU("a")], [Notebook(user, user=user, gpus=1) for user in users]).state()
    names = list(state.users.name)
    running: list[int] = []
    group_names = sorted(set(users.values()))
    members = np.array([group_names.index(users[name]) for name in names])
    people = replace(
        state.users, group=members, group_weight=np.array([weights.get(name, 1.0) for name in group_names])
    )
    two = World([GPU("a")], [Notebook(f"{u}-{i}", user=u, gpus=1, waiting_since=0.0) for u in names for i in (0, 1)])
    asks = two.state().sessions
    usage = np.zeros(len(names))
    while now < seconds:
        held = np.bincount(running, minlength=len(names)).astype(float)
        if len(running) == devices:
            running.pop(0)
            held = np.bincount(running, minlength=len(names)).astype(float)
        first = order(asks, replace(people, usage=usage), held, float(devices), 0.0, POLICY)[0]
        running.append(int(asks.user[first]))
        on = np.array(running)
        usage = decay(usage, step_s, POLICY.half_life_s)
        usage = charge(usage, on, np.ones(on.size), np.ones(on.size), np.ones(on.size, bool), step_s)
        for user in running:
            had[names[user]] += step_s
        now += step_s
    return {name: value / sum(had.values()) for name, value in had.items()}


@pytest.mark.parametrize("devices", [1, 8])
@pytest.mark.parametrize("members", [1, 6])
def test_in_the_long_run_groups_get_their_weights_however_many_members(devices: int, members: int) -> None:
    users = {f"m{i}": "many" for i in range(members)} | {"solo": "one", "pair": "one"}
    found = served(users, {"many": 1.0, "one": 2.0}, devices)
    assert found["solo"] + found["pair"] == pytest.approx(2 / 3, abs=0.06)


def test_members_of_a_group_share_its_part_evenly() -> None:
    users = {"a": "x", "b": "x", "c": "y"}
    assert served(users, {}, 4) == pytest.approx({"a": 0.25, "b": 0.25, "c": 0.5}, abs=0.05)
