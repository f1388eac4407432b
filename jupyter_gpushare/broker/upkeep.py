"""What time alone changes: bursts that ended, places given up, leases whose end is proven, rows that leave."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ..core.probe import Burst, observe
from ..model import Finding
from . import pace, wishes, words
from .records import Measured, Session

if TYPE_CHECKING:
    from .broker import Broker

log = logging.getLogger(__name__)
ROW_LEAVES_S = 600.0  # an ended session is shown this long
GATE_SILENT_S = 20.0  # a cell that stopped asking without a word has given up its place
ASIDE_S = 30.0  # before a session that nothing could be decided on is tried again
RESERVED_FOR_S = 900.0  # a reservation for a restart that nobody makes


def upkeep(broker: Broker, now: float) -> None:
    """Once per turn, before the core decides."""
    silent_s = pace.silent_s(broker)
    for session in list(broker.cluster.sessions.values()):
        if not session.live:
            if now - (session.ended or now) >= ROW_LEAVES_S:
                del broker.cluster.sessions[session.id]
        elif now >= session.aside_until:
            try:
                _keep_up(broker, session, now, silent_s)
            except Exception as error:  # noqa: BLE001 - logged there; what is wrong with one must not stop the others
                put_aside(session, error, now)


def _keep_up(broker: Broker, session: Session, now: float, silent_s: float) -> None:
    _notice_overlong(session, broker.policy.busy_limit_s, now)
    notice_burst(session, now)
    if session.gated and now - session.asked_at > GATE_SILENT_S:
        leave(session)
    if session.gated and not session.parked and any(map(broker.cluster.lost, session.placements)):
        _off_lost(broker, session)
    if session.pinned_until is not None and session.pinned_until <= now:
        wishes.pin(broker, session, None)
    if session.reserves is not None:
        if now - session.opened > RESERVED_FOR_S:
            broker.end(session, "reservation expired")
    elif not session.opening and now - session.last_alive > silent_s and proven_gone(session):
        broker.end(session, "silent")


def _off_lost(broker: Broker, session: Session) -> None:
    """A cell does not wait for a device that is lost: it gets another where its kernel has used none yet, else it runs
    and its error and its notebook's state say what happened."""
    if session.context:
        session.gated, session.waiting_since = False, None
    else:
        broker.applier.lift(session)


def put_aside(session: Session, error: Exception, now: float) -> None:
    """Decides nothing on a session for a while, so that the others are decided on; it keeps what it has."""
    said = f"{type(error).__name__}: {error}"
    if said != session.aside:
        log.error("%s is put aside, others go on", session.id, exc_info=error)
    session.aside, session.aside_until = said, now + ASIDE_S


def proven_gone(session: Session) -> bool:
    """Rule 3: its processes are gone, or nobody can say and it holds nothing that a proof would be needed for."""
    asked = session.attached_at is not None or (session.recovering and session.server is not None)
    holds = bool(session.placements) or session.parked
    return session.processes in ("none", "gone") or (session.processes == "unknown" and not (asked or holds))


def _notice_overlong(session: Session, limit_s: float, now: float) -> None:
    """Since when its cell, which never used its GPU, is beyond the limit; a move that this led to ends first."""
    if session.doing is not None:
        return
    unused_s = session.unused_s(now) if limit_s > 0 else None
    if unused_s is None or unused_s < limit_s:
        session.over_since = None
    elif session.over_since is None:
        session.over_since = now


def notice_burst(session: Session, now: float) -> None:
    """Begins and ends the session's burst as its cells and its use of devices say."""
    bursting = session.bursting(now)
    if bursting and session.released_at is not None:
        session.released_at = session.burst = None  # it computes on its device: that is asking for it
    if bursting and session.burst is None:
        begin_burst(session, now)
    elif not bursting and session.burst is not None:
        end_burst(session, now)


def begin_burst(session: Session, now: float) -> None:
    idle_since = session.idle_before
    session.gap_s = None if idle_since is None else max(0.0, now - idle_since)
    if session.gap_s is not None:
        session.gaps.append(session.gap_s)
    session.burst = Measured(since=now)
    session.warned = session.warned_until = None
    if session.wants and not session.leased and session.waiting_since is None:
        session.waiting_since = now


def end_burst(session: Session, now: float) -> None:
    """The burst told something of the session's kind and horizon."""
    burst, session.burst = session.burst, None
    if burst is None:
        return
    session.idle_before = session.idle_since(now)
    if not session.placements and session.waiting_since is not None and not session.gated:
        session.waiting_since = None  # its cell ran without a device; nothing is left to wait for
    told = burst_of(session, burst, now)
    session.ran.append(told.duration_s)
    session.belief = observe(session.belief, told)


def burst_of(session: Session, burst: Measured, now: float) -> Burst:
    """The means over a burst; None for what could not be read."""

    def mean(total: float, samples: int) -> float | None:
        return total / samples if samples else None

    end = session.idle_since(now) or now
    growth = None
    if burst.memory_before is not None and burst.memory_peak is not None and session.memory_total:
        growth = (burst.memory_peak - burst.memory_before) / session.memory_total
    return Burst(
        duration_s=max(0.0, end - burst.since),
        gap_s=session.gap_s,
        utilization=mean(burst.utilization, burst.compute_samples),
        memory_utilization=mean(burst.memory_utilization, burst.memory_samples),
        pcie_gb_s=mean(burst.pcie_gb_s, burst.pcie_samples),
        memory_growth=growth,
    )


def leave(session: Session) -> None:
    """Gives up a waiting cell's place in line."""
    session.gated = False
    if not session.wants_back and session.placements:
        session.waiting_since = None


def findings(broker: Broker) -> tuple[Finding, ...]:
    """What does not work as it should, each with what that means."""
    found = []
    ledger = broker.ledger.degraded
    if ledger is not None:
        found.append(Finding(code="ledger", message=words.degraded("ledger", "", ledger.message)))
    for server in broker.cluster.servers.values():
        found += [
            Finding(code=finding.code, message=words.degraded(finding.code, server.name, finding.message))
            for finding in server.findings
        ]
    found += [
        Finding(code="broker", message=words.put_aside(session.id))
        for session in broker.cluster.sessions.values()
        if session.live and session.aside
    ]
    if broker.failing is not None:
        found.append(Finding(code="broker", message=broker.failing))
    return tuple(found)
