"""Somebody who is let in and means harm: what they send is bounded, and costs nobody else their place or record."""

from __future__ import annotations

import asyncio
import json

import pytest

from jupyter_gpushare.broker import starts, stream
from jupyter_gpushare.broker.loop import turn
from jupyter_gpushare.errors import BadDemand, NotAllowed, NotFound, OverLimit
from jupyter_gpushare.model import Caller

from .conftest import server

BOB = Caller(user="bob")
SPEC = {"id": "made-up", "user": "bob", "origin": "bob-lab", "label": "x"}


async def test_a_start_in_the_name_of_anothers_server_takes_no_place_in_line(world):
    w = await world(devices=1)
    await w.kernel("k0", demand={"gpus": 1})
    waiting = asyncio.ensure_future(w.open("k1", demand={"gpus": 1}, path="a.ipynb", wait_s=30.0))
    await asyncio.sleep(0.05)
    await w.settle()

    forged = SPEC | {"origin": "alice-lab", "path": "a.ipynb", "demand": {"gpus": 1}}
    await w.call("PUT", "sessions/made-up", Caller(user="bob", role="server"), forged)
    await w.settle()

    assert not waiting.done()
    assert [session.id for session in w.broker.cluster.waiting()] == ["k1", "made-up"]
    await w.ends("k0")
    assert (await asyncio.wait_for(waiting, 20))["devices"] == ["GPU-alpha-0"]


async def test_a_server_that_claims_devices_and_processes_gets_nothing_by_it(world):
    w = await world(devices=1)
    await w.kernel("k1", demand={"gpus": 1})
    claim = {"spec": SPEC, "devices": ["GPU-none", "GPU-alpha-0"] * 50, "bursting": True, "pid": 1, "started": 1.0}

    await w.call("POST", "servers/bob-lab/alive", server("bob"), {"sessions": [claim]})
    await w.settle()

    assert not w.broker.cluster.sessions["made-up"].owns
    assert w.broker.cluster.sessions["k1"].owns
    stolen = claim | {"spec": SPEC | {"id": "k1"}}
    await w.call("POST", "servers/bob-lab/alive", server("bob"), {"sessions": [stolen]})
    assert w.broker.cluster.sessions["k1"].user == "alice"


async def test_one_user_cannot_fill_the_broker_with_sessions(world, monkeypatch):
    monkeypatch.setattr(starts, "SESSIONS_PER_USER", 3)
    w = await world()
    for number in range(3):
        await w.call("PUT", f"sessions/s{number}", server("bob"), SPEC)
    with pytest.raises(OverLimit, match="bob has 3 sessions here already"):
        await w.call("PUT", "sessions/s3", server("bob"), SPEC)
    await w.kernel("k1")
    turn(w.broker)
    assert w.broker.cluster.sessions["k1"].live


@pytest.mark.parametrize("field", ["id", "origin", "label", "path"])
async def test_a_name_that_no_database_keeps_is_refused_and_the_broker_works_on(world, field):
    w = await world()
    for value in ("x\0y", "x" * 5000):
        one = {"spec": SPEC | {field: value}}
        with pytest.raises(BadDemand):
            await w.call("POST", "servers/bob-lab/alive", server("bob"), {"sessions": [one]})
    await w.kernel("k1")


@pytest.mark.parametrize("path", ["a\0.ipynb", "ü" * 700, "a" * 3000])
async def test_a_path_that_no_database_keeps_is_refused(world, path):
    w = await world()
    with pytest.raises(BadDemand):
        await w.call("PUT", f"demands/{path}", BOB, {"gpus": 0.2})
    with pytest.raises(BadDemand):
        await w.call("GET", "history", BOB, session="\0")
    assert w.ledger.wished_for == {}


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"[]",
        b"\xff",
        b'{"gpus": ' + b"[" * 500_000,
        b'{"near": {' + b'"a": {' * 100_000,
        b'{"gpus": ' + b"9" * 10_000 + b"}",
        b'{"gpus": 0.1}' + b" " * (1 << 20),
        json.dumps({"gpus": 0.1} | {f"field{number}": 0 for number in range(40_000)}).encode(),
        json.dumps({"near": ["data:/x"] * 100_000}).encode(),
    ],
    ids=["cut", "list", "not UTF-8", "deep", "deep maps", "long number", "too large", "many fields", "long list"],
)
@pytest.mark.parametrize("call", ["POST estimate", "PUT demands/a.ipynb", "POST choose"])
async def test_a_body_made_to_harm_is_refused_in_one_short_line(world, call, body):
    w = await world()
    method, path = call.split()
    with pytest.raises(BadDemand) as caught:
        await w.broker.call(BOB, method, path, {}, body)
    assert len(str(caught.value)) < 400
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "path", ["", "..", "../status", "sessions", "sessions/", "sessions//why", "%2e%2e/x", "a" * 60_000]
)
async def test_a_path_made_up_is_not_found_or_refused(world, path):
    w = await world()
    with pytest.raises((NotFound, NotAllowed)):
        await w.broker.call(BOB, "GET", path, {}, b"")


async def test_one_user_cannot_open_streams_without_end_and_anothers_go_on(world, monkeypatch):
    """Also in the names of kernels that never were: each would be drawn for."""
    monkeypatch.setattr(stream, "STREAMS_PER_USER", 3)
    w = await world()
    open_ones = []
    for number in range(3):
        following = w.broker.stream(Caller(user="bob", role="kernel", session=f"made-up-{number}"), None)
        await anext(following)
        open_ones.append(following)
    with pytest.raises(OverLimit, match="bob follows 3 streams already"):
        await anext(w.broker.stream(BOB, None))
    other = w.broker.stream(Caller(user="alice"), None)
    assert (await anext(other)).event == "status"
    for following in (*open_ones, other):
        await following.aclose()
