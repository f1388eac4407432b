"""Where the pressure is, over the last hours, and what each user is due."""

from __future__ import annotations

import msgspec
import pytest

from jupyter_gpushare.broker import figures
from jupyter_gpushare.broker.port import Settings
from jupyter_gpushare.broker.records import FIGURES
from jupyter_gpushare.broker.rows import History, HistoryQuery
from jupyter_gpushare.model import Caller

ALICE, ADMIN = Caller(user="alice"), Caller(user="root", admin=True)


def recorded(query: HistoryQuery) -> History:
    return History(since=0.0, until=1.0, step_s=1.0, series=(), by_user={}, by_group={}, by_day={}, total_gpu_s=90.0)


async def looked_back(w, caller: Caller, **query: str) -> History:
    async def history(query: HistoryQuery) -> History:
        return recorded(query)

    w.broker.ledger.history = history
    return msgspec.convert(await w.call("GET", "history", caller, **query), History)


async def test_a_moment_counts_who_waits_computes_and_rests_and_what_is_out(world):
    w = await world(devices=2)
    await w.kernel("k1", demand={"gpus": 1})
    await w.cell("k1")
    await w.kernel("k2", user="bob", demand={"gpus": 1})
    await w.cell("k2", user="bob")
    await w.cell_ends("k2", user="bob")
    await w.wait(5)
    await w.call("POST", "devices/GPU-alpha-1/drain", ADMIN)

    seen = figures.of(w.broker.frame())

    assert (seen.waiting, seen.computing, seen.idle, seen.out) == (0, 1.0, 1.0, 1)


async def test_one_set_of_figures_a_minute_is_told_with_its_age_and_no_more_than_six_hours(world):
    w = await world()
    await w.wait(180, step=10)
    told = (await looked_back(w, ALICE)).figures
    assert [round(one.ago_s / 60) for one in told] == [3, 2, 1, 0]
    frame = w.broker.frame()
    for _ in range(FIGURES + 5):
        figures.note(frame)
    assert len(figures.told(w.broker.cluster, frame.now)) == FIGURES


async def test_a_user_learns_their_own_part_and_an_admin_everybodys(world):
    w = await world()
    await w.kernel("k1")
    await w.kernel("k2", user="bob")
    mine = await looked_back(w, ALICE)
    assert mine.fair == {"alice": pytest.approx(0.5)}
    assert mine.total_gpu_s == 90.0
    assert set((await looked_back(w, ADMIN)).fair) == {"alice", "bob", "root"}
    assert (await looked_back(w, ALICE, session="k1")).fair == {}


def test_parts_follow_the_weights_of_groups_and_then_of_members():
    settings = Settings(
        groups={"a": "big", "b": "big", "c": "small"}, group_weights={"big": 3.0}, weights={"a": 2.0, "b": 1.0}
    )
    parts = figures.fair_parts(settings, ["a", "b", "c"])
    assert parts == {"a": pytest.approx(0.5), "b": pytest.approx(0.25), "c": pytest.approx(0.25)}
    assert sum(parts.values()) == pytest.approx(1.0)
    assert figures.fair_parts(settings, []) == {}
