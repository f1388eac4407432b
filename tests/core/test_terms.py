"""Each term of fitness: monotone in what it should be, bounded, free of scale; and what data costs to move."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpushare.core import terms
from jupyter_gpushare.core.fragmentation import fragment, gradient, unmet_by
from jupyter_gpushare.core.state import Floats
from jupyter_gpushare.core.topology import Topology, transfer_s

SLACK = 0.01  # unknown ones score a hair below the middle of the known (`terms.neutral`)
part = st.one_of(st.just(0.0), st.floats(1e-6, 1))
rate = st.floats(1e-3, 1e6)
scale = st.floats(1e-3, 1e3)


def table(*columns: st.SearchStrategy[float]) -> st.SearchStrategy[list[Floats]]:
    """As many columns of one length, some values unknown."""
    row = st.tuples(*(st.one_of(column, st.just(np.nan)) for column in columns))
    return st.lists(row, min_size=1, max_size=6).map(lambda rows: list(np.array(rows, dtype=float).T))


# term, its columns, which of them are of a scale, and in which it rises (1) or falls (-1)
CASES: list[tuple[Callable[..., Floats], tuple[st.SearchStrategy[float], ...], tuple[int, ...], tuple[int, ...]]] = [
    (terms.compute, (rate, part), (0,), (1, 1)),
    (terms.data, (rate, part, part), (0,), (1, 1, 1)),
    (terms.thermal, (st.floats(-40, 120),), (), (1,)),
    (terms.stability, (st.floats(0, 1),), (), (-1,)),
    (lambda watts, speed: terms.neutral(-terms.joules(watts, speed)), (rate, rate), (0, 1), (-1, 1)),
    (lambda a, b: terms.energy(0.3, a, b), (part, part), (), (-1, -1)),
]
names = ["compute", "data", "thermal", "stability", "joules", "energy"]
each_term = pytest.mark.parametrize("case", CASES, ids=names)


@each_term
@given(data=st.data())
def test_a_term_is_bounded_and_never_unknown(case, data) -> None:
    term, columns, _, _ = case
    values = term(*data.draw(table(*columns)))
    low, high = (-SLACK, 1.0) if term in (terms.compute, terms.data) else (-1.0 - SLACK, 0.0)
    assert np.isfinite(values).all()
    assert (values >= low - 1e-12).all()
    assert (values <= high + 1e-12).all()


@each_term
@given(data=st.data(), by=scale)
def test_a_term_does_not_change_with_the_unit_it_is_measured_in(case, data, by) -> None:
    term, columns, scaled, _ = case
    given_ = data.draw(table(*columns))
    for column in scaled:
        other = [values * by if index == column else values for index, values in enumerate(given_)]
        assert term(*other) == pytest.approx(term(*given_), rel=1e-9, abs=1e-12)


@each_term
@given(data=st.data())
def test_a_device_that_gets_better_never_scores_lower_against_another(case, data) -> None:
    """Its own term against each of the others: what others score may change as it becomes the best."""
    term, columns, _, rises = case
    given_ = [np.nan_to_num(values, nan=0.5) for values in data.draw(table(*columns))]
    for column, sign in enumerate(rises):
        better = [values.copy() for values in given_]
        high = 1.0 if columns[column] is part else np.inf
        better[column][0] = np.clip(better[column][0] + sign * 0.3 * abs(better[column][0]), 0.0, high)
        before, after = term(*given_), term(*better)
        assert (after[0] - after >= before[0] - before - 1e-9).all() or after[0] >= before[0] - 1e-9


@given(table(rate, part), st.integers(0, 5))
def test_an_unknown_device_never_scores_best(columns: list[Floats], who: int) -> None:
    delivered, idle = (np.nan_to_num(values, nan=0.5) for values in columns)
    delivered[who % delivered.size] = np.nan
    values = terms.compute(delivered, idle)
    known = ~np.isnan(delivered)
    if known.any():
        assert values[who % delivered.size] < values[known].max()


@given(st.floats(1e-3, 1e6), st.floats(0, 1e6), st.floats(0, 1e6))
def test_a_longer_transfer_never_leaves_more_and_no_transfer_leaves_all(run_s: float, near: float, more: float) -> None:
    none, here, far = terms.kept(run_s, np.array([0.0, near, near + more]))
    assert none == 1.0
    assert 0.0 <= far <= here <= 1.0


def test_what_lies_there_is_local_and_the_unknown_is_not() -> None:
    assert terms.locality(np.array([0.0, 0.1, np.nan])).tolist() == [True, False, False]
    assert not terms.locality(np.inf)


def test_energy_is_that_of_the_resource_which_bounds_the_work() -> None:
    """300 W more for 300 TFLOP/s and 1 TB/s, or for 200 TFLOP/s and 3 TB/s: FLOPS cost less here, bytes there."""
    watts = np.array([300.0, 300.0])
    flops, bytes_ = terms.joules(watts, np.array([300.0, 200.0])), terms.joules(watts, np.array([1000.0, 3000.0]))
    assert terms.energy(1.0, flops, bytes_) == pytest.approx([-2 / 3, -1.0])
    assert terms.energy(0.0, flops, bytes_) == pytest.approx([-1.0, -1 / 3])


# --- fragmentation ---------------------------------------------------------------------------------------------


@given(st.lists(part, max_size=30), st.lists(st.tuples(part, part), min_size=1, max_size=6), part, part)
def test_fragmentation_is_bounded_and_what_is_taken_from_a_device_never_frees_more_than_itself(
    guarantees: list[float], free: list[tuple[float, float]], share: float, memory: float
) -> None:
    unmet = unmet_by(np.array(guarantees))
    share_free, memory_free = np.array(free).T
    before = fragment(share_free, memory_free, unmet)
    change = gradient(share_free, memory_free, share, np.full(share_free.size, memory), unmet)
    assert ((before >= 0) & (before <= share_free)).all()
    assert (np.abs(change) <= 1.0).all()


@given(st.lists(part, max_size=30), part, part, part)
def test_less_memory_never_makes_more_of_a_device_usable(
    guarantees: list[float], free: float, memory: float, less: float
) -> None:
    unmet = unmet_by(np.array(guarantees))
    more, fewer = fragment(np.array([free, free]), np.array([memory, memory * less]), unmet)
    assert fewer >= more


# --- moving data between servers -------------------------------------------------------------------------------

V = 3
links = st.lists(rate, min_size=V * V, max_size=V * V).map(lambda values: np.array(values).reshape(V, V))


@given(links, links, st.lists(st.booleans(), min_size=V, max_size=V), st.floats(0, 1e12), st.floats(0, 1e12))
def test_a_transfer_is_nothing_where_a_copy_lies_and_grows_with_what_is_moved(
    gb_s: Floats, latency_s: Floats, copies: list[bool], size: float, more: float
) -> None:
    topology, here = Topology(gb_s, latency_s), np.array(copies)
    found, larger = transfer_s(topology, here, size), transfer_s(topology, here, size + more)
    assert (found[here] == 0.0).all()
    if here.any():
        assert (found[~here] >= latency_s[here][:, ~here].min(axis=0)).all()
        assert (larger >= found).all()
    else:
        assert np.isnan(found).all()


@given(links, links, st.integers(0, V - 1), st.floats(0, 1e12), scale)
def test_a_better_link_or_another_copy_never_makes_a_transfer_longer(
    gb_s: Floats, latency_s: Floats, source: int, size: float, by: float
) -> None:
    here = np.arange(V) == source
    found = transfer_s(Topology(gb_s, latency_s), here, size)
    assert (transfer_s(Topology(gb_s * (1 + by), latency_s / (1 + by)), here, size) <= found + 1e-9).all()
    another = here | (np.arange(V) == (source + 1) % V)
    assert (transfer_s(Topology(gb_s, latency_s), another, size) <= found).all()
