"""Fixtures of a real Jupyter server with our extension in it, for the conftest of those who want them."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from jupyter_client.provisioning.factory import KernelProvisionerFactory

API = ("gpushare", "api", "v1")
Ask = Callable[..., Awaitable[Any]]


def asks(jp_fetch: Callable[..., Awaitable[Any]]) -> Ask:
    """Asks the API: the JSON of the answer."""

    async def ask(*path: str, method: str = "GET", body: object = None, **kwargs: Any) -> Any:
        text = None if body is None and method == "GET" else json.dumps(body or {})
        answer = await jp_fetch(*API, *path, method=method, body=text, **kwargs)
        return json.loads(answer.body) if answer.body else None

    return ask


@pytest.fixture(autouse=True)
def own_provisioner_factory():
    """The factory is one per process; each test's server chooses its own default."""
    KernelProvisionerFactory.clear_instance()
    yield
    KernelProvisionerFactory.clear_instance()


@pytest.fixture
def extension(jp_serverapp, jp_asyncio_loop):
    """It has started."""
    found = jp_serverapp.extension_manager.extension_apps["jupyter_gpushare"].copy().pop()
    jp_asyncio_loop.run_until_complete(found._start_jupyter_server_extension(jp_serverapp))
    return found


@pytest.fixture
def gpu(jp_fetch, extension):
    return asks(jp_fetch)


@pytest.fixture
def kernels(extension, jp_serverapp):
    return jp_serverapp.kernel_manager
