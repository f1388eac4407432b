"""A kernel's life with its device, from its start to the proof of its end."""

from __future__ import annotations


async def test_a_kernel_is_bound_at_once_and_leased_by_its_first_cell(world):
    w = await world()
    binding = await w.kernel("k1")
    assert (binding["state"], len(binding["devices"])) == ("bound", 1)
    assert (await w.seen("k1"))["devices"][0]["share"] == 0
    await w.cell("k1")
    seen = await w.seen("k1")
    assert seen["state"] == "active"
    assert seen["devices"][0]["share"] >= 0.1
