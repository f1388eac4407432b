"""Parking as a person asks for it: when it works, when it is refused, and that everything comes back."""

from __future__ import annotations

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
