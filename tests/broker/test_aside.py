"""What is wrong with one session, or with one row of the ledger, stops nobody else."""

from __future__ import annotations

import math
from collections import deque

import msgspec
import pytest

from jupyter_gpushare.broker.rows import LeaseRow, Wish
from jupyter_gpushare.model import Demand

from .conftest import kernel


def spoil_gaps(session) -> None:
    session.gaps = deque(["x"])


def spoil_clock(session) -> None:
    session.last_use = "yesterday"


def spoil_demand(session) -> None:
    session.demand = msgspec.structs.replace(session.demand, gpus=math.nan)


def spoil_kind(session) -> None:
    session.demand = msgspec.structs.replace(session.demand, horizon="sometimes")


def spoil_share(session) -> None:
    for placement in session.placements.values():
        placement.target = "much"


@pytest.mark.parametrize("spoil", [spoil_gaps, spoil_clock, spoil_demand, spoil_kind, spoil_share])
async def test_a_session_that_cannot_be_decided_on_is_put_aside_and_the_others_go_on(world, spoil):
    w = await world(devices=1)
    await w.kernel("bad", demand={"gpus": 0.5})
    await w.cell("bad")
    await w.cell_ends("bad")
    session = w.broker.cluster.sessions["bad"]
    whole = {name: getattr(session, name) for name in ("gaps", "last_use", "demand")}
    targets = {uuid: placement.target for uuid, placement in session.placements.items()}
    spoil(session)
    await w.kernel("good", "bob")
    await w.cell("good", "bob")
    assert (await w.seen("good", "bob"))["state"] == "active"
    (finding,) = (await w.status())["degraded"]
    assert "session bad " in finding["message"]
    assert session.leased

    for name, value in whole.items():
        setattr(session, name, value)
    for uuid, target in targets.items():
        session.placements[uuid].target = target
    await w.wait(31)
    assert (await w.status())["degraded"] == []


async def test_what_a_session_holds_that_is_put_aside_is_given_to_nobody(world):
    w = await world(devices=1)
    await w.kernel("bad", demand={"gpus": 0.8})
    await w.cell("bad")
    spoil_gaps(w.broker.cluster.sessions["bad"])
    await w.kernel("good", "bob", demand={"gpus": 0.5})
    await w.cell("good", "bob")
    good = w.broker.cluster.sessions["good"]
    assert not good.owns


async def test_a_cell_of_a_session_that_is_put_aside_does_not_wait(world):
    w = await world(devices=1)
    await w.kernel("bad")
    spoil_gaps(w.broker.cluster.sessions["bad"])
    await w.wait(1)
    answer = await w.call("POST", "sessions/bad/admit", kernel("alice", "bad"), {"wait_s": 0})
    assert answer["admitted"]


async def test_rows_of_the_ledger_that_make_no_sense_keep_no_broker_from_starting(world):
    w = await world(devices=1)
    await w.kernel("k1", demand={"gpus": 0.5})
    await w.cell("k1")
    for key, value in (("not json", "{}"), ('["alice"]', "{}"), ('["alice", "a.ipynb"]', '{"gpus": "many"}')):
        w.ledger.wished_for[("demand", key)] = Wish(kind="demand", key=key, value=value)
    w.ledger.wished_for[("demand", "4")] = Wish(kind="demand", key='["alice", "b.ipynb"]', value='{"gpus": 1e300}')
    w.ledger.open["odd"] = LeaseRow(
        session="odd",
        user="alice",
        origin="o",
        server="alpha",
        label="odd",
        devices=(w.node.uuids[0],),
        guarantee=0.25,
        demand=Demand(gpus=2.5),
    )
    await w.broker.stop()
    w.make()
    await w.start()
    sessions = w.broker.cluster.sessions
    assert w.broker.cluster.demands == {}
    assert (sessions["k1"].leased, sessions["odd"].leased) == (True, True)
    assert sessions["odd"].demand.guarantee == 0.25
