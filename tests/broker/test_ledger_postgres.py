"""The ledger on a real PostgreSQL: the same as on SQLite, and through the database's restarts."""

from __future__ import annotations

import asyncio
import itertools
import shutil
import tempfile
from pathlib import Path

import pytest
from sqlalchemy import create_engine
from sqlalchemy.exc import InternalError

from jupyter_gpushare.broker.database import WITHIN_MS
from jupyter_gpushare.broker.ledger import HistoryQuery, Ledger, UsageRow
from jupyter_gpushare.model import Caller, Constraints, Demand
from tests.broker import postgres
from tests.broker.test_ledger import lease, until

pytestmark = [
    pytest.mark.skipif(postgres.missing() is not None, reason=str(postgres.missing())),
]
numbers = itertools.count()


@pytest.fixture(scope="module")
def cluster():
    folder = Path(tempfile.mkdtemp(prefix="gpushare-pg-"))  # a socket's path is short; the user postgres may enter it
    try:
        with postgres.running(folder) as running:
            yield running
    finally:
        shutil.rmtree(folder)


@pytest.fixture
def url(cluster):
    return cluster.create(f"ledger{next(numbers)}")


@pytest.fixture
def opened(url, jp_asyncio_loop):
    ledgers = []

    async def open_one(**how: object) -> Ledger:
        ledger = await Ledger.open(url, **{"retry_s": 0.05, "timeout_s": 20, **how})
        ledgers.append(ledger)
        return ledger

    yield open_one
    for ledger in ledgers:
        jp_asyncio_loop.run_until_complete(ledger.close())


async def test_an_open_lease_is_there_after_a_restart_with_every_fact(opened):
    demand = Demand(gpus=2, memory=2**34, constraints=Constraints(model="A100"), near=("data:/d",), horizon="long")
    row = lease(devices=("GPU-a", "GPU-b"), demand=demand, path="work/train.ipynb", pid=42, started=12.5, borrowed=True)
    ledger = await opened()
    ledger.lease_granted(row)
    await ledger.close()

    again = await opened()
    assert again.degraded is None
    assert await again.leases() == [row]


async def test_a_session_never_has_two_open_leases_and_an_ended_one_is_not_open(opened):
    ledger = await opened()
    ledger.lease_granted(lease(devices=("GPU-a",)))
    assert await ledger.flushed(10)
    ledger.lease_changed(lease(devices=("GPU-c",), pid=7))
    ledger.lease_granted(lease("k2"))
    assert await ledger.flushed(10)
    ledger.lease_ended("k2", "cleanup")

    assert [(row.session, row.devices, row.pid) for row in await ledger.leases()] == [("k1", ("GPU-c",), 7)]


async def test_a_name_that_no_database_takes_does_not_stop_the_ledger(opened):
    ledger = await opened()
    ledger.lease_granted(lease(label="caf\udce9\0.ipynb", path="caf\udce9.ipynb"))
    ledger.lease_granted(lease("k2"))

    assert {row.session for row in await ledger.leases()} == {"k1", "k2"}
    assert ledger.degraded is None


async def test_usage_comes_back_as_history(opened, clock):
    ledger = await opened(wall=clock)
    clock.now = 1_700_000_000.0
    for _ in range(3):
        clock.advance(60)
        row = UsageRow(session="k1", user="alice", device="GPU-a", held_s=60, gpu_s=30.0, used_s=15.0, group="vision")
        ledger.usage(row)
    assert await ledger.flushed(10)
    history = await ledger.history(HistoryQuery(user="alice"))
    assert history.by_user == {"alice": pytest.approx(90.0)}
    assert history.by_group == {"vision": pytest.approx(90.0)}


async def test_two_brokers_on_one_database_do_not_see_each_others_leases(opened):
    first, second = await opened(broker="one"), await opened(broker="two")
    first.lease_granted(lease("k1"))
    second.lease_granted(lease("k1"))
    assert await first.flushed(10)
    second.lease_ended("k1", "cleanup")

    assert len(await first.leases()) == 1
    assert await second.leases() == []


async def test_whoever_led_before_writes_nothing_any_more(opened):
    first = await opened(alone=True)
    first.lease_granted(lease("k1"))
    assert await first.flushed(10)
    second = await opened(alone=True)
    first.lease_ended("k1", "cleanup")
    first.lease_granted(lease("k2"))

    await until(lambda: first.superseded, 20)
    assert "Another GPU broker" in first.degraded.message
    assert await first.leases() is None
    assert [row.session for row in await second.leases()] == ["k1"]
    second.lease_ended("k1", "cleanup")
    assert await second.leases() == []
    assert second.degraded is None


async def test_a_leader_that_stops_in_the_middle_of_writing_does_not_keep_the_next_one_waiting(opened, url):
    first = await opened(alone=True)
    first.lease_granted(lease("k1"))
    assert await first.flushed(10)
    stuck = create_engine(url).connect()  # the first one's connection, were it cut off just then
    stuck.exec_driver_sql(f"SET idle_in_transaction_session_timeout = {WITHIN_MS}")
    stuck.exec_driver_sql("UPDATE writers SET turn = turn")
    try:
        second = await opened(alone=True, timeout_s=30)
        assert [row.session for row in await second.leases()] == ["k1"]
    finally:
        with pytest.raises(InternalError, match="idle-in-transaction"):
            stuck.close()
        stuck.engine.dispose()


async def test_a_database_that_is_away_for_a_while_costs_nothing(opened, cluster):
    ledger = await opened()
    ledger.lease_granted(lease("before"))
    assert await ledger.flushed(10)

    cluster.stop()
    try:
        ledger.lease_granted(lease("meanwhile"))
        ledger.audit(Caller(user="alice"), "pin", "sessions/k1", "ok")
        await until(lambda: ledger.degraded is not None, 20)
        assert "tester" in ledger.degraded.message
    finally:
        cluster.start()

    await until(lambda: ledger.degraded is None, 30)
    assert await ledger.flushed(10)
    assert {row.session for row in await ledger.leases()} == {"before", "meanwhile"}


async def test_wishes_and_fair_usage_last_over_a_restart(opened):
    ledger = await opened()
    ledger.wished("pin", "k1", for_s=3600.0)
    ledger.wished("drain", "GPU-a")
    ledger.wished("drain", "GPU-b")
    ledger.wished("drain", "GPU-b", None)
    ledger.usage_saved({"alice": 12.5, "zoë": 1.0})
    await ledger.close()

    again = await opened()
    assert {(wish.kind, wish.key) for wish in await again.wishes()} == {("pin", "k1"), ("drain", "GPU-a")}
    assert {user: saved.usage for user, saved in (await again.fair_usage()).items()} == {"alice": 12.5, "zoë": 1.0}


async def test_two_brokers_that_start_on_an_empty_database_at_once_both_get_their_tables(opened):
    first, second = await asyncio.gather(opened(broker="one"), opened(broker="two"))
    for ledger in (first, second):
        ledger.lease_granted(lease())
    await until(lambda: first.degraded is None and second.degraded is None)
    assert len(await first.leases()) == len(await second.leases()) == 1
