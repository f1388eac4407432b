"""A server's way to a broker outlives what goes wrong on it."""

from __future__ import annotations

import logging

from jupyter_gpushare.broker.port import Reply
from jupyter_gpushare.model import Caller
from jupyter_gpushare.server import link
from jupyter_gpushare.server.link import Link


class Here:
    """A broker that answers everything."""

    async def start(self) -> None:
        pass

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
