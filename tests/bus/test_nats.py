"""The bus over a real nats-server: presence, the leader, what is refused, and bad days."""

from __future__ import annotations

import asyncio
import signal

import msgspec
import pytest

nats_client = pytest.importorskip("nats")

from jupyter_gpushare.bus import nats as bus_nats  # noqa: E402
from jupyter_gpushare.bus import wire  # noqa: E402
from jupyter_gpushare.errors import Unavailable  # noqa: E402
from jupyter_gpushare.model import CommandResult, NodeReport, Trim  # noqa: E402
from tests.bus.test_bus import answered, told  # noqa: E402


def report(seq: int, server: str = "alpha", epoch: str = "e", **more) -> NodeReport:
    return NodeReport(server=server, epoch=epoch, seq=seq, **more)


async def until(what, timeout_s: float = 20.0):
    deadline = asyncio.get_running_loop().time() + timeout_s
    while True:
        found = what()
        found = await found if asyncio.iscoroutine(found) else found
        if found:
            return found
        assert asyncio.get_running_loop().time() < deadline
        await asyncio.sleep(0.05)


def answers(message: str = ""):
    async def carry_out(command):
        return CommandResult(ok=True, message=message)

    return carry_out


@pytest.fixture
def quick(monkeypatch):
    """Presence that runs out in a second."""
    monkeypatch.setattr(bus_nats, "TTL_S", 1.0)


# --- away and back ---


async def test_a_report_that_nobody_takes_in_is_unavailable_at_once(connect):
    node = await connect()
    with pytest.raises(Unavailable):
        await node.report(report(1))


async def test_a_restarted_nats_server_is_found_again_by_both_sides(connect, nats):
    broker, node, seen = await connect(), await connect(), []
    broker.on_report(lambda report: seen.append(report.seq))
    node.serve("alpha", answers())
    await told(node, report(1))

    nats.stop(signal.SIGKILL)
    await until(lambda: node.trouble and broker.trouble)
    with pytest.raises(Unavailable):
        await node.report(report(2))
    assert (await broker.command("alpha", Trim(session="s"))).reason == "unreachable"
    nats.start()

    await told(node, report(3), timeout_s=20)
    assert (await answered(broker, "alpha", Trim(session="s"), timeout_s=20)).ok
    assert seen == [1, 3]
    assert broker.trouble is None


async def test_a_bus_that_starts_before_its_server_connects_by_itself(nats):
    nats.stop()
    bus = bus_nats.NatsBus(nats.url)
    await bus.start(wait_s=0.1)
    try:
        assert "127.0.0.1" in bus.trouble
        with pytest.raises(Unavailable):
            await bus.report(report(1))
        nats.start()
        await until(lambda: bus.trouble is None)
    finally:
        await bus.close()


async def test_a_broker_that_is_too_slow_holds_its_agents_back(connect, monkeypatch):
    """An agent has one report on its way at a time: what comes meanwhile goes into the next one."""
    monkeypatch.setattr(bus_nats, "REPORT_S", 0.2)
    broker, node = await connect(), await connect()
    blocked = asyncio.Event()
    broker.on_report(lambda report: None)
    await told(node, report(1))
    heard = broker._heard

    async def slow(message):
        await blocked.wait()
        await heard(message)

    broker._subscribed["gpushare.report.*"]._cb = slow
    with pytest.raises(Unavailable, match="no answer"):
        await node.report(report(2))
    blocked.set()
    await told(node, report(3))


# --- what is refused ---


async def test_a_report_in_anothers_name_is_refused(connect, nats):
    broker, seen = await connect(), []
    broker.on_report(seen.append)
    node = await connect()
    await told(node, report(1))
    client = await nats_client.connect(nats.url)
    try:
        answer = await client.request("gpushare.report.beta", wire.sealed(report(2)), timeout=5)
    finally:
        await client.close()
    assert wire.opened(answer.data, CommandResult)[0].reason == "forged"
    assert len(seen) == 1


async def test_a_report_from_the_past_is_refused_also_after_a_restart_of_the_agent(connect):
    broker, node, seen = await connect(), await connect(), []
    broker.on_report(lambda report: seen.append((report.epoch, report.seq)))
    await told(node, report(1, epoch="old"))
    await told(node, report(1, epoch="new"))
    for epoch in ("old", "new"):
        with pytest.raises(Unavailable, match="before"):
            await node.report(report(1, epoch=epoch))
    assert seen == [("old", 1), ("new", 1)]


async def test_what_is_larger_than_nats_takes_is_refused_with_its_size(connect):
    node, broker = await connect(), await connect()
    broker.on_report(lambda report: None)
    await told(node, report(1))
    with pytest.raises(Unavailable, match="max_payload"):
        await node.report(report(2, gone=("x" * 2_000_000,)))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "malformed"),
        (b"{", "malformed"),
        (b"[" * 100_000, "malformed"),
        (b'{"v": 1, "body": {"server": 3}}', "malformed"),
        (b'{"v": 2, "by": "9.9", "body": {}}', "version"),
        (b'{"v": 0, "by": "0.0", "body": {}}', "version"),
    ],
)
async def test_what_cannot_be_read_is_refused_in_words(connect, nats, data, reason):
    broker, node, seen = await connect(), await connect(), []
    broker.on_report(seen.append)
    await told(node, report(1))
    client = await nats_client.connect(nats.url)
    try:
        answer = await client.request("gpushare.report.alpha", data, timeout=5)
    finally:
        await client.close()
    result, _ = wire.opened(answer.data, CommandResult)
    assert (result.ok, result.reason) == (False, reason)
    assert len(seen) == 1


async def test_a_command_that_an_older_agent_does_not_know_is_refused_with_both_versions(connect, nats):
    node = await connect()
    node.serve("alpha", answers())
    broker = await connect()
    await answered(broker, "alpha", Trim(session="s"))
    envelope = msgspec.json.encode(wire.Envelope(1, msgspec.Raw(b'{"do": "fly", "session": "s"}'), "9.9"))
    result = await broker._ask("gpushare.command.alpha", envelope, 5.0)
    assert (result.ok, result.reason) == (False, "malformed")
    assert "9.9" in result.message


async def test_new_fields_of_a_newer_peer_do_no_harm():
    raw = b'{"v": 1, "by": "9", "extra": 1, "body": {"server": "alpha", "epoch": "e", "seq": 1, "moods": ["new"]}}'
    assert wire.opened(raw, NodeReport)[0] == report(1)


async def test_more_commands_than_an_agent_carries_out_are_refused_not_queued(connect, monkeypatch):
    monkeypatch.setattr(bus_nats, "RUNNING", 2)
    broker, node, go = await connect(), await connect(), asyncio.Event()

    async def slow(command):
        await go.wait()
        return CommandResult(ok=True)

    node.serve("alpha", slow)
    await until(broker.present)
    asked = [asyncio.ensure_future(broker.command("alpha", Trim(session="s"))) for _ in range(3)]
    busy = await asyncio.wait_for(next(asyncio.as_completed(asked)), 5)
    assert busy.reason == "busy"
    go.set()
    assert sum(result.ok for result in await asyncio.gather(*asked)) == 2


# --- presence ---


async def test_everybody_there_is_seen_each_time_and_asking_leaves_nothing_in_nats(connect):
    broker, one, other = await connect(), await connect(), await connect()
    one.serve("alpha", answers())
    other.serve("beta", answers())
    await until(lambda: seen_both(broker))
    assert {await broker.present() for _ in range(200)} == {frozenset({"alpha", "beta"})}
    stream = await broker._client.jetstream().stream_info(f"KV_{bus_nats.PRESENT}")
    assert stream.state.consumer_count == 0


async def seen_both(broker):
    return len(await broker.present()) == 2


async def test_a_server_is_present_while_its_agent_lives(connect, quick):
    broker, node = await connect(), await connect()
    assert await broker.present() == frozenset()
    node.serve("al.pha", answers())
    await until(broker.present)
    await asyncio.sleep(1.5)
    assert await broker.present() == {wire.token("al.pha")}
    await node.close()
    await until(lambda: absent(broker))


async def absent(broker) -> bool:
    return not await broker.present()


async def test_of_two_agents_with_one_name_the_older_steps_back_and_returns_when_the_other_has_gone(connect, quick):
    broker, first, second = await connect(), await connect(name="first"), await connect(name="second")
    broker.on_report(lambda report: None)
    first.serve("alpha", answers("first"))
    await answered(broker, "alpha", Trim(session="s"))
    await told(first, report(1))

    second.serve("alpha", answers("second"))
    await until(lambda: "alpha" in first._displaced)
    assert {(await broker.command("alpha", Trim(session="s"))).message for _ in range(5)} == {"second"}
    with pytest.raises(Unavailable, match="Another agent"):
        await first.report(report(2))

    await second.close()
    await told(first, report(2))
    assert (await answered(broker, "alpha", Trim(session="s"))).message == "first"


# --- the leader ---


async def test_one_leads_and_the_next_takes_over_when_it_is_gone(connect):
    first, second = await connect(), await connect()
    leading = await first.lead("first", ttl_s=1.0)
    waiting = asyncio.ensure_future(second.lead("second", ttl_s=1.0))
    await asyncio.sleep(1.5)
    assert not waiting.done()
    assert not leading.lost.is_set()

    leading._keeping.cancel()  # killed: nobody renews
    taken = await asyncio.wait_for(waiting, 5)
    assert taken.term > leading.term
    await taken.release()


async def test_a_broker_whose_nats_server_has_no_jetstream_says_so_and_leads_once_it_has(connect, nats):
    nats.stop()
    nats.jetstream = False
    nats.start()
    bus = await connect()
    leading = asyncio.ensure_future(bus.lead("me", ttl_s=1.0))
    await until(lambda: bus.trouble and "JetStream" in bus.trouble)
    nats.stop()
    nats.jetstream = True
    nats.start()
    taken = await asyncio.wait_for(leading, 60)
    assert bus.trouble is None
    await taken.release()


async def test_a_leader_that_steps_back_is_followed_at_once(connect):
    first, second = await connect(), await connect()
    leading = await first.lead("first", ttl_s=30.0)
    waiting = asyncio.ensure_future(second.lead("second", ttl_s=1.0))
    await asyncio.sleep(0.1)
    await leading.release()
    taken = await asyncio.wait_for(waiting, 5)
    await taken.release()


async def test_a_leader_that_slept_learns_that_it_leads_no_more_and_its_commands_are_refused(connect):
    first, second, node = await connect(), await connect(), await connect()
    node.serve("alpha", answers())
    leading = await first.lead("first", ttl_s=1.0)
    assert (await answered(first, "alpha", Trim(session="s"))).ok
    leading._keeping.cancel()  # SIGSTOP, as far as the others can see
    taken = await second.lead("second", ttl_s=1.0)
    assert (await answered(second, "alpha", Trim(session="s"))).ok

    late = await first.command("alpha", Trim(session="s"))
    assert (late.ok, late.reason) == (False, "fenced")
    leading._keeping = asyncio.create_task(leading._keep())  # SIGCONT
    await asyncio.wait_for(leading.lost.wait(), 5)
    assert not taken.lost.is_set()
    await taken.release()


async def test_a_leader_that_cannot_reach_nats_stops_leading_in_time(connect, nats):
    bus = await connect()
    leading = await bus.lead("me", ttl_s=1.0)
    nats.stop(signal.SIGKILL)
    await asyncio.wait_for(leading.lost.wait(), 5)


async def test_a_leader_greets_and_whoever_it_follows_is_obeyed_no_more(connect):
    first, second, node, asked = await connect(), await connect(), await connect(), []

    async def carry_out(command):
        asked.append(type(command).__name__)
        return CommandResult(ok=True)

    first.on_report(lambda report: None)
    leading = await first.lead("first", ttl_s=1.0)
    node.serve("alpha", carry_out)
    assert (await answered(first, "alpha", Trim(session="s"))).ok
    await until(first.present)
    leading._keeping.cancel()  # SIGSTOP, as far as the others can see
    second.on_report(lambda report: None)
    taken = await second.lead("second", ttl_s=1.0)
    await second.greet()

    assert asked == ["Trim", "SayAgain"]
    assert (await first.command("alpha", Trim(session="s"))).reason == "fenced"
    await taken.release()


async def test_a_report_that_a_killed_leader_has_is_not_waited_for_once_another_leads(connect, monkeypatch):
    monkeypatch.setattr(bus_nats, "REPORT_S", 60.0)
    first, second, node = await connect(), await connect(), await connect()
    first.on_report(lambda report: None)
    leading = await first.lead("first", ttl_s=1.0)
    node.serve("alpha", answers())
    assert (await answered(first, "alpha", Trim(session="s"))).ok
    await told(node, report(1))
    await until(first.present)

    async def never(message):
        await asyncio.Event().wait()

    first._subscribed["gpushare.report.*"]._cb = never
    waiting = asyncio.ensure_future(node.report(report(2)))
    leading._keeping.cancel()
    taken = await second.lead("second", ttl_s=1.0)
    assert not waiting.done()
    second.on_report(lambda report: None)
    await second.greet()
    with pytest.raises(Unavailable, match="another broker leads"):
        await asyncio.wait_for(waiting, 20)
    await told(node, report(3))
    await taken.release()
