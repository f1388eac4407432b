"""Who may ask what, with which body, and what each caller gets to see."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpushare.broker import view
from jupyter_gpushare.broker.bodies import parsed
from jupyter_gpushare.broker.loop import turn
from jupyter_gpushare.broker.port import Settings
from jupyter_gpushare.broker.records import Cluster, DeviceRecord, Placement, ServerRecord, Session
from jupyter_gpushare.broker.stream import diff
from jupyter_gpushare.broker.verbs import Ask
from jupyter_gpushare.core.policy import Policy
from jupyter_gpushare.errors import BadDemand, Conflict, NeedsRestart, NotAllowed, NotFound, OverLimit
from jupyter_gpushare.model import Caller, Demand, Device, Process

from .conftest import kernel, server

ALICE, BOB = Caller(user="alice"), Caller(user="bob")
ADMIN = Caller(user="root", admin=True)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b'{"gpu": 2}', "gpu: no such field; there are"),
        (b'{"gpus": "two"}', "gpus: expected `float"),
        (b'{"gpus": 1.5}', "gpus: 1.5 is not usable"),
        (b'{"constraints": {"modell": "A100"}}', "constraints.modell: no such field"),
        (b'{"memory": "20 parsecs"}', "memory: '20 parsecs' is not a size"),
        (b"[1]", "body: not a JSON object"),
        (b"{", "body: not JSON"),
        (b"[" * 100_000, "body: nested deeper than is read"),
        (b'{"gpus": 1e308}', "gpus: 1e+308 is not usable; at most 65536"),
        (
            b'{"memory": 99999999999999999999999999}',
            "memory: 100000000000000004764729344 is not usable; it must be below",
        ),
        (b'{"memory": "81GiB"}', "memory: 81.0 GiB is more than any GPU here has; the largest has 80.0 GiB."),
        (b'{"near": ["x"]}', "near: 'x' is not usable"),
        (b'{"gpus": 1, "gpus_max": 4}', "gpus_max: 4 cannot be followed: the number of GPUs of a running kernel is"),
        (b'{"cpus": 4}', "cpus: 4.0 cannot be followed: a kernel runs where its server does"),
        (b'{"host_memory": "20GiB"}', "host_memory: 21474836480 cannot be followed: a kernel runs where its server"),
        (b'{"spread": true}', "spread: True is not usable; a pool has it"),
        (b'{"near": [' + b'"data:/x", ' * 32 + b'"data:/x"]}', "near: 33 places are too many; at most 32"),
    ],
)
async def test_a_request_that_cannot_be_used_names_the_field(world, body, said):
    w = await world()
    await w.kernel("k1")
    with pytest.raises(BadDemand) as caught:
        await w.broker.call(ALICE, "POST", "sessions/k1/request", {}, body)
    assert str(caught.value).startswith(said)


async def test_every_field_that_is_shown_of_a_demand_can_be_asked_for_again(world):
    w = await world()
    await w.kernel("k1")
    shown = (await w.call("GET", "sessions/k1", ALICE))["demand"]
    assert set(shown) == set(Demand.__struct_fields__)
    await w.call("POST", "sessions/k1/request", ALICE, shown)
    assert w.broker.cluster.sessions["k1"].demand == msgspec.convert(shown, Demand)


@pytest.mark.parametrize("instant", ["1e400", "nan", "-1", "1e300", "x"])
async def test_a_history_from_no_real_instant_is_refused_before_the_ledger_is_asked(world, instant):
    w = await world()
    with pytest.raises(BadDemand, match=r"to: .* is not a number of seconds since 1970"):
        await w.broker.call(ALICE, "GET", "history", {"from": "0", "to": instant}, b"")


async def test_only_owners_and_admins_may_touch_a_session(world):
    w = await world()
    await w.kernel("k1")
    for verb in ("release", "park", "resume", "unpin", "stop"):
        with pytest.raises(NotAllowed):
            await w.call("POST", f"sessions/k1/{verb}", BOB)
    with pytest.raises(NotAllowed):
        await w.call("GET", "sessions/k1", kernel("alice", "k2"))
    with pytest.raises(NotAllowed):
        await w.call(
            "PUT", "sessions/k9", server("bob"), {"id": "k9", "user": "alice", "origin": "bob-lab", "label": ""}
        )
    with pytest.raises(NotAllowed):
        await w.call("POST", "sessions/k1/started", ALICE, {"pid": 1, "started": 1.0})
    with pytest.raises(NotAllowed):
        await w.call("POST", "devices/GPU-alpha-0/drain", ALICE)
    with pytest.raises(NotFound):
        await w.call("GET", "sessions/none", ALICE)
    assert (await w.call("POST", "sessions/k1/release", ADMIN))["state"] == "none"
    assert ("bob", "POST sessions/{id}/park", "not_allowed") in w.ledger.audits
    assert ("root", "POST sessions/{id}/release", "ok") in w.ledger.audits


async def test_an_admin_does_not_speak_as_a_server_or_a_kernel(world):
    w = await world()
    await w.kernel("k1")
    for what, body in (("ended", {"why": "cleanup"}), ("burst", {"phase": "start"}), ("hello", {})):
        with pytest.raises(NotAllowed):
            await w.call("POST", f"sessions/k1/{what}", ADMIN, body)
    assert w.broker.cluster.sessions["k1"].live


async def test_a_kernel_stops_no_other_session_of_its_user(world):
    w = await world()
    await w.kernel("k1")
    for name in ("k1", "what-an-ended-server-left"):
        with pytest.raises(NotAllowed):
            await w.call("POST", f"sessions/{name}/stop", kernel("alice", "k2"))
    assert w.broker.cluster.sessions["k1"].stop_asked is None


async def test_a_kernel_sees_only_itself(world):
    w = await world()
    await w.kernel("k1")
    await w.kernel("k2")
    seen = await w.call("GET", "status", kernel("alice", "k1"))
    assert [session["id"] for session in seen["sessions"]] == ["k1"]


async def test_a_share_changes_at_once_and_a_second_gpu_needs_a_restart(world):
    w = await world()
    await w.kernel("k1")
    await w.cell("k1")
    await w.call("POST", "sessions/k1/request", ALICE, {"gpus": 0.5, "memory": "20GiB"})
    await w.settle()
    seen = await w.seen("k1")
    assert (seen["guarantee"], seen["demand"]["memory"]) == (0.5, 20 * 2**30)
    with pytest.raises(NeedsRestart, match="A running kernel cannot get 2 GPUs"):
        await w.call("POST", "sessions/k1/request", ALICE, {"gpus": 2})


async def test_what_needs_a_restart_can_be_reserved_and_the_restart_gets_it(world):
    w = await world(devices=3)
    await w.kernel("k1")
    await w.cell("k1")
    await w.call("POST", "sessions/k1/request", ALICE, {"gpus": 2, "apply": "restart"})
    await w.settle()
    seen = await w.seen("k1")
    assert (seen["next"]["code"], len(seen["devices"])) == ("restart_ready", 1)
    w.node.dies("k1")
    binding = await w.open("k1", restart=True)
    assert len(binding["devices"]) == 2
    await w.started("k1")
    assert w.broker.cluster.sessions["k1"].owns
    assert w.broker.cluster.reservations == {}


async def test_more_than_the_limit_is_refused_and_what_one_has_is_kept(world):
    w = await world(devices=4, max_devices_per_user=2)
    await w.kernel("k1", demand={"gpus": 1})
    with pytest.raises(OverLimit, match=r"You asked for 4 GPUs; your limit is 2\. You keep the 1 you have\."):
        await w.call("POST", "sessions/k1/request", ALICE, {"gpus": 4})
    await w.kernel("k2", demand={"gpus": 1})
    third = await w.open("k3", demand={"gpus": 1})
    assert third["devices"] == []
    assert third["message"] == "Not granted. You asked for 1 GPU; your limit is 2."


async def test_a_guarantee_that_does_not_fit_beside_the_others_is_a_conflict_and_changes_nothing(world):
    w = await world(devices=1)
    for name, user in (("k1", "alice"), ("k2", "bob")):
        await w.kernel(name, user, demand={"gpus": 0.5})
        await w.cell(name, user)
    with pytest.raises(Conflict, match=r"gpus: 0\.8 is more than the 0\.5 of GPU 0 that is free"):
        await w.call("POST", "sessions/k1/request", ALICE, {"gpus": 0.8})
    assert (await w.seen("k1"))["guarantee"] == 0.5


async def test_the_demand_chosen_for_a_notebook_holds_for_its_next_kernel(world):
    w = await world(devices=2)
    await w.call("PUT", "demands/work/a b.ipynb", ALICE, {"gpus": 2})
    assert len((await w.kernel("k1", path="work/a b.ipynb"))["devices"]) == 2
    assert len((await w.kernel("k2", path="work/a b.ipynb"))["devices"]) <= 1


async def test_of_a_user_the_latest_200_chosen_demands_are_remembered(world):
    w = await world()
    await w.call("PUT", "demands/bob.ipynb", BOB, {"gpus": 0.3})
    for number in range(200):
        await w.call("PUT", f"demands/{number}.ipynb", ALICE, {"gpus": 0.5})
    await w.call("PUT", "demands/0.ipynb", ALICE, {"gpus": 0.7})  # said again: no longer the oldest
    await w.call("PUT", "demands/new.ipynb", ALICE, {"gpus": 0.9})

    demands = w.broker.cluster.demands
    assert len([path for user, path in demands if user == "alice"]) == 200
    assert ("alice", "1.ipynb") not in demands
    assert demands["alice", "0.ipynb"].gpus == 0.7
    assert demands["alice", "new.ipynb"].gpus == 0.9
    assert demands["bob", "bob.ipynb"].gpus == 0.3


async def test_a_constraint_is_lifted_by_any_or_nothing_and_the_other_one_stays(world):
    w = await world()

    async def asked(**constraints) -> dict[str, str | None]:
        answer = await w.broker.call(
            ALICE, "POST", "sessions/k1/request", {}, msgspec.json.encode({"constraints": constraints})
        )
        assert answer.status == 202
        return (await w.seen("k1"))["demand"]["constraints"]

    await w.kernel("k1")
    server = w.broker.cluster.server_of(w.broker.cluster.sessions["k1"])
    assert await asked(model="A100", server=server) == {"model": "A100", "server": server}
    assert await asked(model="any") == {"model": None, "server": server}
    assert await asked(model="A100", server="") == {"model": "A100", "server": None}
    assert await asked(model=None) == {"model": None, "server": None}


@pytest.mark.parametrize("pid", [0, -1, 2**31])
async def test_a_process_id_that_can_be_none_is_refused_naming_the_field(world, pid):
    w = await world()
    await w.kernel("k1")
    spec = {"id": "k1", "user": "alice", "origin": "alice-lab", "label": ""}

    with pytest.raises(BadDemand, match=r"^pid: expected `int`"):
        await w.call("POST", "sessions/k1/started", server("alice"), {"pid": pid, "started": 1.0})
    with pytest.raises(BadDemand, match=r"^sessions\[0\]\.pid: expected `int`"):
        await w.call(
            "POST",
            "servers/alice-lab/alive",
            server("alice"),
            {"sessions": [{"spec": spec, "pid": pid, "started": 1.0}]},
        )
    assert w.broker.cluster.sessions["k1"].pid not in (0, -1)


async def test_why_names_terms_and_alternatives(world):
    w = await world()
    await w.kernel("k1")
    why = await w.call("GET", "sessions/k1/why", ALICE)
    assert {"compute", "data"} <= {term["name"] for term in why["terms"]}
    assert len(why["alternatives"]) == 1
    assert why["decided"][-1]["act"] == "place"


async def test_why_keeps_what_a_device_was_chosen_over_once_its_session_has_a_context_and_is_leased_there(world):
    w = await world()
    await w.kernel("k1")
    w.broker.cluster.sessions["k1"].cooperative = False  # tied to where it is
    await w.cell("k1")
    why = await w.call("GET", "sessions/k1/why", ALICE)
    assert [decision["lease"] for decision in why["decided"] if decision["act"] == "place"] == [True, False]
    assert len(why["alternatives"]) == 1


async def test_an_estimate_is_zero_where_a_device_is_free_and_null_where_nothing_is_known(world):
    w = await world(devices=1)
    assert (await w.call("POST", "estimate", ALICE, {"gpus": 1})) == {"eta_s": 0.0}
    await w.kernel("k1", demand={"gpus": 1})
    assert (await w.call("POST", "estimate", ALICE, {"gpus": 1})) == {"eta_s": None}


async def test_status_since_the_present_revision_has_nothing_to_say(world):
    w = await world()
    await w.broker.stop()
    rev = (await w.status())["rev"]
    reply = await w.broker.call(ALICE, "GET", "status", {"since": str(rev)})
    assert (reply.status, reply.body) == (204, None)


async def test_a_drained_device_takes_nobody_new(world):
    w = await world(devices=1)
    await w.call("POST", "devices/GPU-alpha-0/drain", ADMIN)
    assert (await w.open("k1"))["devices"] == []
    await w.call("POST", "devices/GPU-alpha-0/undrain", ADMIN)
    await w.settle()
    assert w.broker.cluster.sessions["k1"].placements


async def test_a_move_parks_here_and_resumes_there(world):
    w = await world()
    await w.kernel("k1")
    await w.cell("k1")
    await w.cell_ends("k1")
    (old,) = w.broker.cluster.sessions["k1"].devices
    (new,) = set(w.node.uuids) - {old}
    await w.call("POST", "sessions/k1/move", ALICE, {"device": new})
    await w.settle()
    seen = await w.seen("k1")
    assert [device["uuid"] for device in seen["devices"]] == [new]
    assert "Nothing was lost." in seen["message"]


async def test_a_decision_that_cannot_be_carried_out_does_not_end_the_loop(world, caplog):
    w = await world()
    await w.open("k1")
    session = w.broker.cluster.sessions["k1"]
    session.aside_until = None  # whatever bug: each turn stumbles over it
    turn(w.broker)
    assert w.broker.failing is not None
    session.aside_until = 0.0
    turn(w.broker)
    assert w.broker.failing is None
    assert caplog.text.count("No decision could be made") == 1


async def test_a_decision_that_fails_is_told_tried_again_and_harms_nobody(world, caplog):
    w = await world()
    await w.kernel("k1")
    w.broker.policy = None  # whatever bug: nothing can be decided with this
    w.broker.cluster.sessions["k1"].waiting_since = w.clock()
    turn(w.broker)
    assert w.broker.failing is not None
    w.broker.policy = Policy()
    turn(w.broker)
    assert w.broker.failing is None
    assert caplog.text.count("No decision could be made") == 1


async def test_the_stream_brings_a_viewer_up_to_date_and_patches_lead_to_the_same_view(world):
    w = await world()
    stream = w.broker.stream(ALICE)
    first = await anext(stream)
    assert first.event == "status"
    seen: Any = json.loads(msgspec.json.encode(first.data))
    await w.kernel("k1")
    last = first.id
    while "k1" not in seen["sessions"]:
        event = await anext(stream)
        assert event.id > last
        last = event.id
        if event.event == "patch":
            seen = merged(seen, json.loads(msgspec.json.encode(event.data)))
    await stream.aclose()
    assert seen["sessions"]["k1"]["state"] == "bound"
    again = w.broker.stream(ALICE, last)
    await w.cell("k1")
    event = await anext(again)
    assert event.event in ("patch", "decision")
    await again.aclose()


async def test_a_server_follows_the_gates_of_its_own_users_kernels_and_nothing_else(world):
    w = await world(devices=1)
    await w.kernel("k1")
    await w.kernel("k2", "bob")
    stream = w.broker.stream(server("alice"))
    first = await anext(stream)
    assert first.data == {"rev": first.id, "sessions": {"k1": {"gate": "ask"}}}
    await w.cell("k1")
    told = [await anext(stream)]
    while told[-1].event != "patch":
        told.append(await anext(stream))
    await stream.aclose()
    assert told[-1].data["sessions"] == {"k1": {"gate": "open"}}
    assert {event.data["session"] for event in told[:-1]} == {"k1"}


async def test_decisions_are_told_to_their_owner_and_to_admins_only(world):
    w = await world()
    streams = {name: w.broker.stream(caller) for name, caller in (("a", ALICE), ("b", BOB), ("root", ADMIN))}
    for stream in streams.values():
        await anext(stream)
    await w.kernel("k1")
    channels = w.broker.streams.channels
    told = {key[0]: [e.event for e in channel.events if e.event == "decision"] for key, channel in channels.items()}
    assert (bool(told["alice"]), told["bob"], bool(told["root"])) == (True, [], True)
    for stream in streams.values():
        await stream.aclose()


def merged(target: Any, patch: Any) -> Any:
    """RFC 7386, as a client does it."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merged(result.get(name), value)
    return result


def bare(view: Any) -> Any:
    """Without nulls, which a merge patch cannot carry."""
    if isinstance(view, dict):
        return {name: bare(value) for name, value in view.items() if value is not None}
    return view


values = st.recursive(
    st.none() | st.integers(0, 3) | st.text(max_size=2),
    lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)
views = st.dictionaries(st.sampled_from("abcd"), values, max_size=4)


@given(views, views)
def test_a_merge_patch_turns_any_view_into_the_next(before, after):
    assert bare(merged(bare(before), diff(before, after))) == bare(after)


names = st.text(st.characters(codec="utf-8", exclude_categories=("Cs",)), min_size=6, max_size=12)


@given(st.tuples(names, names, names, names).filter(lambda t: len(set(t)) == 4), st.booleans())
def test_nobody_reads_of_others_who_they_are_or_what_they_run(secret, waiting):
    user, label, session, path = ("zz" + part + "zz" for part in secret)
    cluster = Cluster()
    cluster.servers["alpha"] = ServerRecord("alpha", "1", 0.0)
    left = Process(pid=4711, session=session, owner=user, memory=1, why="leftover")
    cluster.devices["GPU-1"] = DeviceRecord("alpha", Device(uuid="GPU-1", index=0, model="A", processes=(left,)), 0.0)
    theirs = Session(session, user, "lab-" + user, label, path, "alpha", Demand(), None, 0.0)
    theirs.placements = {"GPU-1": Placement("GPU-1", lease=True, share=0.25)}
    theirs.waiting_since = 0.0 if waiting else None
    cluster.sessions[session] = theirs
    frame = view.Frame(cluster, Settings(), Policy(), 1.0)
    text = msgspec.json.encode(view.status(frame, Caller(user="alice"))).decode()
    for part in (user, label, session, path):
        assert json.dumps(part)[1:-1] not in text
        assert part not in text
    assert "4711" not in text
    assert json.loads(text)["servers"][0]["devices"][0]["other_shares"] == [0.25]
    assert json.loads(text)["queue"] == ([None] if waiting else [])
    assert label in json.loads(msgspec.json.encode(view.status(frame, ADMIN)))["sessions"][0]["label"]


def test_a_device_that_was_never_read_has_no_age_and_no_zeroes():
    cluster = Cluster()
    cluster.servers["alpha"] = ServerRecord("alpha", "1", 0.0)
    cluster.devices["GPU-1"] = DeviceRecord("alpha", Device(uuid="GPU-1", index=0, model="A", state="unknown"), 0.0)
    seen = view.status(view.Frame(cluster, Settings(), Policy(), 1.0), ALICE).servers[0].devices[0]
    assert (seen.age_s, seen.utilization, seen.memory_used, seen.power_w) == (None, None, None, None)


def test_a_body_is_parsed_with_what_its_path_says():
    assert parsed(b"", Ask) == Ask()
