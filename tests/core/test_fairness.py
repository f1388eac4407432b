"""Who is next: usage decays, only contended use counts, weights pay off, waiting ages."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpushare.core.fairness import AGEING_S, charge, decay, order, priority, worth
from jupyter_gpushare.core.policy import Policy, Weights
from jupyter_gpushare.core.state import Users
from tests.core.builders import GPU, NAN, Notebook, World

POLICY = Policy(half_life_s=3600.0)
amount = st.floats(0, 1e6)
step = st.floats(0, 1e5)


def users(weight: list[float], usage: list[float]) -> Users:
    size = len(weight)
    names = tuple(f"u{i}" for i in range(size))
    return Users(name=names, weight=np.array(weight), usage=np.array(usage), cap=np.full(size, np.inf))


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
    found = priority(users([1.0, 3.0], [0.5 * full, 0.1 * full]), 4.0, POLICY)
    assert found == pytest.approx([max(0.25 + (0.25 - 0.5), 0), 0.75 + (0.75 - 0.1)])


@given(st.lists(st.tuples(st.floats(0.1, 10), amount), min_size=1, max_size=6), amount, st.integers(0, 5))
def test_more_usage_never_raises_and_more_weight_never_lowers_a_priority(
    rows: list[tuple[float, float]], more: float, who: int
) -> None:
    who %= len(rows)
    weight, usage = [w for w, _ in rows], [u for _, u in rows]
    before = priority(users(weight, usage), 4.0, POLICY)
    assert (before >= 0).all()
    used = [u + more * (i == who) for i, u in enumerate(usage)]
    assert priority(users(weight, used), 4.0, POLICY)[who] <= before[who] + 1e-12
    heavier = [w + more * (i == who) for i, w in enumerate(weight)]
    assert priority(users(heavier, usage), 4.0, POLICY)[who] >= before[who] - 1e-12


def test_without_the_fairness_objective_only_weight_counts() -> None:
    policy = Policy(half_life_s=3600.0, weights=Weights(fairness=0.0))
    assert priority(users([1.0, 1.0], [1e9, 0.0]), 4.0, policy).tolist() == [0.5, 0.5]


@pytest.mark.parametrize("capacity", [0.0, 4.0])
def test_nobody_and_no_devices_are_no_error(capacity: float) -> None:
    assert priority(users([], []), capacity, POLICY).shape == (0,)
    assert priority(users([1.0], [5.0]), 0.0, POLICY)[0] == 2.0


def line(waiting: list[tuple[str, str, float]], priorities: dict[str, float], now: float = 1e5) -> list[str]:
    """Ids in order, of (id, user, seconds waited); NaN does not wait."""
    notebooks = [Notebook(name, user=user, waiting_since=now - waited) for name, user, waited in waiting]
    state = World([GPU("a")], notebooks, now=now).state()
    standing = np.array([priorities[name] for name in state.users.name])
    rows = order(state.sessions, state.users, standing, now, POLICY)
    return [state.sessions.id[row] for row in rows]


def test_the_higher_priority_goes_first_and_who_does_not_wait_is_not_in_line() -> None:
    found = line([("n1", "a", 1.0), ("n2", "b", 1.0), ("n3", "b", NAN)], {"a": 0.1, "b": 0.9})
    assert found == ["n2", "n1"]


def test_within_a_user_the_first_to_come_is_first_and_ties_go_by_id() -> None:
    assert line([("n2", "a", 5.0), ("n1", "a", 5.0), ("n3", "a", 6.0)], {"a": 0.5}) == ["n3", "n1", "n2"]


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 10_000)), max_size=8),
    st.tuples(st.floats(0, 2), st.floats(0, 2), st.floats(0, 2)),
)
def test_nobody_is_behind_one_who_came_an_ageing_time_later(
    waits: list[tuple[str, int]], standing: tuple[float, float, float]
) -> None:
    waiting = [(f"n{i}", user, float(waited)) for i, (user, waited) in enumerate(waits)]
    found = line(waiting, dict(zip("abc", standing, strict=True)))
    assert sorted(found) == sorted(name for name, _, _ in waiting)
    waited = {name: seconds for name, _, seconds in waiting}
    for i, ahead in enumerate(found):
        for behind in found[i + 1 :]:
            assert waited[behind] <= waited[ahead] + AGEING_S


def test_the_order_does_not_depend_on_the_order_of_rows() -> None:
    waiting = [("n1", "a", 5.0), ("n2", "b", 700.0), ("n3", "c", 30.0), ("n4", "a", 5.0)]
    priorities = {"a": 0.4, "b": 0.1, "c": 0.0}
    assert line(waiting, priorities) == line(waiting[::-1], priorities)
