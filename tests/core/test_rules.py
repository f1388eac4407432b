"""What always holds, over random clusters and over many rounds of them."""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jupyter_gpushare import model
from jupyter_gpushare.core.decide import decide, placement
from jupyter_gpushare.core.policy import Policy, Weights
from tests.core.builders import GIB, GPU, NAN, RUNGS, Held, Notebook, World

UUIDS = ("g0", "g1", "g2", "g3")
NOW = 1000.0
OFTEN = settings.default.max_examples  # of the profile that conftest.py loaded
pytestmark = [pytest.mark.timeout(0)] if OFTEN >= 1000 else []
maybe = st.booleans()
seldom = st.sampled_from([False, False, False, True])


def examples(in_ci: int) -> settings:
    """So many examples in CI, all of the profile's where it tries more (`HYPOTHESIS_PROFILE=nightly`)."""
    return settings(max_examples=OFTEN if OFTEN >= 1000 else in_ci)


@st.composite
def objectives(draw: st.DrawFn) -> Weights:
    """Any weights that can be set, mild or extreme; often some of them nothing."""
    amount = st.one_of(st.just(0.0), st.floats(0.0, 4.0), st.sampled_from([1e-6, 100.0, 1e6]))
    return Weights(*draw(st.tuples(amount, amount, amount, amount).filter(any)))


@st.composite
def gpus(draw: st.DrawFn) -> list[GPU]:
    """One to four devices on up to two servers, some of them unreadable, hot, draining or foreign-used."""
    found = []
    for uuid in UUIDS[: draw(st.integers(1, 4))]:
        leaving = draw(seldom)
        fresh = not draw(seldom)
        unread = draw(seldom)
        found.append(
            GPU(
                uuid,
                server=draw(st.sampled_from(["alpha", "alpha", "beta"])),
                model=draw(st.sampled_from(["A100", "H100"])),
                offered=fresh and not leaving and not draw(seldom),
                fresh=fresh,
                leaving=leaving,
                single=draw(seldom),
                blocked=draw(seldom),
                can_park=not draw(seldom),
                tflops=draw(st.sampled_from([100.0, 312.0, NAN])),
                memory_total=NAN if unread else draw(st.sampled_from([16, 80])) * GIB,
                memory_used=NAN if unread else 0.0,
                memory_unaccounted=NAN if unread else draw(st.sampled_from([0, 2])) * GIB,
                utilization=draw(st.sampled_from([0.0, 0.5, 1.0, NAN])),
                temperature_c=draw(st.sampled_from([40.0, 91.0, NAN])),
                clock_fraction=draw(st.sampled_from([1.0, 1.0, 0.5, NAN])),
                link_gb_s=draw(st.sampled_from([25.0, 0.1])),
            )
        )
    return found


@st.composite
def notebooks(draw: st.DrawFn, of: list[GPU], index: int) -> Notebook:
    """A session in any state it can be in."""
    uuids = [gpu.uuid for gpu in of]
    gpus_ = draw(st.sampled_from([0.1, 0.1, 0.25, 0.5, 0.7, 1, 2]))
    server = draw(st.sampled_from([gpu.server for gpu in of]))
    here = [gpu.uuid for gpu in of if gpu.server == server]
    count = int(np.ceil(gpus_))
    state = draw(
        st.sampled_from(["waiting", "waiting", "bound", "active", "idle", "idle", "parked", "none", "parking"])
    )
    placed = state in ("bound", "active", "idle", "parked", "parking") or (state == "waiting" and draw(maybe))
    if len(here) < count or not placed:
        state, placed = state if state in ("waiting", "none") else "waiting", False
    context = state in ("active", "idle", "parking") or (placed and state == "waiting" and draw(seldom))
    memory = draw(st.sampled_from([NAN, GIB, 4 * GIB, 12 * GIB, 40 * GIB]))
    used = draw(st.sampled_from([0.0, GIB, 3 * GIB, NAN])) if context else NAN
    lease = state in ("active", "idle") and not draw(seldom)
    bursting = state == "active"
    steady = draw(st.sampled_from([NAN, NAN, 0.0, 0.5])) if bursting else NAN
    gated = not bursting and state in ("waiting", "parked", "idle") and placed and draw(maybe)
    warned = state == "idle" and draw(seldom)
    return Notebook(
        f"n{index}",
        user=draw(st.sampled_from(["ann", "bob", "cy"])),
        state=state,
        gpus=gpus_,
        exclusive=draw(seldom) and gpus_ >= 1,
        memory=memory,
        allowed=draw(st.sampled_from([None, None, None, tuple(uuids[:1]), tuple(uuids[1:])])),
        compute_p=draw(st.sampled_from([0.0, 0.5, 1.0])),
        confidence=draw(st.sampled_from([0.0, 1.0])),
        horizon=draw(st.sampled_from(model.HORIZONS)),
        bursting=bursting,
        gated=gated,
        cooperative=gated or draw(maybe),
        context=context,
        waiting_since=NOW - draw(st.integers(0, 500)) if gated or state == "waiting" else NAN,
        idle_since=NOW - draw(st.integers(0, 5000)) if state == "idle" and not draw(seldom) else NAN,
        pinned_until=NOW + 500 if draw(seldom) else -np.inf,
        protected_until=NOW + 500 if draw(seldom) else -np.inf,
        unparkable=draw(seldom),
        warned_rung=RUNGS.index(draw(st.sampled_from(["park", "stop"]))) if warned else -1,
        warned_until=NOW + draw(st.sampled_from([-1.0, 3.0])) if warned else NAN,
        gaps=tuple(draw(st.lists(st.sampled_from([1.0, 60.0, 4000.0]), max_size=4))),
        parked_bytes=2.0 * GIB * count if state == "parked" else 0.0,
        duration_s=draw(st.sampled_from([NAN, NAN, 30.0, 3600.0])),
        ran=(draw(st.sampled_from([5.0, 2000.0])),) * draw(st.sampled_from([0, 4])),
        burst_since=NOW - draw(st.sampled_from([0.0, 100.0])) if bursting else NAN,
        on={
            uuid: Held(
                lease=lease, share=0.1 if lease else 0.0, target=0.1 if lease else NAN, memory_used=used, steady=steady
            )
            for uuid in here[:count]
        }
        if placed
        else {},
    )


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """A cluster as a broker could have brought it about: guarantees and memory within bounds."""
    devices = draw(gpus())
    world = World(
        devices,
        now=NOW,
        policy=Policy(
            reclaim=draw(st.sampled_from(["contended", "contended", "always", "never"])),
            idle_after_s=draw(st.sampled_from([None, 0.0, 60.0])),
            stop_idle_kernels=draw(maybe),
            stop_after_s=draw(st.sampled_from([0.0, 3600.0])),
            weights=draw(objectives()),
            packing=draw(st.sampled_from(["fill", "gradient"])),
        ),
        caps={"cy": draw(st.sampled_from([0.2, 1.0, np.inf]))},
        weights={"bob": draw(st.sampled_from([1.0, 5.0]))},
        usage={"ann": draw(st.sampled_from([0.0, 1e3, 1e9]))},
        groups=draw(st.sampled_from([{}, {"ann": "x", "bob": "x"}])),
        group_weights={"x": draw(st.sampled_from([1.0, 0.1]))},
    )
    for index in range(draw(st.integers(0, 7))):
        book = draw(notebooks(devices, index))
        world.notebooks.append(book)
        if over_committed(world) or over_promised(world):
            for held in book.held.values():
                held.borrowed = held.lease
            if over_promised(world):
                world.notebooks.pop()
    return world


def leases(world: World, uuid: str) -> list[Notebook]:
    return [book for book in world.notebooks if uuid in book.held and book.held[uuid].lease]


def over_committed(world: World) -> list[str]:
    """Devices on which the guarantees of leases of their own exceed the whole."""
    return [
        gpu.uuid
        for gpu in world.gpus
        if sum(book.guarantee for book in leases(world, gpu.uuid) if not book.held[gpu.uuid].borrowed) > 1 + 1e-6
    ]


def promised(world: World, gpu: GPU) -> float:
    """Bytes promised on a device to whoever has a lease or a context there."""
    total = 0.0
    for book in world.notebooks:
        held = book.held.get(gpu.uuid)
        if held is not None and book.state != "parked" and (book.context or (held.lease and book.bursting)):
            own = book.guarantee * (gpu.memory_total - gpu.memory_unaccounted) if np.isnan(book.memory) else book.memory
            total += np.fmax(held.memory_used, own)
    return total


def over_promised(world: World) -> list[str]:
    return [gpu.uuid for gpu in world.gpus if promised(world, gpu) > gpu.memory_total - gpu.memory_unaccounted + 4096]


def check(before: World, after: World, decisions: list[model.Decision]) -> None:
    """The rules, for one round."""
    device = {gpu.uuid: gpu for gpu in before.gpus}
    contended = before.policy.reclaim == "contended"
    wants = any(book.gated or book.state == "waiting" or book.bursting for book in before.notebooks)

    assert not over_committed(after)
    ran_anyway = {d.session for d in decisions if isinstance(d, model.Place) and before[d.session].bursting}
    if not ran_anyway:
        assert not over_promised(after)
    for gpu in before.gpus:
        assert sum(book.held[gpu.uuid].share for book in leases(after, gpu.uuid)) <= 1 + 0.005 * 8
        if [book for book in leases(after, gpu.uuid) if book.exclusive] and not ran_anyway:
            new = [book.id for book in leases(after, gpu.uuid) if book not in leases(before, gpu.uuid)]
            new = [name for name in new if not before[name].leased]
            assert len(leases(after, gpu.uuid)) == 1 or not new

    for decision in decisions:
        book = before[decision.session]
        allowed = book.allowed if book.allowed is not None else tuple(device)
        if isinstance(decision, model.Place):
            fresh = set(decision.devices) - set(book.held)
            assert all(device[uuid].offered and uuid in allowed for uuid in fresh)
            assert len(decision.devices) == book.demand.devices
            assert len({device[uuid].server for uuid in decision.devices}) == 1
            assert not (book.context and fresh), "its memory lies elsewhere"
            if decision.lease and not decision.borrowed and not book.leased and book.demand.whole:
                assert not any(device[uuid].blocked for uuid in decision.devices)
        if isinstance(decision, model.ResumeSession | model.Move):
            assert all(device[uuid].offered and uuid in allowed for uuid in decision.devices.values())
            assert {device[a].server for a in decision.devices} == {device[b].server for b in decision.devices.values()}
        if isinstance(decision, model.ParkSession | model.StopKernel | model.Unbind | model.Move):
            assert not book.bursting
            assert not book.gated or any(
                before.now - other.waiting_since >= 120 for other in before.notebooks if other is not book
            ), "its cell waits, and nobody before it has waited for long"
            assert book.pinned_until <= before.now
            assert book.idle_since <= before.now, "unknown idle"
            assert all(device[uuid].fresh for uuid in book.held), "stale"
        if isinstance(decision, model.Move):
            assert book.protected_until <= before.now
            assert all(device[uuid].can_park for uuid in (*decision.devices, *decision.devices.values()))
            assert {device[a].model for a in decision.devices} == {device[b].model for b in decision.devices.values()}
            others = [d for d in decisions if d.session == decision.session and d is not decision]
            harmless = [isinstance(d, model.Expand | model.Shrink) or getattr(d, "in_s", 0) is None for d in others]
            assert all(harmless), "nothing else befalls who moves, but a notice may be taken back"
        if isinstance(decision, model.ParkSession | model.StopKernel):
            assert book.protected_until <= before.now
            assert book.warned_until <= before.now, "without notice"
            assert RUNGS[book.warned_rung] == ("park" if isinstance(decision, model.ParkSession) else "stop")
        if isinstance(decision, model.ParkSession):
            assert not book.unparkable
            assert all(device[uuid].can_park for uuid in book.held)
        if isinstance(decision, model.StopKernel):
            assert before.policy.stop_idle_kernels
        takes = isinstance(decision, model.ParkSession | model.StopKernel | model.Unbind | model.TrimCaches)
        takes |= isinstance(decision, model.Warn) and decision.in_s is not None
        if takes:
            assert before.policy.reclaim != "never"
            assert wants or not contended, "nobody waits"
        if isinstance(decision, model.Expand | model.Shrink):
            after_book = after[decision.session]
            held = after_book.held[decision.device]
            if after_book.bursting and not held.borrowed:
                alone = sum(b.guarantee for b in leases(after, decision.device) if not b.held[decision.device].borrowed)
                assert decision.share >= after_book.guarantee - 1e-6 or alone > 1
            assert decision.share <= 1 + 1e-9


@examples(300)
@given(worlds())
def test_the_rules_hold_in_any_state(world):
    before = copy.deepcopy(world)
    decisions = world.step()

    check(before, world, decisions)


@examples(30)
@given(worlds(), st.data())
def test_the_rules_hold_round_after_round(world, data):
    for _ in range(8):
        before = copy.deepcopy(world)
        check(before, world, world.step())
        world.now += data.draw(st.sampled_from([0.0, 5.0, 400.0]))
        for book in world.notebooks:
            act = data.draw(st.sampled_from(["nothing", "nothing", "cell", "rest"]))
            if act == "cell" and not book.bursting and book.state in ("bound", "idle", "parked", "none"):
                world.cell(book.id)
            if act == "rest" and book.bursting:
                world.rest(book.id)


@examples(40)
@given(worlds())
def test_it_comes_to_rest(world):
    """Carried out without anything else happening, decisions end: nothing flaps."""
    world.settle(rounds=12)


@examples(60)
@given(worlds())
def test_the_same_state_gives_the_same_decisions(world):
    state = world.state()

    assert decide(state, world.now, world.policy) == decide(state, world.now, world.policy)


@examples(60)
@given(worlds(), st.randoms(use_true_random=False))
def test_the_order_of_rows_does_not_matter(world, random):
    shuffled = replace(world, gpus=random.sample(world.gpus, len(world.gpus)))
    shuffled.notebooks = random.sample(world.notebooks, len(world.notebooks))

    assert _known(shuffled.decide()) == _known(world.decide())


def _known(decisions: list[model.Decision]) -> list[str]:
    """Comparable whatever the order: who gets what, to three digits."""
    short = []
    for d in decisions:
        fields = {
            name: getattr(d, name, None) for name in ("devices", "device", "lease", "borrowed", "rung", "in_s", "why")
        }
        if isinstance(d, model.Place | model.Unbind | model.ParkSession):
            fields["devices"] = sorted(fields["devices"])
        short.append(f"{type(d).__name__} {d.session} {fields} {round(getattr(d, 'share', 0.0), 3)}")
    return sorted(short)


@examples(60)
@given(worlds())
def test_every_session_can_be_explained(world):
    state = world.state()
    for row in range(len(world.notebooks)):
        everywhere, terms, alternatives = placement(state, row, world.policy)
        assert all(np.isfinite(term.value) and term.text for term in terms)
        assert all(np.isfinite(other.fitness) and other.text for other in alternatives)
        assert len(terms) in (0, 7)
        assert not np.isinf(everywhere).any()


@pytest.mark.parametrize("seed", range(2))
def test_nobody_waits_for_ever(seed):
    """Twelve notebooks of four users on two devices, cells at random: each cell runs within a bounded time."""
    rng = np.random.default_rng(seed)
    sizes = [0.1, 0.1, 0.25, 0.5]
    books = [
        Notebook(f"n{i}", user=f"u{i % 4}", gpus=sizes[i % 4], memory=(8 + 4 * (i % 4)) * GIB, waiting_since=NOW)
        for i in range(12)
    ]
    books.append(Notebook("whole", user="w", gpus=2, waiting_since=NOW))
    world = World([GPU("a"), GPU("b")], books, now=NOW)
    waited: dict[str, float] = {}
    for _ in range(300):
        world.now += 5.0
        world.step()
        for book in world.notebooks:
            if book.gated or (book.id == "whole" and not book.leased):
                waited[book.id] = max(waited.get(book.id, 0.0), world.now - book.waiting_since)
            if book.bursting:
                for held in book.held.values():
                    held.memory_used = book.memory if not np.isnan(book.memory) else 40 * GIB
                if rng.random() < 0.2:
                    world.rest(book.id)
            elif (book.held or book.state == "none") and not book.gated and rng.random() < 0.03:
                world.cell(book.id)

    assert waited["whole"] > 0
    assert max(waited.values()) < 1200.0
