"""The in-process bus: nothing is lost, nothing hangs, a handler's bug stays where it is."""

from __future__ import annotations

import asyncio
import logging

from jupyter_gpushare.bus.local import LocalBus
from jupyter_gpushare.model import CommandResult, NodeReport, Trim


def report(seq: int) -> NodeReport:
    return NodeReport(server="alpha", epoch="e", seq=seq)


async def test_reports_arrive_in_the_order_they_were_given(jp_asyncio_loop):
    bus, seen = LocalBus(), []
    bus.on_report(lambda report: seen.append(report.seq))

    for seq in range(20):
        await bus.report(report(seq))

    assert seen == list(range(20))


async def test_a_handlers_error_is_logged_and_the_next_handler_still_hears_the_report(caplog):
    bus, seen = LocalBus(), []
    bus.on_report(lambda report: 1 / 0)
    bus.on_report(lambda report: seen.append(report.seq))

    await bus.report(report(1))

    assert seen == [1]
    assert "ZeroDivisionError" in caplog.text


async def test_a_command_is_answered_by_the_node_that_serves_the_name_last():
    bus = LocalBus()

    async def first(command):
        return CommandResult(ok=True, message="first")

    async def second(command):
        return CommandResult(ok=True, message=f"second {command.session}")

    bus.serve("alpha", first)
    bus.serve("alpha", second)

    assert (await bus.command("alpha", Trim(session="s"))).message == "second s"


async def test_an_unknown_or_silent_node_is_unreachable():
    bus = LocalBus()
    hang = asyncio.Event()

    async def silent(command):
        await hang.wait()

    bus.serve("beta", silent)

    assert (await bus.command("alpha", Trim(session="s"))).reason == "unreachable"
    assert (await bus.command("beta", Trim(session="s"), timeout_s=0.01)).reason == "unreachable"


async def test_a_nodes_error_is_logged_and_answered(caplog):
    bus = LocalBus()

    async def broken(command):
        raise ZeroDivisionError

    bus.serve("alpha", broken)
    with caplog.at_level(logging.ERROR):
        result = await bus.command("alpha", Trim(session="s"))

    assert (result.ok, result.reason) == (False, "error")
    assert "ZeroDivisionError" in caplog.text
