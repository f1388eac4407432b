"""A broker of many servers asks for what only says again what is known more seldom."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from jupyter_gpushare.broker import pace
from jupyter_gpushare.model import Caller


def lab(number: int) -> Caller:
    return Caller(user=f"u{number}", role="server", origin=f"lab-{number}")


async def test_few_servers_say_every_second_that_something_computes_and_many_as_often_as_one_broker_can_hear(world):
    w = await world()
    assert await w.bus.report(w.node.report()) == 1.0
    for number in range(999):
        answer = await w.bus.report(replace(w.node.report(), server=f"node-{number}", devices=(), held=()))
    assert answer == pytest.approx(5.0, abs=0.01)


async def test_few_users_servers_say_that_they_live_every_five_seconds_and_thousands_more_seldom(world):
    w = await world(lease_ttl_s=15.0)

    async def alive(number: int) -> float:
        answer = await w.call("POST", f"servers/lab-{number}/alive", lab(number), {"sessions": []})
        again_s: float = answer["again_s"]
        return again_s

    assert await alive(0) == 5.0
    for number in range(1, 1000):
        again_s = await alive(number)
    assert again_s == 10.0
    w.clock.advance(29)
    assert await alive(0) == 10.0
    pace.forget(w.broker, w.clock())
    w.clock.advance(2)  # longer than three signs of life
    pace.forget(w.broker, w.clock())
    assert await alive(0) == 5.0


async def test_a_session_whose_server_speaks_more_seldom_ends_later(world):
    w = await world(lease_ttl_s=15.0)
    await w.kernel("k1")
    for number in range(1000):
        await w.call("POST", f"servers/lab-{number}/alive", lab(number), {"sessions": []})
    w.node.dies("k1")
    await w.wait(20, alive=False)
    assert w.broker.cluster.sessions["k1"].live
    await w.wait(15, alive=False)
    assert w.broker.cluster.sessions["k1"].end_why == "silent"


async def test_what_computes_without_a_cell_computes_until_its_node_says_otherwise(world):
    w = await world()
    await w.kernel("k1")
    await w.cell("k1")
    await w.cell_ends("k1")
    for number in range(999):
        await w.bus.report(replace(w.node.report(), server=f"node-{number}", devices=(), held=()))
    w.node.uses("k1", w.broker.cluster.sessions["k1"].devices[0], busy=0.9, idle_s=0.0)
    await w.settle()
    session = w.broker.cluster.sessions["k1"]
    w.clock.advance(5)  # nothing is heard for as long as was asked for
    assert session.bursting(w.clock())
    w.node.quiet("k1", 0.1)
    await w.settle()
    w.clock.advance(2.5)
    assert not session.bursting(w.clock())


@pytest.mark.parametrize("heard_s", [1.0, 5.0])
async def test_what_was_known_to_compute_and_is_not_heard_of_again_computes_no_more(world, heard_s):
    w = await world()
    await w.kernel("k1")
    await w.cell("k1")
    await w.cell_ends("k1")
    w.node.uses("k1", w.broker.cluster.sessions["k1"].devices[0], busy=0.9, idle_s=0.0)
    await w.settle()
    session = w.broker.cluster.sessions["k1"]
    session.heard_s = heard_s
    w.clock.advance(heard_s + 0.9)
    assert session.bursting(w.clock())
    w.clock.advance(0.2)
    assert not session.bursting(w.clock())
