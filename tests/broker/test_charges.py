"""What users are charged beyond the shares they hold."""

from __future__ import annotations

import msgspec
import pytest

from jupyter_gpushare.core.policy import Policy
from jupyter_gpushare.model import Process, Stop

ONE = "GPU-alpha-0"


async def sharers(world, used_by_a: float | None, devices: int = 1):
    """Alice and Bob at half of one device each, both computing; what Alice's is seen to use."""
    w = await world(devices=devices)
    for name, user in (("a", "alice"), ("b", "bob")):
        await w.kernel(name, user, demand={"gpus": 0.5})
        await w.cell(name, user, busy=0.3)
    held = w.node.held["a"]
    w.node.held["a"] = msgspec.structs.replace(held, utilization={ONE: used_by_a})
    await w.wait(150, step=5)  # long against the window over which use is smoothed
    before = {user: use.seconds for user, use in w.broker.cluster.usage.items()}
    charged = {name: w.broker.cluster.sessions[name].charged_gpu_s for name in ("a", "b")}
    await w.wait(200, step=5)
    usage = {user: use.seconds - before.get(user, 0.0) for user, use in w.broker.cluster.usage.items()}
    return w, usage, {name: w.broker.cluster.sessions[name].charged_gpu_s - charged[name] for name in charged}


async def test_what_one_of_two_sharers_uses_beyond_its_share_is_shown_and_charged(world):
    """F13: a fraction of a time-sliced device is a target; nothing enforces it, and nothing says so."""
    w, usage, charged = await sharers(world, 0.7)

    (device,) = (await w.seen("a"))["devices"]
    assert (device["share"], device["utilization"]) == (0.5, 0.7)
    assert charged == {"a": pytest.approx(0.7 * 200, rel=0.05), "b": pytest.approx(0.5 * 200, rel=0.01)}
    assert usage["alice"] == pytest.approx(0.2 * 200, rel=0.2)
    assert usage["bob"] == 0.0  # nobody waits for what he holds
    (shown,) = (await w.status())["servers"][0]["devices"]
    assert (shown["sharing"], shown["enforced"]) == ("timeslice", "target")
    assert "isolat" not in str(await w.status(admin=True))


async def test_use_beyond_a_share_that_is_unknown_is_not_charged(world):
    _, usage, charged = await sharers(world, None)
    assert charged["a"] == pytest.approx(0.5 * 200, rel=0.01)
    assert usage["alice"] == 0.0


async def test_use_beyond_ones_guarantee_while_alone_costs_nobody_anything(world):
    w = await world(devices=1)
    await w.kernel("a", demand={"gpus": 0.1})
    await w.cell("a", busy=0.9)
    await w.wait(60)
    assert w.broker.cluster.usage["alice"].seconds == 0.0


async def test_a_device_that_was_not_given_is_charged_to_who_uses_it_and_told_to_who_holds_it(world):
    """C9: its user took the mask out of the environment."""
    w = await world(devices=2)
    await w.kernel("b", "bob", demand={"gpus": 0.9})
    await w.cell("b", "bob")
    (here,) = (device["uuid"] for device in (await w.seen("b", "bob"))["devices"])
    (there,) = set(w.node.uuids) - {here}
    await w.kernel("a", demand={"gpus": 0.9})
    await w.cell("a", busy=0.0)
    assert [device["uuid"] for device in (await w.seen("a"))["devices"]] == [there]
    held = w.node.held["a"]
    w.node.held["a"] = msgspec.structs.replace(
        held, devices=(there, here), utilization={there: 0.0, here: 0.4}, memory_used={there: 1, here: 1}
    )
    before = w.broker.cluster.sessions["a"].charged_gpu_s
    await w.wait(100)

    assert w.broker.cluster.usage["alice"].seconds == pytest.approx(0.4 * 100, rel=0.05)
    off = [row for row in w.ledger.rows if (row.user, row.device) == ("alice", here)]
    assert sum(row.gpu_s for row in off) == pytest.approx(40, rel=0.05)
    assert w.broker.cluster.sessions["a"].charged_gpu_s - before > 40
    assert "without a share of it" in (await w.seen("b", "bob"))["message"]
    assert "alice" not in (await w.seen("b", "bob"))["message"]

    w.node.held["a"] = held
    await w.wait(2)
    assert "without a share" not in (await w.seen("b", "bob"))["message"]
    assert not w.broker.cluster.off_lease


async def test_who_used_what_it_was_not_given_and_ended_is_forgotten(world):
    w = await world(devices=2)
    await w.kernel("a", demand={"gpus": 0.5})
    await w.cell("a")
    w.node.held["a"] = msgspec.structs.replace(w.node.held["a"], devices=tuple(w.node.uuids))
    await w.wait(2)
    assert w.broker.cluster.off_lease == {"a"}
    await w.ends("a")
    await w.wait(2)
    assert not w.broker.cluster.off_lease


async def strayed(world, **settings):
    """Alice's kernel computes on Bob's device, too."""
    w = await world(Policy(stop_warn_s=60), devices=2, **settings)
    await w.kernel("b", "bob", demand={"gpus": 0.9})
    await w.cell("b", "bob")
    await w.kernel("a", demand={"gpus": 0.9})
    await w.cell("a")
    here = w.broker.cluster.sessions["b"].devices[0]
    held = w.node.held["a"]
    w.node.held["a"] = msgspec.structs.replace(held, devices=(*held.devices, here))
    w.node.left[here] = [Process(pid=w.node.pids["a"], session="a", owner="alice", why="off-lease")]
    await w.wait(5)
    return w, held, here


async def test_who_uses_what_was_not_given_is_told_where_the_admin_wants_it(world):
    w, held, here = await strayed(world, off_lease="warn")
    assert "which it was not given. It is charged to you." in (await w.seen("a"))["message"]
    await w.wait(120)
    assert not [command for command in w.node.commands if isinstance(command, Stop)]
    w.node.held["a"], w.node.left[here] = held, []
    await w.wait(60)
    assert "not given" not in (await w.seen("a"))["message"]


async def test_by_default_nobody_is_told_what_is_only_charged(world):
    w, *_ = await strayed(world)
    assert "not given" not in (await w.seen("a"))["message"]


async def test_what_uses_a_device_that_was_not_given_is_ended_after_its_notice_where_the_admin_wants_it(world):
    w, _, here = await strayed(world, off_lease="stop")
    assert "is ended in 5" in (await w.seen("a"))["message"]
    assert not [command for command in w.node.commands if isinstance(command, Stop)]
    await w.wait(56)
    stops = [command for command in w.node.commands if isinstance(command, Stop)]
    assert [(stop.session, stop.pid) for stop in stops] == [("a", w.node.pids["a"])]
    assert w.node.left[here] == []


async def test_what_goes_away_before_its_notice_is_over_is_left_alone(world):
    w, held, here = await strayed(world, off_lease="stop")
    w.node.held["a"], w.node.left[here] = held, []
    await w.wait(120)
    assert not [command for command in w.node.commands if isinstance(command, Stop)]
