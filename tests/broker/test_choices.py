"""Which GPU server a user's server is told to start on."""

from __future__ import annotations

import pytest

from jupyter_gpushare.broker.choices import EXPECTED_PER_USER, EXPECTED_S
from jupyter_gpushare.errors import BadDemand, NotAllowed
from jupyter_gpushare.model import Caller
from jupyter_gpushare.units import GIB
from tests.broker.conftest import Node, kernel

ALICE, BOB = Caller(user="alice"), Caller(user="bob")


async def several(world, *names: str, **settings):
    """A world of more servers than one, two GPUs each."""
    made = await world(**settings)
    others = [Node(made.bus, name) for name in names]
    for node in others:
        await made.bus.report(node.report())
    return made, {made.node.name: made.node} | {node.name: node for node in others}


async def chosen(world, caller=ALICE, **ask):
    return await world.call("POST", "choose", caller, ask)


async def test_the_server_with_room_is_chosen(world):
    made, _ = await several(world, "beta")
    for name in ("a", "b"):
        await made.kernel(name, "bob", demand={"gpus": 1.0}, server="alpha")
        await made.cell(name, "bob")

    choice = await chosen(made, gpus=1)

    assert (choice["server"], choice["gpus"], choice["machine"]) == ("beta", 1, True)
    assert choice["terms"]
    assert all(other["text"] for other in choice["alternatives"])


async def test_who_is_told_at_the_same_moment_is_spread_over_the_servers(world):
    made, _ = await several(world, "beta")
    servers = [(await chosen(made, Caller(user=f"user-{n}"), gpus=0.5))["server"] for n in range(8)]
    assert sorted(servers) == ["alpha"] * 4 + ["beta"] * 4


async def test_what_was_told_and_came_to_nothing_is_forgotten(world):
    made, _ = await several(world, "beta")
    await chosen(made, gpus=1)
    assert len(made.broker.expected) == 1
    await made.wait(EXPECTED_S, step=EXPECTED_S, alive=False)
    await chosen(made, BOB)
    assert [user for user, _ in made.broker.expected] == ["bob"]


async def test_what_was_told_ends_with_the_servers_first_kernel(world):
    made, _ = await several(world, "beta")
    await chosen(made, gpus=1, singleuser="lab")
    made.clock.advance(5)
    await made.kernel("k", singleuser="lab")
    await chosen(made, BOB)
    assert [user for user, _ in made.broker.expected] == ["bob"]


async def test_one_user_counts_for_so_many_servers_only(world):
    made, _ = await several(world, "beta")
    for number in range(EXPECTED_PER_USER + 3):
        await chosen(made, singleuser=f"lab-{number}")
    assert len(made.broker.expected) == EXPECTED_PER_USER


async def test_the_demand_is_that_of_the_users_last_sessions(world):
    made, nodes = await several(world, "beta")
    nodes["beta"].facts = {key: {"model": "NVIDIA H100"} for key in nodes["beta"].uuids}
    await made.bus.report(nodes["beta"].report())
    await made.kernel("k", demand={"gpus": 0.5, "constraints": {"model": "H100"}}, server="beta")
    await made.ends("k")

    choice = await chosen(made)
    assert (choice["server"], choice["model"], choice["gpus"]) == ("beta", "NVIDIA H100", 0.5)
    await made.call("PUT", "demands/next.ipynb", ALICE, {"gpus": 1, "constraints": {"model": "A100"}})
    choice = await chosen(made)
    assert (choice["server"], choice["gpus"]) == ("alpha", 1)


async def test_what_was_chosen_goes_before_what_was_asked_of_late(world):
    made, _ = await several(world)
    await made.kernel("k", demand={"gpus": 0.5})
    assert (await chosen(made, gpus=0.25))["gpus"] == 0.25
    assert (await chosen(made, gpus=0)) == {
        "server": None, "machine": True, "model": None, "gpus": 0.0, "terms": [], "alternatives": [],
    }  # fmt: skip


async def test_it_is_near_the_users_data(world):
    made, _ = await several(world, "beta", "gamma", data={"/datasets": ("beta",)}, data_bytes={"/datasets": 10**12})
    assert (await chosen(made, near=["data:/datasets/birds"]))["server"] == "beta"


@pytest.mark.parametrize("home", ["alpha", "beta", "gamma"])
async def test_it_is_near_the_users_running_sessions(world, home):
    made, nodes = await several(world, "beta", "gamma")
    made.node = nodes[home]
    await made.kernel("k", demand={"gpus": 0.25}, server=home)
    await made.cell("k", memory=20 * GIB, busy=0.1)
    assert (await chosen(made, singleuser="second", gpus=0.1))["server"] == home


async def test_only_the_servers_that_can_be_reached_count(world):
    made, _ = await several(world, "beta", "gamma")
    assert (await chosen(made, among=["gamma", "elsewhere"]))["server"] == "gamma"
    assert (await chosen(made, among=["elsewhere"]))["server"] is None
    assert (await chosen(made, among=[]))["server"] is None


async def test_where_the_last_start_failed_is_chosen_last(world):
    made, _ = await several(world, "beta")
    first = (await chosen(made))["server"]
    other = (await chosen(made, avoid=first))["server"]
    assert {first, other} == {"alpha", "beta"}
    assert (await chosen(made, among=[first], avoid=first))["server"] == first
    assert (await chosen(made, avoid="elsewhere"))["server"] is not None


async def test_more_than_any_server_has_suits_nowhere(world):
    made, _ = await several(world, "beta")
    choice = await chosen(made, gpus=3)
    assert (choice["server"], choice["gpus"]) == (None, 3)


async def test_a_silent_server_is_not_chosen(world):
    made, nodes = await several(world, "beta")
    made.clock.advance(60)
    await made.bus.report(nodes["beta"].report())
    assert (await chosen(made))["server"] == "beta"


async def test_without_any_server_there_is_no_choice(world):
    made = await world()
    made.broker.cluster.devices.clear()
    assert (await chosen(made))["server"] is None


async def test_simulated_devices_are_on_no_machine(world):
    made, _ = await several(world, simulated=True)
    assert (await chosen(made))["machine"] is False


async def test_the_question_changes_nothing_that_decides(world):
    made, _ = await several(world, "beta")
    await made.kernel("k", demand={"gpus": 0.5})
    before = await made.status(admin=True)
    await chosen(made, gpus=1)
    await made.settle()
    after = await made.status(admin=True)
    assert after["sessions"] == before["sessions"]
    assert after["queue"] == before["queue"]


async def test_a_kernel_cannot_ask_for_its_user(world):
    made, _ = await several(world)
    await made.kernel("k")
    with pytest.raises(NotAllowed):
        await chosen(made, kernel("alice", "k"))


@pytest.mark.parametrize(
    ("ask", "field"), [({"gpus": 1.5}, "gpus"), ({"gpu": 1}, "gpu"), ({"singleuser": "x" * 300}, "singleuser")]
)
async def test_an_unusable_question_is_refused_by_its_field(world, ask, field):
    made, _ = await several(world)
    with pytest.raises(BadDemand, match=field):
        await chosen(made, **ask)
