"""What can never be given is refused with words, wherever it is asked for; nobody waits for it, nobody loses by it."""

from __future__ import annotations

import pytest

from jupyter_gpushare.errors import Conflict, GPUShareError
from jupyter_gpushare.model import Caller
from jupyter_gpushare.units import GIB

from .conftest import kernel, server

NEVER = [
    ({"constraints": {"model": "H900"}}, "H900"),
    ({"constraints": {"server": "omega"}}, "omega"),
    ({"gpus": 8}, "gpus: 8"),
    ({"memory": "500GiB"}, "500 GiB"),
    ({"constraints": {"model": "A100"}, "gpus": 3}, "gpus: 3"),
]


async def refused(w, body, words: str, **more) -> None:
    before = await w.seen("k1")
    with pytest.raises(GPUShareError, match=words):
        await w.call("POST", "sessions/k1/request", server("alice"), body | more)
    await w.settle()
    seen = await w.seen("k1")
    same = ("state", "demand", "parked_bytes", "queue_position")
    assert [seen[name] for name in same] == [before[name] for name in same]
    assert {device["uuid"] for device in seen["devices"]} == {device["uuid"] for device in before["devices"]}


async def admitted(w) -> bool:
    """A cell asks at its gate until it is let in, for a minute."""
    for _ in range(60):
        answer = await w.call("POST", "sessions/k1/admit", kernel("alice", "k1"), {"wait_s": 0})
        if answer["admitted"]:
            return True
        await w.wait(1)
    return False


@pytest.mark.parametrize(("body", "words"), NEVER)
@pytest.mark.parametrize("cooperative", [True, False])
async def test_a_bound_session_keeps_what_it_has_and_its_cell_runs(world, body, words, cooperative):
    w = await world()
    await w.kernel("k1")
    if cooperative:
        await w.call("POST", "sessions/k1/hello", kernel("alice", "k1"))
    await refused(w, body, words)
    assert await admitted(w)


@pytest.mark.parametrize(("body", "words"), NEVER)
@pytest.mark.parametrize("apply", ["live", "restart"])
async def test_a_leased_session_keeps_what_it_has_and_nothing_is_reserved(world, body, words, apply):
    w = await world()
    await w.kernel("k1")
    await w.cell("k1")
    await w.cell_ends("k1")
    await refused(w, body, words, apply=apply)
    assert w.broker.cluster.reservations == {}


@pytest.mark.parametrize(
    ("body", "words"),
    [
        *NEVER,
        ({"gpus": 0}, "parked"),
        ({"gpus": 2}, "Needs a kernel restart"),
    ],
)
async def test_a_parked_session_stays_where_it_is_and_comes_back_with_its_next_cell(world, body, words):
    w = await world()
    await w.kernel("k1")
    await w.call("POST", "sessions/k1/hello", kernel("alice", "k1"))
    await w.cell("k1", memory=30 * GIB)
    await w.cell_ends("k1")
    await w.call("POST", "sessions/k1/park", server("alice"))
    await w.settle()
    await refused(w, body, words)
    assert await admitted(w)
    seen = await w.seen("k1")
    assert (seen["parked_bytes"], seen["devices"][0]["memory_used"]) == (None, 30 * GIB)


async def test_a_running_kernel_is_not_promised_more_memory_than_its_own_device_has(world):
    w = await world()
    small, large = w.node.uuids
    w.node.memory[small] = 40 * GIB
    await w.settle()
    await w.call("POST", f"devices/{large}/drain", Caller(user="root", admin=True))
    await w.kernel("k1")
    await w.cell("k1")
    await w.cell_ends("k1")
    with pytest.raises(Conflict, match=r"cannot get 60\.0 GiB of memory on this GPU"):
        await w.call("POST", "sessions/k1/request", server("alice"), {"memory": "60GiB"})


@pytest.mark.parametrize(("body", "words"), NEVER)
async def test_a_notebooks_next_kernel_is_not_promised_it_either(world, body, words):
    w = await world()
    with pytest.raises(GPUShareError, match=words):
        await w.call("PUT", "demands/a.ipynb", Caller(user="alice"), body)
    assert w.broker.cluster.demands == {}


@pytest.mark.parametrize(
    "demand",
    [
        {"constraints": {"model": "H900"}},
        {"constraints": {"server": "omega"}},
        {"gpus": 8},
        {"memory": 500 * GIB},
        {"gpus": 0.5, "memory": 500 * GIB, "exclusive": True},
    ],
)
async def test_a_kernel_that_asks_for_it_starts_without_a_gpu_and_its_cells_run(world, demand):
    w = await world()
    binding = await w.kernel("k1", demand=demand)
    assert binding["devices"] == []
    assert binding["message"].startswith("Not granted. No ")
    assert await admitted(w)


@pytest.mark.parametrize("memory", [10, 70, 76, 79])
async def test_what_filled_a_device_comes_back_to_it(world, memory):
    w = await world(devices=1)
    await w.kernel("k1")
    await w.call("POST", "sessions/k1/hello", kernel("alice", "k1"))
    await w.cell("k1", memory=memory * GIB)
    await w.cell_ends("k1")
    await w.call("POST", "sessions/k1/park", server("alice"))
    await w.settle()
    assert (await w.seen("k1"))["parked_bytes"] == memory * GIB
    assert await admitted(w)
