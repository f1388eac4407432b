"""Requests that are on their way to a broker of this process when it is not there."""

from __future__ import annotations

import logging

import pytest

from jupyter_gpushare.config import GPUShare, Policy
from jupyter_gpushare.errors import Unavailable
from jupyter_gpushare.model import Caller
from jupyter_gpushare.server.host import Host


async def test_a_request_that_meets_a_broker_that_stopped_is_told_to_come_again(jp_asyncio_loop):
    host = Host(GPUShare(), Policy(), "alice", None, "0", logging.getLogger("test"))
    with pytest.raises(Unavailable) as refused:
        await host.call(Caller(user="alice"), "GET", "status")
    assert refused.value.reason == "standby"
    with pytest.raises(Unavailable):
        host.stream(Caller(user="alice"))
