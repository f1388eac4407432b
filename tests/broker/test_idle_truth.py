"""Idle or not (design rule 6): what looks idle and is not, and what looks busy and is not."""

from __future__ import annotations

import msgspec
import pytest

from jupyter_gpushare.core.policy import Policy
from jupyter_gpushare.units import GIB

from .conftest import kernel, server

HOURS = 3600.0


async def test_a_kernel_that_waits_in_line_is_not_idle_however_long_it_waits(world):
    """E7"""
    w = await world(Policy(idle_after_s=5, stop_idle_kernels=True, stop_after_s=20, stop_warn_s=5), devices=1)
    await w.kernel("k1", demand={"gpus": 1})
    await w.cell("k1")
    await w.open("k2", "bob", demand={"gpus": 1}, wait_s=0)
    await w.started("k2", "bob")
    for _ in range(12):
        await w.wait(10, step=5)
        await w.cell("k1")
        seen = await w.seen("k2", "bob")
        assert (seen["state"], seen["idle_s"], seen["reclaim_in_s"]) == ("waiting", None, None)
    assert not [command for command in w.node.commands if type(command).__name__ in ("Park", "Stop")]


async def test_a_resumed_session_idles_from_its_return_on(world):
    """E8: it is not parked again at once, though its last cell lies far back."""
    w = await world(Policy(idle_after_s=20, warn_before_s=5), devices=1)
    await w.kernel("k1", demand={"gpus": 0.6})
    await w.cell("k1", memory=60 * GIB)
    await w.cell_ends("k1")
    await w.call("POST", "sessions/k1/park", server("alice"))
    await w.settle()
    await w.wait(120, step=10)
    assert (await w.seen("k1"))["state"] == "parked"
    await w.call("POST", "sessions/k1/resume", server("alice"))
    await w.settle()
    await w.kernel("k2", "bob", demand={"gpus": 0.6, "memory": 40 * GIB})
    await w.call("POST", "sessions/k2/hello", kernel("bob", "k2"))
    await w.call("POST", "sessions/k2/admit", kernel("bob", "k2"), {"wait_s": 0})
    for _ in range(15):
        await w.wait(1)
        w.broker.cluster.sessions["k2"].asked_at = w.clock()
        assert (await w.seen("k1"))["state"] in ("idle", "active")
        assert not w.broker.cluster.sessions["k1"].warned


async def test_a_cell_that_prints_nothing_and_uses_no_gpu_for_hours_is_not_idle(world):
    """E11: a limit on such cells is a setting of its own, off by default."""
    w = await world(Policy(idle_after_s=20, warn_before_s=5), devices=1)
    await w.kernel("k1", demand={"gpus": 0.6})
    await w.cell("k1", memory=60 * GIB)
    w.node.quiet("k1", 0.0)
    await w.kernel("k2", "bob", demand={"gpus": 0.6, "memory": 40 * GIB})
    await w.call("POST", "sessions/k2/hello", kernel("bob", "k2"))
    await w.call("POST", "sessions/k2/admit", kernel("bob", "k2"), {"wait_s": 0})
    for _ in range(6):
        await w.wait(HOURS, step=HOURS)
        w.broker.cluster.sessions["k2"].asked_at = w.clock()
        assert (await w.seen("k1"))["state"] == "active"
        assert not w.broker.cluster.sessions["k1"].warned


LIMIT_S = 300.0


async def test_a_cell_beyond_the_busy_limit_that_never_used_its_gpu_counts_as_idle(world):
    """E11: `while True: pass`: parked for who waits, and then in line to come back."""
    w = await world(Policy(idle_after_s=20, warn_before_s=5, busy_limit_s=LIMIT_S), devices=1)
    await w.kernel("k1", demand={"gpus": 0.6})
    await w.cell("k1", memory=60 * GIB)
    await w.cell_ends("k1")
    await w.call("POST", "sessions/k1/burst", server("alice"), {"phase": "start"})
    await bob_waits(w)
    await bob_asks_on(w, LIMIT_S - 5)
    assert (await w.seen("k1"))["state"] == "active"
    await bob_asks_on(w, 10)
    assert (await w.seen("k1"))["state"] == "idle"
    assert "counts as idle" in (await w.seen("k1"))["message"]
    await bob_asks_on(w, 40)

    assert (await w.seen("k2", "bob"))["state"] == "active"
    assert (await w.seen("k1"))["parked_bytes"] == 60 * GIB
    assert (await w.seen("k1"))["waiting_s"] is not None  # what its cell may yet call on the GPU waits for that
    await w.ends("k2", "bob")
    await w.wait(5)
    assert (await w.seen("k1"))["state"] == "active"


@pytest.mark.parametrize("what", ["it used its GPU once", "its use cannot be told", "nobody set a limit"])
async def test_a_long_cell_is_not_beyond_the_busy_limit_when(world, what):
    limit_s = 0 if what == "nobody set a limit" else LIMIT_S
    w = await world(Policy(idle_after_s=20, warn_before_s=5, busy_limit_s=limit_s), devices=1)
    await w.kernel("k1", demand={"gpus": 0.6})
    await w.cell("k1", memory=60 * GIB)
    await w.cell_ends("k1")
    await w.call("POST", "sessions/k1/burst", server("alice"), {"phase": "start"})
    await bob_waits(w)
    await bob_asks_on(w, 60)
    if what == "it used its GPU once":
        w.node.uses("k1", "GPU-alpha-0", 60 * GIB, busy=0.9)
        await w.wait(1)
        w.node.quiet("k1", 0.0)
    elif what == "its use cannot be told":
        held = w.node.held["k1"]
        w.node.held["k1"] = msgspec.structs.replace(held, gpu_idle_s=None, utilization={"GPU-alpha-0": None})
    await bob_asks_on(w, 3 * LIMIT_S)
    assert (await w.seen("k1"))["state"] == "active"
    assert (await w.seen("k2", "bob"))["state"] == "waiting"
    assert not w.broker.cluster.sessions["k1"].warned


async def bob_waits(w) -> None:
    """A cell of his waits for what is not free."""
    await w.kernel("k2", "bob", demand={"gpus": 0.6, "memory": 40 * GIB})
    await w.call("POST", "sessions/k2/hello", kernel("bob", "k2"))
    await w.call("POST", "sessions/k2/admit", kernel("bob", "k2"), {"wait_s": 0})
    await w.call("POST", "sessions/k2/burst", server("bob"), {"phase": "start"})


async def bob_asks_on(w, seconds: float) -> None:
    for _ in range(int(seconds / 5)):
        w.broker.cluster.sessions["k2"].asked_at = w.clock()
        await w.wait(5, step=5)


async def test_a_kernel_that_never_had_a_client_holds_nothing_and_hinders_nobody(world):
    """G7, E4: started by an API call, never asked to run anything."""
    w = await world(devices=1)
    await w.kernel("k1", demand={"gpus": 0.9})
    await w.wait(60, step=10)
    assert (await w.seen("k1"))["state"] == "bound"
    assert (await w.seen("k1"))["devices"][0]["share"] == 0
    await w.kernel("k2", "bob", demand={"gpus": 0.9})
    await w.cell("k2", "bob")
    assert (await w.seen("k2", "bob"))["state"] == "active"


async def test_what_the_process_before_said_of_being_busy_ends_with_it(world):
    """D3: a kernel that crashed in its cell and was started again is not busy."""
    w = await world(devices=1)
    await w.kernel("k1")
    await w.cell("k1")
    w.node.dies("k1")
    await w.open("k1", restart=True)
    await w.started("k1")
    await w.wait(5)
    assert (await w.seen("k1"))["state"] in ("idle", "bound")
    assert w.broker.cluster.sessions["k1"].cells == 0
