"""A client of several brokers asks whoever leads."""

from __future__ import annotations

import socket

import pytest
from tornado import web
from tornado.httpserver import HTTPServer
from tornado.testing import bind_unused_port

from jupyter_gpushare.errors import Unavailable
from jupyter_gpushare.model import Caller
from jupyter_gpushare.server.client import Client

ME = Caller(user="alice")


@pytest.fixture
def broker(jp_asyncio_loop):
    """Makes brokers that answer their name, or stand by; (base URL, what they were asked)."""
    servers = []

    def made(name: str | None) -> tuple[str, list[str]]:
        asked: list[str] = []

        class Handler(web.RequestHandler):
            def get(self, path: str) -> None:
                asked.append(path)
                self.set_status(200 if name else 503)
                self.finish({"name": name} if name else {"message": "another leads", "reason": "standby"})

        listening, port = bind_unused_port()
        server = HTTPServer(web.Application([(r"/api/v1/(.*)", Handler)]))
        server.add_socket(listening)
        servers.append(server)
        return f"http://127.0.0.1:{port}", asked

    yield made
    for server in servers:
        server.stop()
        jp_asyncio_loop.run_until_complete(server.close_all_connections())


async def test_after_one_that_stands_by_the_next_is_asked_and_stays(broker):
    (standby, refused), (leader, asked) = broker(None), broker("leader")
    client = Client(f"{standby},{leader}/")
    try:
        with pytest.raises(Unavailable, match="another leads"):
            await client.call(ME, "GET", "status")
        for _ in range(2):
            assert (await client.call(ME, "GET", "status")).body == {"name": "leader"}
    finally:
        client.close()
    assert (refused, asked) == (["status"], ["status", "status"])


async def test_after_one_that_is_gone_the_next_is_asked(broker):
    with socket.create_server(("127.0.0.1", 0)) as closed:
        gone = f"http://127.0.0.1:{closed.getsockname()[1]}"
    leader, _ = broker("leader")
    client = Client(f"{gone},{leader}")
    try:
        with pytest.raises(Unavailable):
            await client.call(ME, "GET", "status")
        assert (await client.call(ME, "GET", "status")).body == {"name": "leader"}
    finally:
        client.close()
