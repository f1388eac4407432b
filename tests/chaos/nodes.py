"""What is so on the GPU servers themselves: what each agent says it holds, and which processes there are."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Iterable, Mapping

import nats
import psutil

from jupyter_gpushare.bus.wire import Unreadable, opened, sealed, token
from jupyter_gpushare.model import Held, NodeReport, SayAgain
from tests.bed.site import Site

from .ledger import Row

ANSWER_S = 10.0
TERM = re.compile(r"leads \(term (\d+)\)")


def term(site: Site) -> int:
    """Of the newest leader: what another sender of commands must name, or agents refuse it."""
    return max(int(found) for part in site.brokers.values() for found in TERM.findall(part.log))


def reports(site: Site) -> dict[str, NodeReport]:
    """What every agent says when it is asked for everything. Those that say nothing are left out."""
    return asyncio.run(_reports(site))


async def _reports(site: Site) -> dict[str, NodeReport]:
    found: dict[str, NodeReport] = {}
    told = asyncio.Event()

    async def hear(message) -> None:
        with contextlib.suppress(Unreadable):
            report: NodeReport = opened(message.data, NodeReport)[0]
            if report.full:
                found[report.server] = report
            if found.keys() >= site.agents.keys():
                told.set()

    client = await nats.connect(site.nats.url, connect_timeout=2, max_reconnect_attempts=1)
    try:
        await client.subscribe("gpushare.report.*", cb=hear)
        await client.flush()
        for name in site.agents:
            await client.publish(f"gpushare.command.{token(name)}", sealed(SayAgain(session=""), term(site)))
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(told.wait(), ANSWER_S)
    finally:
        await client.close()
    return found


def processes(sessions: Iterable[str]) -> dict[int, str]:
    """pid -> session, of every living process that carries one of these sessions' names, whoever its parent is."""
    wanted, found = set(sessions), {}
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            name = process.environ().get("GPUSHARE_SESSION")
            if name in wanted and process.status() != psutil.STATUS_ZOMBIE:
                found[process.pid] = name
    return found


def broken(
    ledger: Mapping[str, Row],
    reported: Mapping[str, NodeReport],
    alive: Mapping[int, str],
    let_in: Iterable[str],
    servers: Iterable[str],
) -> list[str]:
    """Where ledger, agents and processes disagree while nothing goes on. `let_in`: whose cell was let in and runs."""
    story = [f"the agent of {server} says nothing" for server in servers if server not in reported]
    pids: dict[str, set[int]] = {}
    for pid, session in alive.items():
        pids.setdefault(session, set()).add(pid)
    for server, report in reported.items():
        held = {one.session: one for one in report.held if one.alive}
        leased = {row.session for row in ledger.values() if row.server == server and row.pid is not None}
        story += [f"{server} holds {one}, the ledger has no lease of it" for one in sorted(held.keys() - leased)]
        story += [f"the ledger has a lease of {one}, {server} does not hold it" for one in sorted(leased - held.keys())]
        story += [
            text for one in sorted(held.keys() & leased) if (text := _disagreement(server, held[one], ledger[one]))
        ]
    for session, row in ledger.items():
        if row.pid is not None and session not in pids:
            story.append(f"{session} has no process any more, and a lease")
    for session in let_in:
        row = ledger.get(session)
        if row is None or not row.devices or not row.guarantee:
            story.append(f"a cell of {session} was let in and runs without a lease: {row}")
    return story


def _disagreement(server: str, held: Held, row: Row) -> str | None:
    strays = sorted(set(held.devices) - set(row.devices))
    if strays:
        return f"{held.session} is on {', '.join(strays)} of {server}; its lease is for {row.devices}"
    if held.parked_bytes and row.guarantee:
        return f"{held.session} is parked on {server}, and its lease guarantees {row.guarantee:g}"
    return None
