"""What every bus keeps, in process or over NATS: nothing is lost in silence, nothing hangs, a bug stays where it is."""

from __future__ import annotations

import asyncio
import logging
import time

import pytest

from jupyter_gpushare.errors import Unavailable
from jupyter_gpushare.model import Assign, Attach, CommandResult, NodeReport, Trim


def report(seq: int, **more) -> NodeReport:
    return NodeReport(server="alpha", epoch="e", seq=seq, **more)


async def told(node, report: NodeReport, timeout_s: float = 10.0) -> None:
    """Tells it as soon as somebody listens, as an agent does."""
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            return await node.report(report)
        except Unavailable:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.02)


async def answered(broker, server, command, *, but: str = "unreachable", timeout_s: float = 10.0) -> CommandResult:
    """The first answer with another reason: a node takes a moment until it is there."""
    deadline = time.monotonic() + timeout_s
    while True:
        result = await broker.command(server, command)
        if result.reason != but:
            return result
        assert time.monotonic() < deadline, result
        await asyncio.sleep(0.02)


async def test_reports_arrive_in_the_order_they_were_given(ends):
    (broker, node), seen = ends, []
    broker.on_report(lambda report: seen.append(report.seq))

    for seq in range(20):
        await told(node, report(seq))

    assert seen == list(range(20))


async def test_a_report_is_answered_with_how_soon_the_next_is_wanted(ends):
    broker, node = ends
    broker.on_report(lambda report: None)
    assert await told(node, report(1)) is None
    broker.on_report(lambda report: 2.5)
    broker.on_report(lambda report: 1 / 0)
    broker.on_report(lambda report: 4.5)
    assert await told(node, report(2)) == 4.5


async def test_a_report_arrives_as_it_was_given(ends):
    (broker, node), seen = ends, []
    broker.on_report(seen.append)
    given = report(1, full=True, host_memory_free=7, gone=("s",))

    await told(node, given)

    assert seen == [given]


async def test_a_handlers_error_is_logged_and_the_next_handler_still_hears_the_report(ends, caplog):
    (broker, node), seen = ends, []
    broker.on_report(lambda report: 1 / 0)
    broker.on_report(lambda report: seen.append(report.seq))

    await told(node, report(1))

    assert seen == [1]
    assert "ZeroDivisionError" in caplog.text


@pytest.mark.parametrize(
    "command",
    [
        Trim(session="s"),
        Attach(session="s", pid=5, started=1.5, user="zoë", devices=("GPU-1",)),
        Assign(session="s", shares={"GPU-1": 0.25}),
    ],
)
async def test_a_command_arrives_as_it_was_given_and_so_does_its_answer(ends, command):
    (broker, node), seen = ends, []
    result = CommandResult(ok=False, reason="busy", message="later", bytes=3, progress=0.5)

    async def carry_out(command):
        seen.append(command)
        return result

    node.serve("alpha", carry_out)

    assert await answered(broker, "alpha", command) == result
    assert seen[-1] == command


async def test_a_command_is_answered_by_the_node_that_serves_the_name_last(ends):
    broker, node = ends

    async def first(command):
        return CommandResult(ok=True, message="first")

    async def second(command):
        return CommandResult(ok=True, message=f"second {command.session}")

    node.serve("alpha", first)
    node.serve("alpha", second)

    assert (await answered(broker, "alpha", Trim(session="s"))).message == "second s"


async def test_commands_to_one_node_run_side_by_side(ends):
    broker, node = ends
    both = asyncio.Event()
    running = []

    async def carry_out(command):
        running.append(command.session)
        if len(running) == 2:
            both.set()
        await both.wait()
        return CommandResult(ok=True)

    node.serve("alpha", carry_out)
    node.serve("beta", carry_out)
    await asyncio.sleep(0.2)
    results = await asyncio.gather(*(broker.command("alpha", Trim(session=name)) for name in "ab"))
    assert [result.ok for result in results] == [True, True]


async def test_an_unknown_or_silent_node_is_unreachable(ends):
    broker, node = ends
    hang = asyncio.Event()

    async def silent(command):
        await hang.wait()

    node.serve("beta", silent)

    assert (await broker.command("alpha", Trim(session="s"))).reason == "unreachable"
    assert (await broker.command("beta", Trim(session="s"), timeout_s=0.01)).reason == "unreachable"


async def test_a_nodes_error_is_logged_and_answered(ends, caplog):
    broker, node = ends

    async def broken(command):
        raise ZeroDivisionError

    node.serve("alpha", broken)
    with caplog.at_level(logging.ERROR):
        result = await answered(broker, "alpha", Trim(session="s"))

    assert (result.ok, result.reason) == (False, "error")
    assert "ZeroDivisionError" in caplog.text


@pytest.mark.parametrize("name", ["a.b", "a b", "a*", ">", "zoë", "a/b", "=2E", "a=2Eb"])
async def test_any_name_of_a_server_will_do(ends, name):
    broker, node = ends

    async def carry_out(command):
        return CommandResult(ok=True, message=name)

    node.serve(name, carry_out)
    assert (await answered(broker, name, Trim(session="s"))).message == name
    assert (await broker.command("other", Trim(session="s"))).reason == "unreachable"
