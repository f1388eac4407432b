"""The configuration of nats-server that is shipped: each role can do its own, and nothing else."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

nats_client = pytest.importorskip("nats")

from jupyter_gpushare import cli  # noqa: E402
from jupyter_gpushare.bus import nats as bus_nats  # noqa: E402
from jupyter_gpushare.model import CommandResult, NodeReport, Trim  # noqa: E402
from tests.bus import nats_server  # noqa: E402
from tests.bus.test_bus import answered, told  # noqa: E402
from tests.bus.test_nats import until  # noqa: E402

SHIPPED = Path(cli.__file__).parent / "units" / "nats-server.conf"


@pytest.fixture
def nats(tmp_path, monkeypatch):
    if nats_server.BINARY is None:
        pytest.skip("nats-server is not installed")
    monkeypatch.setenv("GPUSHARE_BROKER_PASSWORD", "of-the-broker")
    monkeypatch.setenv("GPUSHARE_ALPHA_PASSWORD", "of-alpha")
    config = re.sub(r"(?m)^(listen|jetstream).*$", "", SHIPPED.read_text())
    with nats_server.serving(tmp_path, config) as server:
        yield server


@pytest.fixture
def connect(nats, jp_asyncio_loop):
    made = []

    async def connect(user: str, *, creates: bool = False) -> bus_nats.NatsBus:
        bus = bus_nats.NatsBus(f"nats://{user}:of-{user}@127.0.0.1:{nats.port}", creates=creates)
        made.append(bus)
        await bus.start()
        return bus

    yield connect
    for bus in made:
        jp_asyncio_loop.run_until_complete(bus.close())


async def carry_out(command):
    return CommandResult(ok=True)


async def test_a_broker_and_its_agents_can_do_all_they_need(nats, connect, monkeypatch):
    monkeypatch.setattr(bus_nats, "TTL_S", 1.0)
    brokers = [bus_nats.NatsBus(f"nats://broker:of-the-broker@127.0.0.1:{nats.port}") for _ in range(2)]
    seen = []
    for broker in brokers:
        await broker.start()
    try:
        leading = await brokers[0].lead("first", ttl_s=1.0)
        brokers[0].on_report(seen.append)
        await brokers[0].greet()
        first = await connect("alpha")
        first.serve("alpha", carry_out)
        assert (await answered(brokers[0], "alpha", Trim(session="s"))).ok
        await until(brokers[0].present)
        await told(first, NodeReport(server="alpha", epoch="e", seq=1))
        assert len(seen) == 1

        second = await connect("alpha")  # a second agent takes the name, and gives it back
        second.serve("alpha", carry_out)
        await until(lambda: "alpha" in first._displaced)
        await second.close()
        await until(lambda: "alpha" not in first._displaced)

        waiting = asyncio.ensure_future(brokers[1].lead("second", ttl_s=1.0))
        await leading.release()
        taken = await asyncio.wait_for(waiting, 20)
        await brokers[1].greet()
        await taken.release()
        assert brokers[0].trouble is None
        assert first.trouble is None
    finally:
        for broker in brokers:
            await broker.close()


@pytest.mark.parametrize(
    "subject",
    [
        "gpushare.command.alpha",
        "gpushare.command.beta",
        "gpushare.report.beta",
        "$KV.gpushare-leader.leader",
        "$KV.gpushare-present.beta",
        "$JS.API.STREAM.DELETE.KV_gpushare-leader",
        "$JS.API.STREAM.PURGE.KV_gpushare-present",
        "_INBOX.broker.x",
    ],
)
async def test_an_agent_cannot_speak_as_anybody_else(nats, subject):
    refused = await refusals(nats, lambda client: client.publish(subject, b"{}"))
    assert any("violation for publish" in words.lower() for words in refused)


@pytest.mark.parametrize("subject", ["gpushare.report.*", "gpushare.command.beta", "_INBOX.broker.>", "$KV.>", ">"])
async def test_an_agent_cannot_listen_to_others(nats, subject):
    refused = await refusals(nats, lambda client: client.subscribe(subject))
    assert any("violation for subscription" in words.lower() for words in refused)


async def refusals(nats, act) -> list[str]:
    """What the server says to alpha's agent for this."""
    said: list[str] = []

    async def hear(error: Exception) -> None:
        said.append(str(error))

    client = await nats_client.connect(
        f"nats://alpha:of-alpha@127.0.0.1:{nats.port}",
        error_cb=hear,
        allow_reconnect=False,
        inbox_prefix=b"_INBOX.alpha",
    )
    try:
        await act(client)
        await until(lambda: said)
    finally:
        await client.close()
    return said


async def test_nobody_comes_in_without_a_password(nats):
    bus = bus_nats.NatsBus(nats.url)
    try:
        await bus.start(wait_s=0.1)
        await until(lambda: bus.trouble and "authorization" in bus.trouble.lower())
        assert not bus._connected.is_set()
    finally:
        await bus.close()
