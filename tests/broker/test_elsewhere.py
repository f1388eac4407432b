"""Kernels that may start on other machines than their server's: where they go, and that they stay there."""

from __future__ import annotations

import pytest

from jupyter_gpushare.errors import BadDemand
from tests.broker.conftest import Node, server


async def two(world, **settings):
    """alpha, where everybody's server is, and beta: two GPUs each."""
    made = await world(**settings)
    beta = Node(made.bus, "beta")
    await made.bus.report(beta.report())
    return made, beta


def machine(binding) -> str:
    """Where its devices are, by their names."""
    return binding["devices"][0].split("-")[1]


async def fill(made):
    """Others compute on both GPUs of alpha."""
    for number in range(2):
        await made.kernel(f"other-{number}", "bob", demand={"gpus": 1.0})
        await made.cell(f"other-{number}", "bob")


async def test_where_both_suit_alike_it_starts_at_its_server(world):
    made, _ = await two(world)
    binding = await made.open("k", reach=["beta"])
    assert (binding["server"], machine(binding)) == ("alpha", "alpha")
    why = await made.call("GET", "sessions/k/why", server("alice"))
    assert {term["name"]: term["value"] for term in why["terms"]}["locality"] == 1.0


async def test_where_its_own_machine_is_full_it_starts_on_another(world):
    made, _ = await two(world)
    await fill(made)
    binding = await made.open("k", reach=["beta"], demand={"gpus": 1.0})
    assert (binding["server"], machine(binding)) == ("beta", "beta")


async def test_without_a_reach_it_stays_where_its_server_is(world):
    made, _ = await two(world)
    await fill(made)
    binding = await made.open("k", demand={"gpus": 1.0})
    assert (binding["server"], binding["devices"]) == (None, [])


async def test_who_wants_it_here_gets_it_here_or_waits(world):
    made, _ = await two(world)
    await fill(made)
    wants = {"gpus": 1.0, "constraints": {"server": "here"}}
    binding = await made.open("k", reach=["beta"], demand=wants)
    assert (binding["server"], binding["devices"]) == ("alpha", [])


async def test_who_names_another_machine_gets_that(world):
    made, _ = await two(world)
    binding = await made.open("k", reach=["beta"], demand={"constraints": {"server": "beta"}})
    assert binding["server"] == "beta"


async def test_what_runs_on_another_machine_stays_there_and_is_that_ones_agents(world):
    made, beta = await two(world)
    beta.pids["k"] = 4711
    await made.open("k", reach=["beta"], demand={"constraints": {"server": "beta"}})
    await made.call("POST", "sessions/k/started", server("alice"), {"pid": 4711, "started": 1.0})
    await made.settle()
    assert "k" in beta.attached
    assert "k" not in made.node.attached
    await made.cell("k")
    assert (await made.seen("k"))["server"] == "beta"
    await made.wait(600, step=60)
    assert (await made.seen("k"))["server"] == "beta"


async def test_a_restart_keeps_its_lease_and_machine(world):
    made, beta = await two(world)
    beta.pids["k"] = 4711
    spec = {"reach": ["beta"], "demand": {"gpus": 1.0, "constraints": {"server": "beta"}}}
    before = await made.open("k", **spec)
    await made.call("POST", "sessions/k/started", server("alice"), {"pid": 4711, "started": 1.0})
    await made.settle()
    after = await made.open("k", restart=True, **spec)
    assert (after["server"], after["devices"]) == ("beta", before["devices"])


async def test_a_machine_that_turned_out_to_be_out_of_reach_is_left(world):
    made, _ = await two(world)
    await made.open("k", reach=["beta"], demand={"gpus": 1.0, "constraints": {"server": "beta"}})
    binding = await made.open("k", reach=[], demand={"gpus": 1.0, "constraints": {"server": "beta"}})
    assert binding["devices"] == []
    free = (await made.status())["summary"]["free"]
    assert free == 4.0


async def test_a_broker_that_knows_nothing_of_it_takes_it_up_where_it_runs(world):
    made, beta = await two(world)
    beta.pids["k"] = 4711
    spec = {"id": "k", "user": "alice", "origin": "alice-lab", "label": "k", "server": "alpha", "reach": ["beta"]}
    told = {"spec": spec, "pid": 4711, "started": 1.0, "server": "beta", "devices": ["GPU-beta-0"]}
    await made.call("POST", "servers/alice-lab/alive", server("alice"), {"sessions": [told]})
    await made.settle()
    assert (await made.seen("k"))["server"] == "beta"
    assert "k" in beta.attached


async def test_a_reach_beyond_reason_is_refused(world):
    made, _ = await two(world)
    with pytest.raises(BadDemand):
        await made.open("k", reach=[f"server-{number}" for number in range(2000)])
