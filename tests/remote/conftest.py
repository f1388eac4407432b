"""A Jupyter server on alpha whose kernels may run on beta: a broker, NATS and two agents as programs, SSH to beta."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.bus import nats_server
from tests.jupyter import extension, gpu, kernels, own_provisioner_factory  # noqa: F401 fixtures
from tests.programs import Program, running
from tests.remote import sshd
from tests.serving import until as soon


@pytest.fixture(scope="package")
def cluster(tmp_path_factory):
    """The broker's socket: it lends the GPU of alpha and that of beta."""
    if nats_server.BINARY is None:
        pytest.skip("nats-server is not installed")
    folder = tmp_path_factory.mktemp("cluster")
    (folder / "nats").mkdir()
    with nats_server.serving(folder / "nats") as nats:
        settings = {"bus_url": nats.url, "devices": "simulated", "simulated_inventory": "2x1xA100"}
        agents = [Program(folder / name, "agent", {**settings, "server_name": name}) for name in ("alpha", "beta")]
        ledger = f"sqlite:///{folder / 'ledger.sqlite'}"
        broker = Program(
            folder / "broker",
            "broker",
            {"bus_url": nats.url, "ledger_url": ledger},
            ("--socket", str(folder / "broker.sock")),
        )
        with running(*agents, broker):
            for agent in agents:
                agent.says("are reported to")
            broker.says("are lent at")
            soon(lambda: servers_up(folder / "broker.sock") == {"alpha": "up", "beta": "up"}, 60)
            yield folder / "broker.sock"


def servers_up(socket: Path) -> dict[str, str]:
    """The state of each server that the broker knows."""
    command = [sys.executable, "-m", "jupyter_gpushare.cli", "status", "--json", "--url", f"unix://{socket}"]
    said = subprocess.run(command, capture_output=True, text=True, check=False)
    servers = json.loads(said.stdout)["servers"] if said.returncode == 0 else []
    return {one["name"]: one["state"] for one in servers}


@pytest.fixture
def beta(tmp_path, jp_asyncio_loop):
    """The machine, reached through a relay that can be cut."""
    ends = contextlib.AsyncExitStack()
    yield jp_asyncio_loop.run_until_complete(ends.enter_async_context(sshd.machine(tmp_path / "beta")))
    jp_asyncio_loop.run_until_complete(ends.aclose())


@pytest.fixture
def wanted():
    """What its kernels ask for."""
    return {"constraints": {"server": "beta"}}


@pytest.fixture
def traits():
    return {}


@pytest.fixture
def jp_server_config(cluster, beta, wanted, traits):
    return {
        "ServerApp": {
            "jpserver_extensions": {"jupyter_gpushare": True, "jupyter_server_terminals": False},
            "allow_unauthenticated_access": False,
        },
        "GPUShareProvisioner": {"demand": wanted},
        "GPUShare": {
            "broker_url": f"unix://{cluster}",
            "server_name": "alpha",
            "remote_servers": {"beta": f"ssh://{beta.ip}:{beta.port}"},
            "remote_ssh_config": beta.config,
            "remote_keep_s": 60,
            **traits,
        },
    }


async def _until(what: Callable[[], Any], timeout_s: float = 30.0) -> Any:
    """What `what` answers once that is true."""
    deadline = time.monotonic() + timeout_s
    while True:
        answer = what()
        answer = await answer if isinstance(answer, Awaitable) else answer
        if answer:
            return answer
        assert time.monotonic() < deadline, f"not within {timeout_s} s; last: {answer!r}"
        await asyncio.sleep(0.05)


@pytest.fixture
def until():
    return _until
