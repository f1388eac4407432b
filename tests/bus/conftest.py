"""Both buses, and a real nats-server."""

from __future__ import annotations

import pytest

from jupyter_gpushare.bus.local import LocalBus
from tests.bus import nats_server


@pytest.fixture
def nats(tmp_path):
    if nats_server.BINARY is None:
        pytest.skip("nats-server is not installed")
    with nats_server.serving(tmp_path) as server:
        yield server


@pytest.fixture
def connect(nats, jp_asyncio_loop):
    """Makes a NATS bus that is connected; all are closed with the test."""
    from jupyter_gpushare.bus.nats import NatsBus

    made = []

    async def connect(**more) -> NatsBus:
        bus = NatsBus(nats.url, **more)
        made.append(bus)
        await bus.start()
        return bus

    yield connect
    for bus in made:
        jp_asyncio_loop.run_until_complete(bus.close())


@pytest.fixture(params=["local", "nats"])
def ends(request, jp_asyncio_loop):
    """(the broker's end, a node's end) of one bus."""
    if request.param == "local":
        bus = LocalBus()
        yield bus, bus
        jp_asyncio_loop.run_until_complete(bus.close())
        return
    connect = request.getfixturevalue("connect")
    yield (
        jp_asyncio_loop.run_until_complete(connect(name="broker")),
        jp_asyncio_loop.run_until_complete(connect(name="node")),
    )
