"""A context that may be there counts as there: nothing is taken on what could not be read (rule 1)."""

from __future__ import annotations

import msgspec
import pytest

from jupyter_gpushare.core.policy import Policy
from jupyter_gpushare.model import Held, Park, Stop
from jupyter_gpushare.units import GIB
from tests.broker.conftest import kernel


async def after_an_hour(world, idle_s: float | None):
    """A holder whose context its node cannot tell, an hour after its cell; another waits for the whole device."""
    w = await world(Policy(idle_after_s=5, warn_before_s=1), devices=1)
    await w.kernel("holder", demand={"gpus": 0.9})
    await w.cell("holder")
    uuid = w.node.uuids[0]
    await w.cell_ends("holder")
    w.node.held["holder"] = Held(session="holder", unseen=(uuid,), memory_used={uuid: None}, gpu_idle_s=idle_s)
    w.node.can_park = False  # as on real devices of this version
    await w.settle()
    await w.kernel("waiter", "bob", demand={"gpus": 0.9, "exclusive": True})
    await w.cell("waiter", "bob")
    await w.wait(3600, step=60)
    return w


@pytest.mark.parametrize("idle_s", [None, 0.0])
async def test_a_session_whose_context_is_unknown_is_not_unbound(world, idle_s):
    w = await after_an_hour(world, idle_s)
    session = w.broker.cluster.sessions["holder"]
    assert session.leased
    assert not session.warned


async def test_what_it_does_is_unknown_and_so_is_since_when_it_idles(world):
    w = await after_an_hour(world, None)
    assert w.broker.cluster.sessions["holder"].idle_since(w.clock()) is None
    assert (await w.seen("holder"))["idle_s"] is None


async def test_what_it_has_there_is_unknown_and_not_nothing(world):
    w = await after_an_hour(world, 0.0)
    w.node.held["holder"] = msgspec.structs.replace(w.node.held["holder"], memory_used={})
    await w.settle()
    assert (await w.seen("holder"))["devices"][0]["memory_used"] is None


async def test_one_that_is_known_to_have_none_is_unbound(world):
    w = await after_an_hour(world, 0.0)
    w.node.held["holder"] = msgspec.structs.replace(w.node.held["holder"], unseen=(), memory_used={})
    await w.wait(60)
    assert not w.broker.cluster.sessions["holder"].leased


@pytest.mark.parametrize("state", ["unknown", "lost"])
async def test_nothing_is_taken_from_a_device_that_cannot_be_read_nor_is_it_lent(world, state):
    """A3: NVML fails in mid-life. What was read last, idle for hours, is nothing to decide on."""
    w = await world(Policy(idle_after_s=5, warn_before_s=1), devices=1)
    await w.kernel("holder", demand={"gpus": 0.9})
    await w.cell("holder", memory=60 * GIB)
    await w.cell_ends("holder")
    (uuid,) = w.node.uuids
    w.node.states[uuid] = state
    w.node.held["holder"] = Held(session="holder", devices=(uuid,), memory_used={uuid: None}, utilization={uuid: None})
    await w.settle()
    await w.kernel("waiter", "bob", demand={"gpus": 0.9})
    await w.call("POST", "sessions/waiter/hello", kernel("bob", "waiter"))
    for _ in range(10):
        asked = await w.call("POST", "sessions/waiter/admit", kernel("bob", "waiter"), {"wait_s": 0})
        assert not asked["admitted"]
        await w.wait(600, step=60)
    assert not [command for command in w.node.commands if isinstance(command, Park | Stop)]
    assert not w.broker.cluster.sessions["holder"].warned
    assert not w.broker.cluster.sessions["waiter"].leased
