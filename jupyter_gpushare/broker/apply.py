"""Decisions -> records changed and nodes told. What a node answers is an event; a refusal is a normal one."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from ..core import explain
from ..core.room import restored
from ..model import (
    AnyCommand,
    AnyDecision,
    Assign,
    Attach,
    CommandResult,
    Detach,
    Expand,
    Move,
    Park,
    ParkSession,
    Place,
    Refuse,
    Resume,
    ResumeSession,
    SayAgain,
    Shrink,
    Stop,
    StopKernel,
    Trim,
    TrimCaches,
    Unbind,
    Warn,
)
from ..tasks import own
from ..units import format_bytes
from . import gangs, mps, room, words
from .ledger import DecisionRow
from .records import Placement, Session
from .reports import gone, harm
from .rows import LeaseRow
from .upkeep import put_aside

if TYPE_CHECKING:
    from .broker import Broker

log = logging.getLogger(__name__)
NOTICE_S = 30.0


@dataclass(slots=True)
class Applier:
    """Carries decisions out. Owns the tasks of commands in flight."""

    broker: Broker
    tasks: set[asyncio.Future[None]] = field(default_factory=set)

    def decisions(self, decisions: Iterable[AnyDecision], now: float) -> None:
        """Every record first, then one Assign for each session whose shares changed."""
        changed: dict[str, Session] = {}
        for decision in decisions:
            session = self.broker.cluster.sessions.get(decision.session)
            if session is None or not session.live:
                continue
            try:
                VERBS[type(decision)](self, session, decision, now)
            except Exception as error:  # noqa: BLE001 - logged there; the others' decisions are carried out all the same
                put_aside(session, error, now)
                continue
            session.decided.append((now, decision))
            changed[session.id] = session
            self.broker.ledger.decision(DecisionRow(user=session.user, decision=decision))
            self.broker.decided(session, decision)
        for session in changed.values():
            self.assign(session)

    # --- one function per decision ----------------------------------------------------------------------------

    def place(self, session: Session, decision: Place, now: float) -> None:
        before = session.placements
        session.placements = {
            uuid: before.get(uuid) or Placement(device=uuid, share_since=now) for uuid in decision.devices
        }
        for placement in session.placements.values():
            placement.lease, placement.borrowed = decision.lease, decision.borrowed
            placement.share = decision.share if decision.lease else 0.0
            if decision.lease and placement.target is None:
                placement.target, placement.share_since = session.demand.guarantee, now
        before = session.place
        if before is None or decision.alternatives or (decision.terms and before.devices != decision.devices):
            session.place = decision  # a lease where it was bound chose among nothing: the binding says what counted
        session.refused = ""
        if decision.lease:
            session.lease_since = session.lease_since if session.lease_since is not None else now
            if session.gated:
                session.gated, session.admitted_at = False, now
        if decision.lease or not (session.gated or session.bursting(now) or session.demand.whole):
            session.waiting_since = None
        rewritable = session.cooperative and not session.context
        if session.pid is None or rewritable:
            session.mask = decision.devices
        if decision.lease and decision.borrowed and not session.cooperative:
            notify(session, "This GPU is full; you share it on borrowed time until its holders come back.", now)
        self.remember(session)

    def resize(self, session: Session, decision: Expand | Shrink, now: float) -> None:
        placement = session.placements.get(decision.device)
        if placement is None:
            return
        if decision.target != placement.target:
            placement.target, placement.share_since = decision.target, now
        placement.share = decision.share

    def trim(self, session: Session, decision: TrimCaches, now: float) -> None:
        if session.warned is None:
            session.warned = "trim"  # asked once per idle time
        self.send(session, Trim(session=session.id))

    def unbind(self, session: Session, decision: Unbind, now: float) -> None:
        self.lift(session)
        notify(session, "Its GPU was given on; nothing of yours was on it. A cell that needs one gets one.", now)

    def warn(self, session: Session, decision: Warn, now: float) -> None:
        taken_back = decision.in_s is None
        session.warned = None if taken_back else decision.rung
        session.warned_until = None if decision.in_s is None else now + decision.in_s
        self.broker.warned(session, decision)

    def park(self, session: Session, decision: ParkSession, now: float) -> None:
        self._unwarn(session)
        session.doing = "park"
        self.send(session, Park(session=session.id), self._parked)

    def resume(self, session: Session, decision: ResumeSession, now: float) -> None:
        """The room is reserved by the lease before the node is asked (rule 8)."""
        self._unwarn(session)
        session.doing = "resume"
        session.placements = {
            new: Placement(
                device=new, lease=True, share=decision.share, target=session.demand.guarantee, share_since=now
            )
            for new in decision.devices.values()
        }
        session.lease_since = now
        self.remember(session)
        command = Resume(session=session.id, devices=decision.devices, memory=decision.memory)
        self.send(session, command, self._resumed)

    def move(self, session: Session, decision: Move, now: float) -> None:
        """Parked here, resumed there; the decision loop brings it back to the new devices once it is parked."""
        self._unwarn(session)
        session.doing = "park"
        target = dict(decision.devices)

        def then(session: Session, result: CommandResult, now: float) -> None:
            self._parked(session, result, now)
            if not (session.parked and session.live):
                return
            session.wants_back = True
            if not all(room.has(self.broker.cluster, uuid, session) for uuid in target.values()):
                return  # somebody was quicker: it comes back where and when there is room
            capacity = room.capacity(self.broker.cluster, tuple(target.values()))
            memory = int(restored((session.parked_bytes or 0) / len(target), capacity))
            self.resume(
                session, ResumeSession(session=session.id, why=decision.why, devices=target, memory=memory), now
            )
            old = words.gpus(self.broker.cluster, tuple(target))
            new = words.gpus(self.broker.cluster, tuple(target.values()))
            why = MOVED.get(decision.why, "had to be left")
            notify(session, f"Moved to {new}. {old} {why}. Nothing was lost.", now)

        self.send(session, Park(session=session.id), then)

    def stop(self, session: Session, decision: StopKernel, now: float) -> None:
        """Its server, which hears of the decision, ends the kernel: done by anybody else it would be restarted."""
        session.stop_asked = decision.why

    def refuse(self, session: Session, decision: Refuse, now: float) -> None:
        session.waiting_since, session.gated = None, False
        apart = mps.keeps_apart(self.broker.cluster, session.demand, decision.why)
        session.refused = mps.ONE_ONLY if apart else explain.why(decision.why)

    # --- what nodes answer ------------------------------------------------------------------------------------

    def _parked(self, session: Session, result: CommandResult, now: float) -> None:
        session.doing, session.moved_at = None, now
        if not session.live:
            return
        if result.reason == "harmed":
            harm(session, result.message)
            self.remember(session)
            return
        if not result.ok:
            # Harmless: everything is as it was. Not tried again for a while; never, where its node knows why not.
            denied = result.reason == "denied"
            session.unparkable_until = math.inf if denied else now + self.broker.settings.unparkable_for_s
            session.unparkable_why = result.message or result.reason or "its node refused"
            if result.reason == "unsettled":
                notify(session, result.message, now)
                return
            notify(session, f"It could not be parked: {session.unparkable_why} Nothing changed.", now)
            return
        held = session.held.parked_bytes if session.held is not None else None
        size = result.bytes if result.bytes is not None else held
        if not size:
            notify(session, "There was nothing of it on a GPU, so nothing was parked.", now)
            return
        session.parked_bytes = size
        for placement in session.placements.values():
            placement.lease = placement.borrowed = False
            placement.share = 0.0
            placement.memory_used = 0
        session.lease_since = None
        if (session.wants_back or session.cells > 0) and session.waiting_since is None:
            session.waiting_since = now  # its owner asked for it, or a cell runs that may call on it
        self.remember(session)

    def _resumed(self, session: Session, result: CommandResult, now: float) -> None:
        session.doing, session.moved_at = None, now
        if not session.live:
            return
        if result.reason == "harmed":
            harm(session, result.message)
            self.remember(session)
            return
        if not result.ok:
            # It stays parked and in line; its memory is safe in the host.
            for placement in session.placements.values():
                placement.lease, placement.share = False, 0.0
            session.lease_since = None
            session.waiting_since = session.waiting_since if session.waiting_since is not None else now
            session.retry_at = now + self.broker.settings.retry_s
            notify(session, f"It could not come back yet: {result.message or result.reason} Nothing is lost.", now)
            self.remember(session)
            return
        moved = session.parked_bytes
        session.parked_bytes = None
        session.waiting_since, session.wants_back = None, False
        session.gated, session.admitted_at = False, now
        session.mask = session.devices
        self.remember(session)
        notify(session, f"Back on {words.gpus(self.broker.cluster, session.devices)}. Nothing was lost.", now)
        log.info("%s is back (%s)", session.id, format_bytes(moved))

    # --- the same for decisions and people --------------------------------------------------------------------

    def lift(self, session: Session) -> None:
        """Takes a session off its devices; its mask stays as it was."""
        session.placements = {}
        session.lease_since = None
        self._unwarn(session)
        self.remember(session)

    def attach(self, session: Session) -> None:
        """Tells the node whose process tree this is; said again to every new agent."""
        if session.demand.spread:
            gangs.attach(self, session)
            return
        server = self.broker.cluster.server_of(session)
        record = self.broker.cluster.servers.get(server) if server is not None else None
        if session.pid is None or session.started is None or record is None or not session.live:
            return
        epoch = f"{record.name}/{record.epoch}"
        session.attached_at = epoch
        record.told.add(session.id)
        command = Attach(
            session=session.id, pid=session.pid, started=session.started, user=session.user, devices=session.mask
        )

        def then(session: Session, result: CommandResult, now: float) -> None:
            if not result.ok and result.reason == "unreachable":
                session.attached_at = None
            elif not result.ok and session.attached_at == epoch:
                gone(session)
                log.info("%s: %s", session.id, result.message)
            elif result.ok and session.processes != "gone":
                session.processes = "alive"

        self.send(session, command, then)
        self.assign(session)

    def assign(self, session: Session) -> None:
        """The shares as they are now; a bound session may use its devices with a share of 0."""
        if session.demand.spread:
            gangs.assign(self, session)
            return
        if session.pid is None or session.parked or not session.live:
            return
        shares = {placement.device: placement.share for placement in session.placements.values()}
        if shares != session.assigned:
            session.assigned = shares
            self.send(session, Assign(session=session.id, shares=shares))

    def end(self, session: Session) -> None:
        """After the proof: the node forgets it, what survives is a leftover."""
        for server in session.roots or (None,):
            self.send(session, Detach(session=session.id), None, server)

    def forget(self, session: str, server: str) -> None:
        """The same to a node that missed it."""
        self._spawn(self._command(server, Detach(session=session), None, None))

    def stop_leftovers(self, session: str, server: str, pid: int | None = None) -> None:
        self._spawn(self._command(server, Stop(session=session, pid=pid), None, None))

    def remember(self, session: Session) -> None:
        """The ledger's row of a session; a guarantee of 0 says that it is only bound."""
        server = self.broker.cluster.server_of(session)
        if not session.live or session.reserves is not None:
            return
        row = LeaseRow(
            session=session.id,
            user=session.user,
            origin=session.origin,
            server=server or "",
            label=session.label,
            path=session.path,
            devices=session.devices,
            guarantee=session.demand.guarantee if session.leased else 0.0,
            borrowed=session.leased and not session.owns,
            demand=session.demand,
            pid=session.pid,
            started=session.started,
        )
        if row != session.row:
            note = self.broker.ledger.lease_granted if session.row is None else self.broker.ledger.lease_changed
            session.row = row
            note(row)

    def _unwarn(self, session: Session) -> None:
        session.warned = session.warned_until = None

    # --- commands ---------------------------------------------------------------------------------------------

    def send(self, session: Session, command: AnyCommand, then: Then | None = None, server: str | None = None) -> None:
        """Sends a command after the session's earlier ones; `then` gets the answer on the event loop. `server`: of a
        gang that has several."""
        server = server or self.broker.cluster.server_of(session)
        if server is None:
            if then is not None:
                unreachable = CommandResult(ok=False, reason="unreachable", message="No server is known for it.")
                then(session, unreachable, self.broker.clock())
            return
        self._spawn(self._command(server, command, session, then))

    def ask_again(self, server: str) -> None:
        """Has a server's agent say everything anew."""
        self._spawn(self._command(server, SayAgain(session=""), None, None))

    async def _command(self, server: str, command: AnyCommand, session: Session | None, then: Then | None) -> None:
        timeout_s = self.broker.settings.command_timeout_s + getattr(command, "timeout_s", 0.0)
        if session is None:
            result = await self.broker.bus.command(server, command, timeout_s)
            if not result.ok:
                log.warning("%s of %s: %s %s", type(command).__name__, command.session, result.reason, result.message)
            return
        life = session.life
        async with session.lock:
            result = await self.broker.bus.command(server, command, timeout_s)
        if not result.ok:
            log.info("%s of %s: %s %s", type(command).__name__, session.id, result.reason, result.message)
        if then is not None and session.life == life:
            then(session, result, self.broker.clock())
            self.assign(session)
        self.broker.touch()

    def _spawn(self, work) -> None:
        own(self.tasks, work)


Then = Callable[[Session, CommandResult, float], None]
MOVED = {
    "leaving": "is being taken out of service",
    "asked": "was left as you asked",
    "hot": "is too hot to be fast",
    "makes_room": "is needed for a larger demand",
}
VERBS: dict[type[AnyDecision], Callable] = {
    Place: Applier.place,
    Expand: Applier.resize,
    Shrink: Applier.resize,
    TrimCaches: Applier.trim,
    Unbind: Applier.unbind,
    Warn: Applier.warn,
    ParkSession: Applier.park,
    ResumeSession: Applier.resume,
    Move: Applier.move,
    StopKernel: Applier.stop,
    Refuse: Applier.refuse,
}


def notify(session: Session, text: str, now: float) -> None:
    """What happened to a session, shown for a while in place of its ordinary message."""
    session.notice, session.notice_until = text, now + NOTICE_S


def plain(decision: AnyDecision) -> object:
    """A decision as JSON, its verb under `act`."""
    return msgspec.to_builtins(decision)
