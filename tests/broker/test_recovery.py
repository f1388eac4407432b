"""The broker with the real ledger: what was lent is known again after a restart."""

from __future__ import annotations

import asyncio
import json
import sqlite3

import pytest

from jupyter_gpushare.broker.ledger import Ledger
from jupyter_gpushare.broker.room import committed
from jupyter_gpushare.errors import Conflict, Unavailable
from jupyter_gpushare.model import Caller, Finding, Park

from .conftest import kernel, server


async def test_leases_and_bindings_outlive_the_broker_in_the_real_ledger(world, tmp_path):
    w = await world(devices=2)
    await w.broker.stop()
    w.ledger = await Ledger.open(f"sqlite:///{tmp_path}/ledger.db")
    w.make()
    await w.start()
    await w.kernel("k1", demand={"gpus": 1})
    await w.kernel("k2", "bob")
    before = {name: session.devices for name, session in w.broker.cluster.sessions.items()}
    await w.broker.stop()
    await w.ledger.close()
    w.ledger = await Ledger.open(f"sqlite:///{tmp_path}/ledger.db")
    w.make()
    await w.start()
    try:
        sessions = w.broker.cluster.sessions
        assert {name: session.devices for name, session in sessions.items()} == before
        assert (sessions["k1"].owns, sessions["k2"].leased) == (True, False)
        await w.ends("k1")
        assert await w.ledger.flushed()
        assert [row.session for row in await w.ledger.leases()] == ["k2"]
    finally:
        await w.broker.stop()
        await w.ledger.close()


async def test_what_a_start_was_told_is_written_when_it_is_told(world, tmp_path):
    """Whoever takes the place of a broker that is killed just then must know it."""
    w = await world(devices=2)
    await w.broker.stop()
    w.ledger = await Ledger.open(f"sqlite:///{tmp_path}/ledger.db")
    w.make()
    await w.start()
    try:
        told = await w.open("k1", demand={"gpus": 1})
        with sqlite3.connect(tmp_path / "ledger.db") as another:
            written = another.execute("SELECT session, devices FROM leases WHERE ended_at IS NULL").fetchall()
        assert [(session, json.loads(devices)) for session, devices in written] == [("k1", list(told["devices"]))]
    finally:
        await w.broker.stop()
        await w.ledger.close()


async def test_what_people_asked_to_last_outlives_the_broker_in_the_real_ledger(world, tmp_path):
    """A pin keeps its remaining time, a drained device stays drained, a notebook's next kernel gets what was chosen."""
    w = await world(devices=2)
    await w.broker.stop()
    w.ledger = await Ledger.open(f"sqlite:///{tmp_path}/ledger.db")
    w.make()
    await w.start()
    admin = Caller(user="root", admin=True)
    first, second = w.node.uuids
    await w.kernel("k1", demand={"gpus": 0.5})
    await w.kernel("k2", demand={"gpus": 0.5})
    await w.call("POST", "sessions/k1/pin", server("alice"), {"for_s": 3600})
    await w.call("POST", "sessions/k2/pin", server("alice"), {"for_s": 3600})
    await w.call("POST", "sessions/k2/unpin", server("alice"))
    await w.call("POST", f"devices/{first}/drain", admin)
    await w.call("POST", f"devices/{second}/drain", admin)
    await w.call("POST", f"devices/{second}/undrain", admin)
    await w.call("PUT", "demands/a.ipynb", Caller(user="alice"), {"gpus": 2})
    await w.call("PUT", "demands/b.ipynb", Caller(user="alice"), {"gpus": 0.7})
    await w.open("k3", path="b.ipynb")
    await w.started("k3")
    assert await w.ledger.flushed()
    await w.broker.stop()
    await w.ledger.close()
    w.ledger = await Ledger.open(f"sqlite:///{tmp_path}/ledger.db")
    w.make()
    await w.start()
    try:
        cluster = w.broker.cluster
        assert cluster.sessions["k1"].pinned_until == pytest.approx(w.clock() + 3600, abs=60)
        assert cluster.sessions["k2"].pinned_until is None
        assert {uuid: record.drained for uuid, record in cluster.devices.items()} == {first: True, second: False}
        assert {key: demand.gpus for key, demand in cluster.demands.items()} == {("alice", "a.ipynb"): 2}
        await w.ends("k1")
        assert await w.ledger.flushed()
        assert {wish.kind for wish in await w.ledger.wishes()} == {"drain", "demand"}
    finally:
        await w.broker.stop()
        await w.ledger.close()


async def test_a_chosen_demand_that_cannot_be_read_any_more_is_left_out(world, caplog):
    w = await world(devices=1)
    w.ledger.wished("demand", '["alice", "a.ipynb"]', '{"gpus": 0.5}', 60)
    for key, value in (('["alice", "b.ipynb"]', '{"gpus": "many"}'), ('["alice"]', "{}"), ("alice", "{}")):
        w.ledger.wished("demand", key, value, 60)
    await restarted(w)
    assert {path: demand.gpus for (_, path), demand in w.broker.cluster.demands.items()} == {"a.ipynb": 0.5}
    assert "not usable here" in caplog.text


async def test_the_route_table_describes_itself(world):
    w = await world()
    document = await w.call("GET", "openapi.json", Caller(user="a"))
    assert document["openapi"].startswith("3.1")
    assert "post" in document["paths"]["/sessions/{id}/pin"]


async def restarted(w):
    """The broker ends and another takes over what the ledger and the nodes know."""
    await w.broker.stop()
    w.make()
    await w.start()


async def test_a_release_that_no_node_could_confirm_yet_is_known_to_the_next_broker(world):
    w = await world(devices=1)
    await w.kernel("k1", demand={"gpus": 1})
    w.node.dies("k1")
    await restarted(w)
    assert w.broker.cluster.sessions["k1"].recovering
    await w.call("POST", "sessions/k1/release", server("alice"))
    await w.kernel("k2", "bob", demand={"gpus": 1})
    await restarted(w)
    sessions = w.broker.cluster.sessions
    assert [name for name, session in sessions.items() if session.leased] == ["k2"]


async def test_a_new_agent_is_asked_before_a_silent_servers_session_is_given_up(world):
    w = await world(devices=1, lease_ttl_s=15)
    await w.kernel("k1", demand={"gpus": 1})
    await w.kernel("k2", demand={"gpus": 1})
    assert not w.broker.cluster.sessions["k2"].placements
    await w.wait(20, alive=False)
    w.node.epoch, w.node.seq = "2", 0
    w.node.attached.clear()
    await w.settle()
    assert w.broker.cluster.sessions["k2"].live
    w.node.dies("k2")
    await w.wait(1, alive=False)
    assert w.ledger.ended == [("k2", "silent")]


async def test_a_session_that_holds_nothing_on_a_machine_nobody_knows_ends_with_its_servers_silence(world):
    w = await world(devices=1, lease_ttl_s=15)
    await w.kernel("k1", demand={"gpus": 1})
    await w.kernel("k2", server=None, demand={"gpus": 1})
    await restarted(w)
    await w.wait(20, alive=False)
    assert w.ledger.ended == [("k2", "silent")]


async def test_a_kernel_whose_processes_are_gone_waits_for_nothing(world):
    w = await world(devices=1)
    await w.kernel("k1")
    await w.cell("k1")
    await w.cell_ends("k1")
    await w.call("POST", "sessions/k1/park", server("alice"))
    await w.settle()
    await w.call("POST", "sessions/k1/resume", server("alice"))
    w.node.dies("k1")
    await w.settle()
    session = w.broker.cluster.sessions["k1"]
    assert (session.processes, session.waiting_since, session.wants_back) == ("gone", None, False)
    with pytest.raises(Conflict, match="Its kernel has ended"):
        await w.call("POST", "sessions/k1/resume", server("alice"))


async def test_a_resume_asked_while_it_is_being_parked_brings_it_back(world):
    w = await world(devices=1)
    await w.kernel("k1")
    await w.cell("k1")
    await w.cell_ends("k1")
    await w.wait(5)
    on_its_way, may_go = asyncio.Event(), asyncio.Event()
    obey = w.node.obey

    async def slowly(command):
        if isinstance(command, Park):
            on_its_way.set()
            await may_go.wait()
        return await obey(command)

    w.bus.serve("alpha", slowly)
    await w.call("POST", "sessions/k1/park", server("alice"))
    await on_its_way.wait()
    await w.call("POST", "sessions/k1/resume", server("alice"))
    may_go.set()
    await w.settle()
    await w.settle()
    session = w.broker.cluster.sessions["k1"]
    assert (session.parked, session.leased) == (False, True)


async def test_simulated_work_on_a_server_that_has_not_spoken_to_a_new_broker_yet_is_asked_for_again(world):
    w = await world()
    await w.kernel("k1")
    w.broker.cluster.servers.clear()
    with pytest.raises(Unavailable, match="alpha has not told"):
        await w.call("POST", "sessions/k1/simulate", kernel("alice", "k1"), {"memory": 0})


async def test_a_lease_that_can_be_read_only_after_its_gpu_was_given_on_is_granted_to_nobody_twice(world):
    w = await world(devices=1)
    await w.kernel("k1", demand={"gpus": 1})
    (row,), read = await w.ledger.leases(), w.ledger.leases
    await w.broker.stop()

    async def unread():
        return None

    w.ledger.leases, w.ledger.degraded = unread, Finding(code="ledger", message="It is away.")
    w.make()
    await w.start()
    await w.kernel("k2", "bob", demand={"gpus": 1})
    sessions = w.broker.cluster.sessions
    assert sessions["k2"].owns  # nobody who could be asked knows of k1's lease

    w.ledger.leases, w.ledger.degraded = read, None
    await w.broker._recover()
    assert (sessions["k1"].leased, sessions["k1"].owns) == (True, False)
    assert committed(w.broker.cluster, row.devices[0]) == 1.0
    assert {kept.session: kept.borrowed for kept in w.ledger.open.values()} == {"k1": True, "k2": False}


async def test_who_takes_over_while_the_ledger_is_away_grants_nothing_until_it_is_read_or_a_minute_went_by(world):
    w = await world(devices=1, unread_s=60.0)
    await w.kernel("k1", demand={"gpus": 1})
    read = w.ledger.leases
    await w.broker.stop()

    async def unread():
        return None

    w.ledger.leases, w.ledger.degraded = unread, Finding(code="ledger", message="It is away.")
    for comes_back in (True, False):
        w.make()
        await w.start()
        await w.kernel("k2", "bob", demand={"gpus": 1})
        await w.wait(50)
        assert not w.broker.cluster.sessions["k2"].placements
        if comes_back:
            w.ledger.leases = read
            await w.broker._recover()
            await w.settle()
            assert w.broker.cluster.sessions["k1"].owns
            assert not w.broker.cluster.sessions["k2"].placements
            w.ledger.leases = unread
            await w.broker.stop()
    await w.wait(15)
    assert w.broker.cluster.sessions["k2"].owns
