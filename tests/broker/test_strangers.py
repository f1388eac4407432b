"""What others have on a device is not given away a second time: foreign work, leftovers, who was not given it."""

from __future__ import annotations

import pytest

from jupyter_gpushare.broker import room
from jupyter_gpushare.model import Device, Process
from jupyter_gpushare.units import GIB
from tests.broker.conftest import kernel


async def beside(world, memory: int | None, why: str):
    """One device, 60 GiB of which somebody has whom nobody put there; and a session that asks for half of it."""
    w = await world(devices=1)
    (uuid,) = w.node.uuids
    session = None if why == "foreign" else "stray"
    w.node.left[uuid] = [Process(pid=77, session=session, owner="carol", memory=memory, why=why)]
    w.node.facts[uuid] = {"memory_used": 60 * GIB, "memory_unaccounted": 0 if memory is not None else None}
    await w.settle()
    await w.kernel("a", demand={"gpus": 0.5, "memory": 40 * GIB})
    await w.call("POST", "sessions/a/hello", kernel("alice", "a"))
    return w


@pytest.mark.parametrize("memory", [60 * GIB, None], ids=["known", "unknown"])
@pytest.mark.parametrize("why", ["foreign", "leftover", "off-lease"])
async def test_a_cell_waits_for_memory_that_somebody_else_has(world, why, memory):
    """B6, B9, C9: else it would run out of memory in the user's own code."""
    w = await beside(world, memory, why)
    ask = "POST", "sessions/a/admit", kernel("alice", "a"), {"wait_s": 0}
    assert not (await w.call(*ask))["admitted"]
    assert (await w.seen("a"))["state"] == "waiting"

    w.node.left.clear()
    w.node.facts.clear()
    await w.settle()
    assert (await w.call(*ask))["admitted"]


@pytest.mark.parametrize(
    ("unaccounted", "sizes", "taken"),
    [(0, (), 0), (3, (5, 7), 15), (None, (5,), None), (3, (5, None), None), (None, (), None)],
)
def test_what_is_taken_is_known_only_where_every_part_is(unaccounted, sizes, taken):
    processes = [Process(pid=number, memory=size, why="foreign") for number, size in enumerate(sizes)]
    own, unseen = Process(pid=99, session="a", memory=11), Process(pid=98, memory=13, why="foreign", visible=False)
    processes += [own, unseen]  # the node has what cannot be seen among the unaccounted
    device = Device(uuid="GPU-0", index=0, model="A100", memory_unaccounted=unaccounted, processes=tuple(processes))
    assert room.taken(device) == taken
