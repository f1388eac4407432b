"""Parking as a person asks for it: when it works, when it is refused, and that everything comes back."""

from __future__ import annotations

import pytest

from jupyter_gpushare.core.policy import Policy
from jupyter_gpushare.errors import Refused
from jupyter_gpushare.model import Park, Warn
from jupyter_gpushare.units import GIB

from .conftest import server


async def test_a_session_that_is_parked_right_after_its_cell_stays_parked(world):
    w = await world(devices=1)
    await w.kernel("k1")
    await w.cell("k1")
    await w.cell_ends("k1")
    await w.call("POST", "sessions/k1/park", server("alice"))
    await w.settle()
    assert (await w.seen("k1"))["state"] == "parked"
    await w.wait(5)
    assert (await w.seen("k1"))["state"] == "parked"
    await w.cell("k1")
    assert (await w.seen("k1"))["state"] == "active"


async def test_where_nothing_is_on_a_gpu_nothing_is_parked_and_that_is_said(world):
    w = await world(devices=1)
    await w.kernel("k1")
    await w.call("POST", "sessions/k1/park", server("alice"))
    await w.settle()
    seen = await w.seen("k1")
    assert seen["state"] == "bound"
    assert "nothing was parked" in seen["message"]


async def test_what_the_host_cannot_hold_is_neither_noticed_nor_parked_until_it_can(world):
    w = await world(Policy(idle_after_s=10, warn_before_s=2), devices=1)
    w.node.host_memory_free = 8 * GIB
    await w.kernel("k1")
    await w.cell("k1", memory=20 * GIB)
    await w.cell_ends("k1")
    await w.kernel("k2", "bob", demand={"gpus": 1})
    await w.wait(120)
    with pytest.raises(Refused, match=r"20\.0 GiB on the GPU and its machine has 8\.0 GiB of memory free"):
        await w.call("POST", "sessions/k1/park", server("alice"))
    assert not any(isinstance(command, Park) for command in w.node.commands)
    assert not any(isinstance(decision, Warn) for _, decision in w.broker.cluster.sessions["k1"].decided)
    w.node.host_memory_free = 64 * GIB
    await w.wait(120)
    assert (await w.seen("k1"))["state"] == "parked"
