"""The one decision loop: every grant is made here, one turn at a time, so two requests cannot get the same share."""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from ..core.decide import decide
from ..core.state import State
from ..model import Decision
from . import charges, figures, readings, state, upkeep
from .metrics import Share
from .records import Cluster

if TYPE_CHECKING:
    from .broker import Broker

log = logging.getLogger(__name__)
ROUNDS = 8  # what a decision frees is granted by the next round; the next turn goes on where these end
SPARED = 2.0  # times as long as a turn took, none is taken: reports and requests are heard, and decided on together
QUIET_TICKS = 4  # ticks between two looks at the time rules while all sessions rest
FAILING = "Decisions stopped because of an error of the broker's own; its log has it. Running kernels are untouched."


async def run(broker: Broker) -> None:
    """Turns whenever something changed, and at the next time rule, until the broker stops."""
    while not broker.stopped:  # a cancellation that meets a wake-up is lost in wait_for before Python 3.12
        try:
            await asyncio.wait_for(broker.wake.wait(), wait_s(broker, broker.clock()))
        except asyncio.TimeoutError:
            pass  # time rules
        broker.wake.clear()
        await asyncio.sleep(0)  # what else changed meanwhile is decided on together
        began = time.perf_counter()
        turn(broker)
        await asyncio.sleep(SPARED * (time.perf_counter() - began))


def wait_s(broker: Broker, now: float) -> float:
    """Until the tick, or the earliest notice that falls due before it; longer where nobody computes, waits or moves."""
    live = [session for session in broker.cluster.sessions.values() if session.live]
    due = [s.warned_until - now for s in live if s.warned_until is not None]
    busy = any(s.burst or s.gated or s.wants_back or s.doing or s.opening or s.waiting_since is not None for s in live)
    tick_s = broker.settings.tick_s * (1 if busy else QUIET_TICKS)
    return max(0.02, min([tick_s, *(left for left in due if left > 0)]))


def turn(broker: Broker) -> None:
    """Upkeep, then decide and carry out until nothing is left to decide; then whoever waits looks again."""
    now = broker.clock()
    try:
        upkeep.upkeep(broker, now)
        # Nothing is known of any device before the first report: nobody is refused for that.
        if broker.cluster.servers and broker.ready and not broker.blind:
            _decide(broker, now)
            broker.decided_turns += 1
            if figures.due(broker.cluster, now):
                figures.note(broker.frame())
        if readings.due(broker.cluster.past, now):
            readings.note(broker.cluster.past, broker.cluster.devices.values(), now, broker.settings.stale_after_s)
    except Exception:  # a bug must not end the loop: kernels run on, and the next turn tries again (rule 12)
        if broker.failing is None:
            log.exception("No decision could be made; running kernels are untouched, it is tried again")
        broker.failing = FAILING
    else:
        if broker.failing is not None:
            log.info("Decisions are made again")
        broker.failing = None
    broker.pulse()


def _decide(broker: Broker, now: float) -> None:
    for turn_round in range(ROUNDS):
        began = time.perf_counter()
        try:
            matrix, decisions = _look(broker, broker.cluster, now, broker.columns)
        except Exception:
            if not _put_aside(broker, now):
                raise
            matrix, decisions = _look(broker, broker.cluster, now, broker.columns)
        if turn_round == 0:
            charges.charge(broker, matrix, now)
            charges.keep_off(broker, now)
        if broker.metrics is not None:
            broker.metrics.decided(decisions, time.perf_counter() - began)
        for session in broker.cluster.sessions.values():
            if session.aside and now >= session.aside_until:
                session.aside = ""  # it was decided on
        if not decisions:
            break
        broker.apply(decisions)


def _look(
    broker: Broker, cluster: Cluster, now: float, columns: state.Columns | None = None
) -> tuple[State, list[Decision]]:
    matrix = state.build(cluster, broker.settings, broker.policy, now, columns)
    return matrix, decide(matrix, now, broker.policy)


def _put_aside(broker: Broker, now: float) -> bool:
    """Whether there are sessions that cannot be decided on even alone; they are left out for a while."""
    found = False
    for session in list(broker.cluster.sessions.values()):
        if session.live and now >= session.aside_until:
            try:
                _look(broker, replace(broker.cluster, sessions={session.id: session}), now)
            except Exception as error:  # noqa: BLE001 - whatever it is; logged there
                upkeep.put_aside(session, error, now)
                found = True
    return found


def show_metrics(broker: Broker) -> None:
    """The cluster as Prometheus reads it."""
    if broker.metrics is None:
        return
    cluster = broker.cluster
    broker.metrics.show(
        ((record.server, record.seen) for record in cluster.devices.values()),
        (
            Share(session.id, placement.device, placement.share)
            for session in cluster.sessions.values()
            if session.live and session.reserves is None
            for placement in session.placements.values()
        ),
        len(cluster.waiting()),
        upkeep.findings(broker),
    )
