"""The shipped configuration of nats-server, over TLS: what an agent that turned hostile, and an outsider, can do."""

from __future__ import annotations

import re
import ssl

import pytest

nats_client = pytest.importorskip("nats")

from jupyter_gpushare.bus import nats as bus_nats  # noqa: E402
from jupyter_gpushare.bus import wire  # noqa: E402
from jupyter_gpushare.model import CommandResult, NodeReport  # noqa: E402
from tests.bus import nats_server  # noqa: E402
from tests.bus.test_bus import told  # noqa: E402
from tests.bus.test_nats import until  # noqa: E402
from tests.bus.test_permissions import SHIPPED  # noqa: E402
from tests.server.test_safe_doors import certificate  # noqa: E402


@pytest.fixture
def certificates(tmp_path):
    """(the authority's certificate, the server's, its key)."""
    made, key = certificate(tmp_path / "tls", "localhost", "authority")
    return tmp_path / "tls" / "authority.pem", made, key


@pytest.fixture
def nats(tmp_path, monkeypatch, certificates):
    if nats_server.BINARY is None:
        pytest.skip("nats-server is not installed")
    monkeypatch.setenv("GPUSHARE_BROKER_PASSWORD", "of-broker")
    monkeypatch.setenv("GPUSHARE_ALPHA_PASSWORD", "of-alpha")
    _, made, key = certificates
    config = re.sub(r"(?m)^(listen|jetstream).*$", "", SHIPPED.read_text())
    tls = f'tls {{ cert_file: "{made}", key_file: "{key}" }}\n'
    with nats_server.serving(tmp_path, f"max_payload: 1MB\n{tls}{config}") as server:
        yield server


@pytest.fixture
def bus(nats, certificates, jp_asyncio_loop):
    """Makes a connected bus of a user; all are closed with the test."""
    made = []

    async def bus(user: str) -> bus_nats.NatsBus:
        url = f"tls://{user}:of-{user}@localhost:{nats.port}"
        one = bus_nats.NatsBus(url, ca_file=str(certificates[0]), creates=user == "broker")
        made.append(one)
        await one.start(20.0)
        assert one.trouble is None
        return one

    yield bus
    for one in made:
        jp_asyncio_loop.run_until_complete(one.close())


def report(seq: int, server: str = "alpha", epoch: str = "e", **more) -> NodeReport:
    return NodeReport(server=server, epoch=epoch, seq=seq, **more)


async def test_what_a_hostile_agent_sends_as_itself_is_refused_and_the_broker_works_on(bus, nats, certificates):
    """Forged, replayed, malformed, of another version, too large: by alpha's own credentials, past our client."""
    broker, agent, seen = await bus("broker"), await bus("alpha"), []
    broker.on_report(lambda one: seen.append((one.server, one.epoch, one.seq)))
    await told(agent, report(5))
    client = await nats_client.connect(
        f"tls://alpha:of-alpha@localhost:{nats.port}",
        tls=ssl.create_default_context(cafile=str(certificates[0])),
        inbox_prefix=b"_INBOX.alpha",
        allow_reconnect=False,
    )

    async def answered(data: bytes) -> str:
        message = await client.request("gpushare.report.alpha", data, timeout=20)
        return wire.opened(message.data, CommandResult)[0].reason

    try:
        assert await answered(wire.sealed(report(6, server="beta"))) == "forged"
        assert await answered(wire.sealed(report(5))) == "replayed"
        assert await answered(wire.sealed(report(4))) == "replayed"
        assert await answered(b"[" * 500_000) == "malformed"
        assert await answered(b'{"v": 99, "body": {}}') == "version"
        with pytest.raises(nats_client.errors.MaxPayloadError):
            await client.publish("gpushare.report.alpha", b"x" * (1 << 21))
    finally:
        await client.close()

    await told(agent, report(6))
    assert seen == [("alpha", "e", 5), ("alpha", "e", 6)]
    assert broker.trouble is None


@pytest.mark.parametrize("who", ["alpha:of-broker", "broker:guessed", "alice:", "stranger:of-alpha"])
async def test_who_has_not_the_password_of_a_name_is_not_let_in(nats, certificates, who):
    with pytest.raises(nats_client.errors.Error):
        await nats_client.connect(
            f"tls://{who}@localhost:{nats.port}",
            tls=ssl.create_default_context(cafile=str(certificates[0])),
            allow_reconnect=False,
            max_reconnect_attempts=0,
            error_cb=quiet,
        )


async def test_nobody_speaks_without_tls_and_no_agent_speaks_to_a_server_of_another_authority(
    nats, certificates, tmp_path
):
    foreign, _ = certificate(tmp_path / "other", "foreign")
    for url, ca_file in (
        (f"nats://alpha:of-alpha@localhost:{nats.port}", str(foreign)),
        (f"tls://alpha:of-alpha@localhost:{nats.port}", str(foreign)),
    ):
        bus = bus_nats.NatsBus(url, ca_file=ca_file, creates=False)
        await bus.start(0.1)
        try:
            await until(lambda bus=bus: bus.trouble)
            assert "of-alpha" not in bus.trouble
        finally:
            await bus.close()


async def quiet(error: Exception) -> None:
    pass
