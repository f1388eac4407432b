"""A server's way to a broker outlives what goes wrong on it."""

from __future__ import annotations

import asyncio
import logging
import time

import pytest

from jupyter_gpushare.broker.port import Reply
from jupyter_gpushare.errors import Unavailable
from jupyter_gpushare.model import Caller
from jupyter_gpushare.server import link
from jupyter_gpushare.server.link import Link


class Here:
    """A broker that answers everything."""

    waits_for = None

    async def start(self) -> None:
        pass

    async def over(self) -> None:
        await asyncio.Event().wait()

    async def stop(self) -> None:
        pass

    async def call(self, caller, method, path, query={}, body=b"") -> Reply:  # noqa: B006
        return Reply(200, "here")


async def test_a_lock_that_cannot_be_opened_is_tried_again(tmp_path, monkeypatch, jp_asyncio_loop):
    monkeypatch.setattr(link, "RETRY_S", 0.01)
    folder = tmp_path / "gpushare"  # somebody removed it after it was made
    way = Link(Here, folder, logging.getLogger("test"))
    looked = way._lock

    def once() -> int | None:
        try:
            return looked()
        finally:
            folder.mkdir(exist_ok=True)

    monkeypatch.setattr(way, "_lock", once)
    way.start()
    try:
        assert (await way.call(Caller(user="alice"), "GET", "status")).body == "here"
    finally:
        await way.stop()


class Slow(Here):
    """One whose start lasts until it is let go."""

    let_go: asyncio.Event

    async def start(self) -> None:
        await self.let_go.wait()


@pytest.fixture
def slow(monkeypatch):
    monkeypatch.setattr(link, "PATIENCE_S", 0.05)
    Slow.let_go = asyncio.Event()
    return Slow


async def test_who_starts_a_broker_for_itself_waits_for_it_once(slow, jp_asyncio_loop):
    way = Link(slow, None, logging.getLogger("test"), starting_s=10.0)
    way.start()
    try:
        asking = asyncio.ensure_future(way.call(Caller(user="alice"), "GET", "status"))
        await asyncio.wait({asking}, timeout=0.3)
        assert not asking.done()
        slow.let_go.set()
        assert (await asking).body == "here"

        way._use(None)  # it is gone: what waits for the next one is as patient as any
        asked = time.monotonic()
        with pytest.raises(Unavailable):
            await way.call(Caller(user="alice"), "GET", "status")
        assert time.monotonic() - asked < 5
    finally:
        await way.stop()


async def test_a_server_waits_no_longer_for_its_own_broker_than_for_any(slow, jp_asyncio_loop):
    way = Link(slow, None, logging.getLogger("test"))
    way.start()
    try:
        asked = time.monotonic()
        with pytest.raises(Unavailable):
            await way.call(Caller(user="alice"), "GET", "status")
        assert time.monotonic() - asked < 5
    finally:
        await way.stop()


class Away:
    """A broker elsewhere that answers from some time on."""

    tries, back = 0, False
    tried: asyncio.Event  # again and again

    def __init__(self, url, token):
        pass

    def close(self) -> None:
        pass

    async def call(self, caller, method, path, query, body) -> Reply:
        Away.tries += 1
        if Away.tries >= 200 + 5:
            Away.tried.set()
        if not Away.back:
            raise Unavailable("It is away.")
        return Reply(200, "back")


async def test_while_a_broker_is_away_one_of_all_who_wait_asks_for_it_and_all_are_answered_once_it_is_back(
    monkeypatch, jp_asyncio_loop
):
    monkeypatch.setattr(link, "Client", Away)
    monkeypatch.setattr(link, "PATIENCE_S", 60.0)
    monkeypatch.setattr(link, "RETRY_S", 0.05)
    Away.tried = asyncio.Event()
    way = Link(None, None, logging.getLogger("test"), url="http://elsewhere")
    way.start()
    try:
        many = [asyncio.ensure_future(way.call(Caller(user="alice"), "GET", "status")) for _ in range(200)]
        await asyncio.wait_for(Away.tried.wait(), 30)
        assert Away.tries < 2 * 200  # at 20 tries a second of each this would be thousands
        Away.back = True
        assert {(await one).body for one in many} == {"back"}
        assert Away.tries < 3 * 200
    finally:
        await way.stop()
