"""A kernel's life with its device, from its start to the proof of its end."""

from __future__ import annotations

import asyncio

import pytest

from jupyter_gpushare.broker.loop import turn
from jupyter_gpushare.broker.port import Settings
from jupyter_gpushare.core.policy import Policy
from jupyter_gpushare.errors import Conflict, NotAllowed
from jupyter_gpushare.model import Attach, Detach, Held, Process, Stop
from jupyter_gpushare.units import GIB

from .conftest import World, kernel, server


async def test_a_kernel_is_bound_at_once_and_leased_by_its_first_cell(world):
    w = await world()
    binding = await w.kernel("k1")
    assert (binding["state"], len(binding["devices"])) == ("bound", 1)
    assert (await w.seen("k1"))["devices"][0]["share"] == 0
    await w.cell("k1")
    seen = await w.seen("k1")
    assert seen["state"] == "active"
    assert seen["devices"][0]["share"] >= 0.1


@pytest.mark.parametrize("turns_without_a_node", [1, 2, 5])
async def test_a_start_before_the_first_report_is_answered_by_the_first_decision(clock, turns_without_a_node):
    """Even where the report comes between a turn that could not decide and the look at its outcome."""
    w = World(clock, Policy(), Settings(version="0"))
    await w.broker.start()
    for task in w.broker._tasks:
        task.cancel()
    starting = asyncio.ensure_future(w.open("k1"))
    for _ in range(turns_without_a_node):
        await asyncio.sleep(0)
        turn(w.broker)
    await w.bus.report(w.node.report())
    w.broker.pulse()  # as a second start of the same notebook would
    for _ in range(10):
        await asyncio.sleep(0)
    assert not starting.done()
    turn(w.broker)
    binding = await asyncio.wait_for(starting, 1)
    assert (binding["state"], len(binding["devices"])) == ("bound", 1)
    await w.broker.stop()


async def test_an_idle_holder_is_warned_parked_for_a_waiter_and_comes_back_with_its_memory(world):
    w = await world(Policy(idle_after_s=20, warn_before_s=5), devices=1)
    await w.kernel("k1", demand={"gpus": 0.6})
    await w.cell("k1", memory=60 * GIB)
    await w.cell_ends("k1")
    await w.kernel("k2", "bob", demand={"gpus": 0.6, "memory": 40 * GIB})
    await w.call("POST", "sessions/k2/hello", kernel("bob", "k2"))
    await w.wait(10)
    waiting = await w.call("POST", "sessions/k2/admit", kernel("bob", "k2"), {"wait_s": 0})
    assert (waiting["admitted"], waiting["queue_position"]) == (False, 1)
    assert (await w.seen("k1"))["state"] == "idle"
    for _ in range(30):
        await w.wait(1)
        w.broker.cluster.sessions["k2"].asked_at = w.clock()  # its kernel goes on asking
        if w.broker.cluster.sessions["k1"].warned:
            break
    seen = await w.seen("k1")
    assert seen["reclaim_in_s"] == pytest.approx(5, abs=1)
    assert "Someone is waiting" in seen["message"]
    await w.wait(6)
    parked = await w.seen("k1")
    assert (parked["state"], parked["parked_bytes"], parked["devices"]) == ("parked", 60 * GIB, [])
    admitted = await w.call("POST", "sessions/k2/admit", kernel("bob", "k2"), {"wait_s": 0})
    assert admitted["admitted"]
    await w.ends("k2", "bob")
    await w.call("POST", "sessions/k1/resume", server("alice"))
    await w.settle()
    back = await w.seen("k1")
    assert (back["state"], back["devices"][0]["memory_used"]) == ("idle", 60 * GIB) or back["state"] == "active"


async def test_a_holder_that_asks_for_more_memory_than_is_free_waits_at_its_next_cell_until_it_is(world):
    w = await world(Policy(idle_after_s=5, warn_before_s=1), devices=1)
    await w.kernel("k1", demand={"gpus": 0.25})
    await w.cell("k1", memory=50 * GIB)
    await w.cell_ends("k1")
    await w.kernel("k2", "bob", demand={"gpus": 0.25, "memory": 4 * GIB})
    await w.call("POST", "sessions/k2/hello", kernel("bob", "k2"))
    await w.cell("k2", "bob", memory=4 * GIB)
    await w.cell_ends("k2", "bob")
    await w.call("POST", "sessions/k1/pin", server("alice"), {"for_s": 100})
    await w.call("POST", "sessions/k2/request", server("bob"), {"memory": "60GiB"})
    waiting = await w.call("POST", "sessions/k2/admit", kernel("bob", "k2"), {"wait_s": 0})
    assert (waiting["admitted"], waiting["queue_position"]) == (False, 1)
    assert (await w.seen("k2", "bob"))["state"] == "waiting"
    await w.call("POST", "sessions/k1/unpin", server("alice"))
    for _ in range(20):
        await w.wait(1)
        w.broker.cluster.sessions["k2"].asked_at = w.clock()  # its kernel goes on asking
    assert (await w.seen("k1"))["state"] == "parked"
    assert (await w.call("POST", "sessions/k2/admit", kernel("bob", "k2"), {"wait_s": 0}))["admitted"]


async def test_a_restart_after_a_new_mig_layout_gets_one_of_the_new_instances(world):
    """A18: the instance it had is gone for good, with its name."""
    w = await world(devices=1)
    (old,) = w.node.uuids = ["MIG-a"]
    w.node.facts[old] = {"sharing": "mig"}
    await w.settle()
    await w.kernel("k1", demand={"gpus": 1})
    await w.cell("k1")
    w.node.uuids += ["MIG-c", "MIG-d"]
    w.node.facts |= {"MIG-c": {"sharing": "mig"}, "MIG-d": {"sharing": "mig"}}
    w.node.states[old] = "lost"
    await w.settle()
    assert (await w.seen("k1"))["state"] == "lost"
    again = await w.open("k1", demand={"gpus": 1}, restart=True)
    assert set(again["devices"]) < {"MIG-c", "MIG-d"}
    assert len((await w.open("k2", "bob", demand={"gpus": 1}))["devices"]) == 1
    assert (await w.open("k3", "bob", demand={"gpus": 1}))["devices"] == []


async def test_a_kernel_where_there_is_no_gpu_is_told_so(world):
    """A5"""
    w = await world(devices=0)
    await w.kernel("k1", demand={"gpus": 0})
    assert (await w.seen("k1"))["message"] == "Runs without a GPU: there is none here."


async def test_a_pinned_session_is_not_parked(world):
    w = await world(Policy(idle_after_s=5, warn_before_s=1), devices=1)
    await w.kernel("k1", demand={"gpus": 0.6})
    await w.cell("k1", memory=60 * GIB)
    await w.cell_ends("k1")
    await w.call("POST", "sessions/k1/pin", server("alice"), {"for_s": 100})
    await w.kernel("k2", "bob", demand={"gpus": 0.6, "memory": 40 * GIB})
    await w.call("POST", "sessions/k2/burst", server("bob"), {"phase": "start"})
    await w.wait(30)
    assert (await w.seen("k1"))["state"] == "idle"
    assert (await w.seen("k1"))["pinned_until_s"] == pytest.approx(70, abs=1)


async def test_a_park_that_the_node_refuses_is_harmless_and_not_tried_again_at_once(world):
    from jupyter_gpushare.model import Park

    w = await world(devices=1)
    await w.kernel("k1")
    await w.cell("k1")
    await w.cell_ends("k1")
    w.node.refuse.add(Park)
    await w.call("POST", "sessions/k1/park", server("alice"))
    await w.settle()
    seen = await w.seen("k1")
    assert seen["state"] in ("idle", "active")
    assert "It could not be parked: It would not." in seen["message"]
    assert w.broker.cluster.sessions["k1"].unparkable_until == pytest.approx(w.clock() + 120)


async def test_a_resume_that_the_node_refuses_leaves_it_parked_and_in_line(world):
    from jupyter_gpushare.model import Resume

    w = await world(devices=1)
    await w.kernel("k1")
    await w.cell("k1")
    await w.cell_ends("k1")
    await w.wait(3)
    await w.call("POST", "sessions/k1/park", server("alice"))
    await w.settle()
    w.node.refuse.add(Resume)
    await w.call("POST", "sessions/k1/resume", server("alice"))
    await w.settle()
    seen = await w.seen("k1")
    assert (seen["state"], seen["queue_position"]) == ("parked", 1)
    w.node.refuse.clear()
    await w.wait(6)
    assert (await w.seen("k1"))["state"] in ("idle", "active")


async def test_a_restart_keeps_lease_and_device(world):
    w = await world()
    await w.kernel("k1")
    await w.cell("k1")
    before = w.broker.cluster.sessions["k1"].devices
    w.node.dies("k1")
    again = await w.open("k1", restart=True)
    assert tuple(again["devices"]) == before
    await w.started("k1")
    session = w.broker.cluster.sessions["k1"]
    assert (session.leased, session.cells) == (True, 0)


async def test_silence_alone_ends_no_lease_but_silence_and_the_end_of_its_processes_do(world):
    w = await world(lease_ttl_s=15)
    await w.kernel("k1")
    await w.cell("k1")
    await w.wait(60, alive=False)
    assert w.broker.cluster.sessions["k1"].live
    w.node.dies("k1")
    await w.settle()
    assert not w.broker.cluster.sessions["k1"].live
    assert w.ledger.ended == [("k1", "silent")]


async def test_processes_that_are_gone_alone_end_no_lease_while_the_server_says_it_lives(world):
    w = await world(lease_ttl_s=15)
    await w.kernel("k1")
    await w.cell("k1")
    w.node.dies("k1")
    await w.wait(60)
    assert w.broker.cluster.sessions["k1"].live


async def test_cleanup_ends_a_lease_at_once_and_its_row_leaves_after_ten_minutes(world):
    w = await world()
    await w.kernel("k1")
    await w.cell("k1")
    await w.ends("k1")
    assert (await w.seen("k1"))["state"] == "dead"
    assert (await w.status())["summary"]["free"] == 2
    assert any(isinstance(command, Detach) for command in w.node.commands)
    await w.wait(601, step=300)
    assert (await w.status())["sessions"] == []


async def test_a_node_that_was_away_when_a_session_ended_is_told_of_it_when_it_is_back(world):
    w = await world()
    await w.kernel("k1")
    await w.cell("k1")
    await w.ends("k1")
    await w.kernel("k2")
    kept = (Held(session="k1"), Held(session="ended meanwhile", alive=False), Held(session="of a silent server"))
    w.node.held |= {held.session: held for held in kept}  # k1's end did not reach it, nor that of another
    w.node.attached |= {held.session for held in kept}
    await w.wait(2)
    assert set(w.node.held) == {"k2", "of a silent server"}


async def test_after_a_broker_restart_nothing_is_lent_twice_and_a_lease_goes_on_when_its_node_confirms_it(world):
    w = await world(devices=1)
    await w.kernel("k1", demand={"gpus": 1})
    await w.broker.stop()
    w.make()
    await w.broker.start()
    await w.broker.turned(lambda: True, 0)
    session = w.broker.cluster.sessions["k1"]
    assert (session.recovering, session.leased) == (True, True)
    other = await w.open("k2", "bob", demand={"gpus": 1})
    assert other["devices"] == []
    await w.settle()
    assert (session.recovering, session.leased) == (False, True)
    assert isinstance(next(c for c in reversed(w.node.commands) if isinstance(c, Attach)), Attach)


async def test_a_broker_restart_whose_kernels_died_with_their_server_leaves_no_ghost(world):
    w = await world(devices=1, lease_ttl_s=15)
    await w.kernel("k1", demand={"gpus": 1})
    await w.broker.stop()
    w.node.dies("k1")
    w.node.attached.clear()
    w.node.epoch = "2"
    w.make()
    await w.start()
    assert w.broker.cluster.sessions["k1"].live
    await w.wait(20, alive=False)
    assert not w.broker.cluster.sessions["k1"].live
    binding = await w.open("k2", "bob", demand={"gpus": 1})
    assert len(binding["devices"]) == 1


async def test_what_an_ended_server_left_blocks_its_device_is_shown_and_can_be_stopped(world):
    w = await world(devices=1)
    await w.kernel("k1")
    await w.cell("k1")
    await w.ends("k1")
    w.node.left["GPU-alpha-0"] = [Process(pid=77, session="k1", owner="alice", memory=GIB, why="leftover")]
    await w.settle()
    (own,) = (await w.status())["servers"][0]["devices"][0]["others"]
    assert own == {"pid": 77, "owner": "alice", "memory": GIB, "why": "leftover", "session": "k1"}
    (seen,) = (await w.status("bob"))["servers"][0]["devices"][0]["others"]
    assert (seen["pid"], seen["owner"], seen["session"]) == (None, None, None)
    whole = await w.open("k2", "bob", demand={"gpus": 1})
    assert whole["devices"] == []
    with pytest.raises(NotAllowed):
        await w.call("POST", "sessions/k1/stop", server("bob"))
    await w.call("POST", "sessions/k1/stop", server("alice"))
    await w.settle()
    assert any(isinstance(command, Stop) for command in w.node.commands)
    assert w.broker.cluster.sessions["k2"].leased


async def test_a_whole_demand_that_finds_no_room_starts_without_a_gpu_and_keeps_its_place(world):
    w = await world(devices=1, start_wait_s=0.1)
    await w.kernel("k1", demand={"gpus": 1})
    binding = await w.kernel("k2", "bob", demand={"gpus": 1}, wait_s=5)
    assert binding["devices"] == []
    assert "Your place in line is kept. Taking it when it is free needs a kernel restart." in binding["message"]
    assert (await w.seen("k2", "bob"))["queue_position"] == 1
    await w.ends("k1")
    assert (await w.seen("k2", "bob"))["next"]["code"] == "restart_ready"
    again = await w.open("k2", "bob", restart=True)
    assert len(again["devices"]) == 1


async def test_a_start_that_waits_is_answered_as_soon_as_there_is_room(world):
    w = await world(devices=1)
    await w.kernel("k1", demand={"gpus": 1})
    start = asyncio.ensure_future(w.open("k2", "bob", demand={"gpus": 1}, wait_s=10))
    await w.settle()
    assert not start.done()
    await w.ends("k1")
    assert len((await asyncio.wait_for(start, 5))["devices"]) == 1


async def test_a_client_that_gives_up_leaves_no_ticket_and_no_place_in_line(world):
    w = await world(devices=1)
    await w.kernel("k1", demand={"gpus": 1})
    start = asyncio.ensure_future(w.open("k2", "bob", demand={"gpus": 1}, wait_s=10, path="a.ipynb"))
    await w.settle()
    start.cancel()
    with pytest.raises(asyncio.CancelledError):
        await start
    assert (await w.status())["queue"] == []
    assert "k2" not in w.broker.cluster.sessions
    assert w.broker.cluster.tickets.get(("bob", "bob-lab", "a.ipynb")) is None
    assert w.broker.waits == {}


async def test_a_second_start_of_a_notebook_takes_over_the_place_of_the_first(world):
    w = await world(devices=1)
    await w.kernel("k1", demand={"gpus": 1})
    first = asyncio.ensure_future(w.open("k2", "bob", demand={"gpus": 1}, wait_s=10, path="a.ipynb"))
    await w.settle()
    since = w.broker.cluster.sessions["k2"].waiting_since
    w.clock.advance(30)
    second = asyncio.ensure_future(w.open("k3", "bob", demand={"gpus": 1}, wait_s=10, path="a.ipynb"))
    await w.settle()
    assert "took over" in (await asyncio.wait_for(first, 5))["message"]
    assert w.broker.cluster.sessions["k3"].waiting_since == since
    assert (await w.status("bob"))["queue"] == ["k3"]
    await w.ends("k1")
    assert len((await asyncio.wait_for(second, 5))["devices"]) == 1


async def test_a_fourth_start_of_one_server_does_not_wait_inside_its_request(world):
    w = await world(devices=1)
    await w.kernel("k0", demand={"gpus": 1})
    starts = [asyncio.ensure_future(w.open(f"k{n}", "bob", demand={"gpus": 1}, wait_s=10)) for n in (1, 2, 3)]
    await w.settle()
    fourth = await asyncio.wait_for(w.open("k4", "bob", demand={"gpus": 1}, wait_s=10), 3)
    assert fourth["devices"] == []
    assert not any(start.done() for start in starts)
    assert len((await w.status("bob"))["queue"]) == 4
    for start in starts:
        start.cancel()


async def test_stopping_the_broker_ends_its_waits_at_once(world):
    w = await world(devices=1)
    await w.kernel("k1", demand={"gpus": 1})
    start = asyncio.ensure_future(w.open("k2", "bob", demand={"gpus": 1}, wait_s=10))
    await w.settle()
    await w.broker.stop()
    assert (await asyncio.wait_for(start, 1))["devices"] == []


async def test_when_full_fail_says_so_and_starts_nothing(world):
    w = await world(devices=1, when_full="fail")
    await w.kernel("k1", demand={"gpus": 1})
    with pytest.raises(Conflict, match="No GPU is free for this kernel"):
        await w.open("k2", "bob", demand={"gpus": 1}, wait_s=10)
    assert (await w.status())["queue"] == []


async def test_a_server_that_was_forgotten_says_again_what_it_has(world):
    w = await world(devices=1)
    binding = await w.kernel("k1")
    w.ledger.open.clear()
    await w.broker.stop()
    w.make()
    await w.start()
    spec = {"id": "k1", "user": "alice", "origin": "alice-lab", "label": "a"}
    body = {"spec": spec, "pid": w.node.pids["k1"], "started": 1.0, "bursting": True, "devices": binding["devices"]}
    await w.call("POST", "servers/alice-lab/alive", server("alice"), {"sessions": [body]})
    await w.settle()
    seen = await w.seen("k1")
    assert (seen["state"], seen["devices"][0]["uuid"]) == ("active", binding["devices"][0])


async def test_a_notebook_that_is_renamed_keeps_its_place_in_line(world):
    w = await world(devices=1)
    await w.kernel("k1", demand={"gpus": 1})
    await w.kernel("k2", demand={"gpus": 1}, path="a.ipynb")
    await w.wait(60)
    spec = {"id": "k2", "user": "alice", "origin": "alice-lab", "label": "b.ipynb", "path": "b.ipynb"}
    body = {"spec": spec, "pid": w.node.pids["k2"], "started": 1.0}
    await w.call("POST", "servers/alice-lab/alive", server("alice"), {"sessions": [body]})
    assert w.ledger.open["k2"].path == "b.ipynb"

    await w.kernel("k3", demand={"gpus": 1}, path="a.ipynb")  # another notebook of the old name is another notebook
    assert (await w.status())["queue"] == ["k2", "k3"]
    await w.kernel("k4", demand={"gpus": 1}, path="b.ipynb")
    assert (await w.status())["queue"] == ["k4", "k3"]
    assert (await w.seen("k4"))["waiting_s"] >= 60


async def test_idle_begins_when_the_last_of_cell_and_gpu_use_ended(world):
    w = await world()
    await w.kernel("k1")
    await w.cell("k1")
    await w.cell_ends("k1")
    w.node.uses("k1", w.broker.cluster.sessions["k1"].devices[0], busy=0.9, idle_s=0.0)
    await w.settle()
    w.node.quiet("k1", 0.0)
    await w.wait(10)
    assert (await w.seen("k1"))["idle_s"] == pytest.approx(10, abs=0.2)


async def test_use_of_a_device_that_was_given_back_binds_the_session_to_it_again(world):
    w = await world()
    binding = await w.kernel("k1")
    await w.call("POST", "sessions/k1/release", server("alice"))
    assert (await w.seen("k1"))["state"] == "none"
    w.node.uses("k1", binding["devices"][0], busy=0.9)
    await w.settle()
    seen = await w.seen("k1")
    assert (seen["state"], seen["devices"][0]["uuid"]) == ("active", binding["devices"][0])


async def test_a_lost_device_is_told_to_its_holder_and_offered_to_nobody(world):
    w = await world(devices=1)
    await w.kernel("k1")
    await w.cell("k1")
    w.node.states["GPU-alpha-0"] = "lost"
    await w.settle()
    seen = await w.seen("k1")
    assert (seen["state"], seen["next"]["code"]) == ("lost", "restart")
    assert (await w.open("k2", "bob"))["devices"] == []


@pytest.mark.parametrize("used", [False, True])
async def test_a_cell_does_not_wait_for_a_device_that_is_lost(world, used):
    """A kernel that has used none yet gets another one; else its cell runs, and fails with its driver's words."""
    w = await world(Policy(idle_after_s=10, warn_before_s=2), devices=2)
    await w.kernel("k1")
    if used:
        await w.cell("k1")
        await w.cell_ends("k1")
        await w.wait(5)
        await w.call("POST", "sessions/k1/release", server("alice"))
        await w.settle()
        w.broker.cluster.sessions["k1"].released_at = None  # it asks again, for a lease that is not there yet
    (lost,) = w.broker.cluster.sessions["k1"].devices
    w.node.states[lost] = "lost"
    await w.settle()
    asking = asyncio.ensure_future(w.call("POST", "sessions/k1/admit", kernel("alice", "k1"), {"wait_s": 5}))
    await w.settle()
    answer = await asyncio.wait_for(asking, 5)
    assert answer["admitted"]
    assert answer["devices"] == ([] if used else [uuid for uuid in w.node.uuids if uuid != lost])


async def test_without_any_gpu_a_kernel_starts_and_is_told(world):
    w = await world(devices=0)
    binding = await w.open("k1")
    assert (binding["devices"], binding["state"]) == ([], "none")
    assert "Not granted. No GPU here is of the kind asked for." in binding["message"]


async def test_a_cell_that_waits_at_the_gate_goes_on_waiting_when_its_start_is_heard_of(world):
    w = await world(devices=1)
    await w.kernel("k1", demand={"gpus": 0.25})
    await w.cell("k1", memory=50 * GIB)
    await w.kernel("k2", "bob", demand={"gpus": 0.25, "memory": 60 * GIB})
    await w.call("POST", "sessions/k2/hello", kernel("bob", "k2"))
    await w.call("POST", "sessions/k2/admit", kernel("bob", "k2"), {"wait_s": 0})
    await w.call("POST", "sessions/k2/burst", server("bob"), {"phase": "start"})
    await w.settle()
    assert (await w.seen("k2", "bob"))["state"] == "waiting"
    again = await w.call("POST", "sessions/k2/admit", kernel("bob", "k2"), {"wait_s": 0})
    assert (again["admitted"], again["queue_position"]) == (False, 1)


async def test_a_release_holds_though_the_device_was_in_use_a_moment_before(world):
    w = await world(devices=1)
    await w.kernel("k1")
    await w.cell("k1", memory=4 * GIB)
    await w.call("POST", "sessions/k1/release", server("alice"))
    await w.cell_ends("k1")
    for _ in range(5):
        await w.call("POST", "sessions/k1/burst", server("alice"), {"phase": "start"})
        await w.call("POST", "sessions/k1/burst", server("alice"), {"phase": "end"})
        await w.wait(0.5)
    seen = await w.seen("k1")
    assert seen["state"] in ("bound", "none")
    assert [device["share"] for device in seen["devices"]] in ([], [0])
    await w.wait(5)
    w.node.uses("k1", w.broker.cluster.sessions["k1"].devices[0], 4 * GIB, 0.9)
    await w.settle()
    assert (await w.seen("k1"))["state"] == "active"  # using the device is asking for it


async def test_usage_goes_to_the_ledger_with_its_users_group(world):
    w = await world(groups={"alice": "vision"})
    for name, user in (("k1", "alice"), ("k2", "bob")):
        await w.kernel(name, user)
        await w.cell(name, user)
    await w.wait(10)
    assert {(row.user, row.group) for row in w.ledger.rows} == {("alice", "vision"), ("bob", None)}
