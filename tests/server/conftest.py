"""A real Jupyter server on two simulated devices, its runtime folder and ledger in the test's own folder."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

import psutil
import pytest

from tests.jupyter import asks, own_provisioner_factory  # noqa: F401 the second is a fixture


async def _until(what: Callable[[], Awaitable[Any]], timeout_s: float = 15.0) -> Any:
    """What `what` answers once that is true."""
    deadline = time.monotonic() + timeout_s
    while True:
        answer = await what()
        if answer:
            return answer
        assert time.monotonic() < deadline, f"not within {timeout_s} s; last: {answer!r}"
        await asyncio.sleep(0.05)


@pytest.fixture
def until():
    """Waits for a condition instead of a time."""
    return _until


@pytest.fixture
def gpushare_traits():
    return {}


@pytest.fixture
def jp_server_config(tmp_path, gpushare_traits):
    return {
        "ServerApp": {
            "jpserver_extensions": {"jupyter_gpushare": True, "jupyter_server_terminals": False},
            "allow_unauthenticated_access": False,
        },
        "GPUShare": {
            "devices": "simulated",
            "simulated_inventory": "1x2xA100",
            "ledger_url": f"sqlite:///{tmp_path / 'ledger.sqlite'}",
            **gpushare_traits,
        },
    }


@pytest.fixture
def extension(jp_serverapp):
    return jp_serverapp.extension_manager.extension_apps["jupyter_gpushare"].copy().pop()


@pytest.fixture
def gpu(jp_fetch, extension):
    """Asks the API, of an extension that has started: the JSON of the answer."""
    asked = asks(jp_fetch)

    async def ask(*path: str, **kwargs: Any) -> Any:
        if not extension.rooms.link._found.is_set():
            await extension._start_jupyter_server_extension(extension.serverapp)
            await asyncio.wait_for(extension.rooms.link.ready(), 10)
        return await asked(*path, **kwargs)

    return ask


@pytest.fixture
def kernels(jp_serverapp, extension, jp_asyncio_loop):
    """The server's kernel manager; the server's extension has started, and every kernel ends with the test."""

    async def start() -> None:
        await extension._start_jupyter_server_extension(jp_serverapp)
        await asyncio.wait_for(extension.rooms.link.ready(), 10)

    jp_asyncio_loop.run_until_complete(start())
    return jp_serverapp.kernel_manager


@pytest.fixture
def kernel():
    """A process that stands for a kernel of session `s`."""
    process = subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(600)"], env={**os.environ, "GPUSHARE_SESSION": "s"}
    )
    yield psutil.Process(process.pid)
    process.kill()
    process.wait()
