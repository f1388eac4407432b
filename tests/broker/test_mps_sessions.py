"""Sessions on devices under MPS and on MIG instances: who may go there, with what ceiling, and what they are told."""

from __future__ import annotations

import pytest

from jupyter_gpushare.broker import state
from jupyter_gpushare.errors import BadDemand
from jupyter_gpushare.model import Caller, Mps, Park

ZERO, ONE = "GPU-alpha-0", "GPU-alpha-1"


def under_mps(pipe: str = "/run/gpushare/mps/0/pipe", owner: str | None = None, server: int = 900) -> dict[str, object]:
    return {
        "sharing": "mps",
        "enforced": "ceiling",
        "mps": Mps(pipe=pipe, owner=owner, server=server),
        "can_park": False,
    }


async def test_a_kernel_is_told_its_server_and_a_ceiling_of_a_multiple_of_its_guarantee(world):
    world = await world(devices=1, mps_burst=3.0)
    world.node.facts[ZERO] = under_mps()
    await world.settle()
    binding = await world.open("a", demand={"gpus": 0.2, "memory": 2**30})
    assert (binding["mps_pipe"], binding["ceiling"], binding["memory_limit"]) == (
        "/run/gpushare/mps/0/pipe",
        pytest.approx(0.6),
        None,
    )
    assert (await world.seen("a"))["limit"] == pytest.approx(0.6)


async def test_the_memory_it_asked_for_becomes_a_limit_only_where_the_admin_wants_it(world):
    world = await world(devices=1, mps_memory_limit=True)
    world.node.facts[ZERO] = under_mps()
    await world.settle()
    assert (await world.open("a", demand={"gpus": 0.2, "memory": 2**30}))["memory_limit"] == 2**30


async def test_processes_that_together_have_more_than_was_asked_for_are_shown_and_told(world):
    """F4: the limit holds for each process; a kernel and its three workers have four times as much."""
    world = await world(devices=1, mps_memory_limit=True)
    world.node.facts[ZERO] = under_mps()
    await world.settle()
    await world.kernel("a", demand={"gpus": 0.2, "memory": 2**30})
    await world.cell("a", memory=2**30)
    assert "asked for" not in (await world.seen("a"))["message"]
    world.node.uses("a", ZERO, memory=4 * 2**30, busy=0.5)
    await world.settle()
    seen = await world.seen("a")
    assert seen["devices"][0]["memory_used"] == 4 * 2**30
    assert "have 4.0 GiB of memory on GPU 0, 1.0 GiB were asked for" in seen["message"]


async def test_a_share_under_mps_never_grows_beyond_what_the_ceiling_lets_it_use(world):
    world = await world(devices=1)
    world.node.facts[ZERO] = under_mps()
    await world.settle()
    await world.kernel("a", demand={"gpus": 0.2})
    await world.cell("a", busy=0.95)
    await world.wait(300)
    assert (await world.seen("a"))["devices"][0]["share"] <= 0.4 + 1e-6


@pytest.mark.parametrize("fallen_back", [False, True])
async def test_no_client_of_mps_is_parked_however_long_it_idles_nor_when_its_device_has_fallen_back(world, fallen_back):
    world = await world(devices=1)
    world.node.facts[ZERO] = under_mps()
    await world.settle()
    await world.kernel("a", demand={"gpus": 0.6})
    await world.cell("a", memory=70 * 2**30)
    await world.cell_ends("a")
    if fallen_back:
        world.node.facts.clear()
    await world.kernel("b", demand={"gpus": 0.6, "memory": 60 * 2**30})
    await world.call("POST", "sessions/b/admit", Caller(user="alice", role="kernel", session="b"), {"wait_s": 0})
    await world.wait(600, step=10)
    assert not any(isinstance(command, Park) for command in world.node.commands)


async def test_another_users_kernel_never_hangs_on_a_server_that_serves_one_user(world):
    world = await world(devices=2)
    world.node.facts[ZERO] = under_mps(owner="alice")
    await world.settle()
    for name in ("b1", "b2", "b3"):
        assert (await world.open(name, "bob", demand={"gpus": 0.3}))["devices"] == [ONE]
    found = {(await world.open(name, "alice", demand={"gpus": 0.5}))["devices"][0] for name in ("a1", "a2")}
    assert ZERO in found


@pytest.mark.parametrize("sharing", ["mps", "mig"])
async def test_a_kernel_for_several_devices_is_refused_where_one_process_can_use_only_one(world, sharing):
    world = await world(devices=2)
    for uuid in (ZERO, ONE):
        world.node.facts[uuid] = under_mps() if sharing == "mps" else {"sharing": "mig"}
    await world.settle()
    await world.kernel("a", demand={"gpus": 0.2})
    with pytest.raises(BadDemand, match="only one GPU that is under MPS, or one MIG instance"):
        await world.call("POST", "sessions/a/request", Caller(user="alice"), {"gpus": 2})


async def test_a_kernel_that_starts_with_such_a_demand_is_told_why_it_gets_none(world):
    world = await world(devices=2)
    for uuid in (ZERO, ONE):
        world.node.facts[uuid] = under_mps()
    await world.settle()
    binding = await world.open("a", demand={"gpus": 2})
    assert binding["devices"] == []
    assert "only one GPU that is under MPS" in (await world.seen("a"))["message"]


async def test_when_its_server_is_away_a_kernel_is_told_that_only_a_restart_helps_and_the_next_has_no_pipe(world):
    world = await world(devices=1)
    world.node.facts[ZERO] = under_mps()
    await world.settle()
    await world.kernel("a", demand={"gpus": 0.2})
    await world.cell("a")
    world.node.facts[ZERO] = {"reason": "A fault in one of 2 kernels ended the GPU work of all of them."}
    await world.settle()
    told = (await world.seen("a"))["message"]
    assert "Restart the kernel" in told
    assert "one of 2 kernels" in told
    assert (await world.open("b", demand={"gpus": 0.2}))["mps_pipe"] is None
    assert (await world.open("a", demand={"gpus": 0.2}, restart=True))["mps_pipe"] is None


async def test_who_computed_under_a_server_that_was_replaced_is_told_and_who_did_not_is_not(world):
    world = await world(devices=1)
    world.node.facts[ZERO] = under_mps(server=900)
    await world.settle()
    await world.kernel("used", demand={"gpus": 0.2})
    await world.cell("used")
    await world.kernel("fresh", demand={"gpus": 0.2})
    world.node.facts[ZERO] = under_mps(server=901)
    await world.settle()
    assert "Restart the kernel" in (await world.seen("used"))["message"]
    assert "Restart" not in (await world.seen("fresh"))["message"]


async def test_a_client_stays_with_its_server_and_who_runs_without_one_becomes_no_client(world):
    world = await world(devices=2)
    world.node.facts[ZERO] = under_mps()
    world.node.states[ONE] = "lost"
    await world.settle()
    await world.kernel("client", demand={"gpus": 0.2})
    world.node.states.clear()
    world.node.states[ZERO] = "lost"
    await world.settle()
    await world.kernel("plain", demand={"gpus": 0.2})
    world.node.states.clear()
    await world.settle()
    for session in world.broker.cluster.sessions.values():
        session.cooperative = True
    matrix = state.build(world.broker.cluster, world.settings, world.policy, world.clock())
    may = {
        name: [matrix.devices.uuid[device] for device in matrix.allowed[matrix.sessions.allowed[row]].nonzero()[0]]
        for row, name in enumerate(matrix.sessions.id)
    }
    assert may == {"client": [ZERO], "plain": [ONE]}


async def test_the_view_says_what_the_mechanism_gives_not_what_the_mode_promises(world):
    world = await world(devices=2)
    world.node.facts[ZERO] = under_mps() | {"enforced": "target", "reason": "1 process runs beside it."}
    world.node.facts[ONE] = {"sharing": "exclusive", "enforced": "target"}
    await world.settle()
    devices = (await world.status())["servers"][0]["devices"]
    assert [(one["sharing"], one["enforced"]) for one in devices] == [("mps", "target"), ("exclusive", "target")]


async def test_a_broker_that_took_over_hears_from_the_server_whose_client_a_kernel_is(world):
    world = await world(devices=1)
    world.node.facts[ZERO] = under_mps()
    await world.settle()
    spec = {"id": "a", "user": "alice", "origin": "alice-lab", "label": "a.ipynb", "server": "alpha"}
    kernel = {"spec": spec, "pid": 7, "started": 1.0, "devices": [ZERO], "mps_pipe": "/pipe", "ceiling": 0.25}
    caller = Caller(user="alice", role="server", origin="alice-lab")
    await world.call("POST", "servers/alice-lab/alive", caller, {"sessions": [kernel]})
    assert (await world.seen("a"))["limit"] == 0.25
