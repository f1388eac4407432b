"""The broker: keeps the cluster's records, runs the decision loop, answers every door."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from typing import Any

from ..bus.base import Bus
from ..core import explain
from ..core.decide import placement
from ..core.objectives import in_force
from ..core.policy import Policy
from ..core.state import row_of
from ..model import AnyDecision, Caller, Demand, NodeReport, Warn
from ..tasks import end
from . import api, choices, loop, pace, recovery, state, upkeep, view, wishes
from .answers import Why
from .apply import Applier, plain
from .ledger import Ledger
from .metrics import Metrics
from .port import Reply, Settings, StreamEvent
from .records import Cluster, Session, Usage
from .reports import take_in
from .stream import Streams

log = logging.getLogger(__name__)
FIRST_TURN_S = 2.0  # what needs no more than a decision waits for one this long
SAVE_USAGE_S = 60.0

DecisionHandler = Callable[[str, str, dict[str, Any]], None]  # user, session, the decision as JSON


class Broker:
    """A `port.BrokerPort` in its own process. `start` before the first call, `stop` at the end."""

    def __init__(
        self,
        bus: Bus,
        ledger: Ledger,
        policy: Policy,
        clock: Callable[[], float],
        settings: Settings,
        *,
        metrics: Metrics | None = None,
        doctor: Callable[[], Awaitable[object]] | None = None,
        on_decision: DecisionHandler | None = None,
    ) -> None:
        self.bus, self.ledger, self.policy, self.clock, self.settings = bus, ledger, policy, clock, settings
        self.metrics, self.doctor, self.on_decision = metrics, doctor, on_decision
        self.cluster = Cluster()
        self.columns = state.Columns()
        self.applier = Applier(self)
        self.streams = Streams(self)
        self.expected: choices.Expected = {}  # servers that start and have no kernels yet
        self.wake = asyncio.Event()
        self.waits: dict[str, int] = {}  # starts that wait inside their request, by origin
        self.failing: str | None = None
        self.ready = False  # the ledger was read, or is known to be away
        self.stopped = False
        self.changes = 0
        self.decided_turns = 0
        self.charged_at = clock()
        # Event ids of an earlier broker must not look like ours to a returning stream.
        self.rev = secrets.randbelow(1 << 30)
        self._pulse: asyncio.Future[None] | None = None  # the next turn, while somebody waits for it
        self._tasks: list[asyncio.Task[None]] = []
        self._unread, self._began = False, clock()
        self._saved_at = clock()
        self._frame: view.Frame | None = None

    @property
    def default_demand(self) -> Demand:
        return Demand(gpus=self.settings.default_gpus, exclusive=self.settings.default_exclusive)

    @property
    def blind(self) -> bool:
        """What was lent before is not known yet, and may still be read: nothing is granted until then (rule 1)."""
        return self._unread and self.clock() - self._began < self.settings.unread_s

    # --- its life ---------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Listens to nodes, takes up the ledger's leases and begins to decide."""
        self.bus.on_report(self.report)
        await self._recover()
        self.ready = True
        self._tasks = [
            asyncio.create_task(loop.run(self), name="gpushare-loop"),
            asyncio.create_task(self.streams.run(), name="gpushare-streams"),
            asyncio.create_task(self._housekeeping(), name="gpushare-housekeeping"),
        ]
        for task in self._tasks:
            task.add_done_callback(_told)
        self.touch()

    async def stop(self) -> None:
        """Lets every waiting request go and ends the loop. Leases stay: kernels run on. The ledger is the caller's."""
        self.stopped = True
        self.wake.set()
        self.pulse()
        self.streams.close()
        await end(*self._tasks, *self.applier.tasks)
        self._save_usage()
        if self.metrics is not None:
            self.metrics.close()

    async def call(
        self, caller: Caller, method: str, path: str, query: Mapping[str, str] = {}, body: bytes = b""
    ) -> Reply:
        """Answers one request. Raises only errors of errors.py."""
        return await api.call(self, caller, method, path, query, body)

    def stream(self, caller: Caller, last_id: int | None = None) -> AsyncIterator[StreamEvent]:
        """A view that keeps up; see `stream.Streams.follow`."""
        return self.streams.follow(caller, last_id)

    # --- what changes it --------------------------------------------------------------------------------------

    def report(self, report: NodeReport) -> float:
        """A node said something. In how many seconds it shall say the next if nothing changes."""
        now, again_s = self.clock(), pace.report_s(self)
        fresh = take_in(self.cluster, report, now, self.policy.window_s, again_s)
        if fresh:
            log.info("Server %s speaks (%d devices)", report.server, len(report.devices))
            for session in self.cluster.sessions.values():
                if session.live and report.server in (self.cluster.server_of(session), *session.roots):
                    self.applier.attach(session)
        if self.cluster.servers[report.server].missed:
            self.applier.ask_again(report.server)
        for held in report.held:
            known = self.cluster.sessions.get(held.session)
            if not (held.alive if known is None else known.live):  # its end was told while that server was away
                self.applier.forget(held.session, report.server)
        self.touch()
        return again_s

    def touch(self) -> None:
        """Something changed: the loop takes a turn."""
        self.rev += 1
        self.changes += 1
        self._frame = None
        self.wake.set()

    def pulse(self) -> None:
        """Whoever waits for a turn's outcome looks again."""
        self._frame = None
        pulse, self._pulse = self._pulse, None
        if pulse is not None:
            pulse.set_result(None)

    async def turned(self, settled: Callable[[], bool], timeout_s: float) -> None:
        """Waits for a turn of the loop, then until `settled` or `timeout_s` later, or the broker stops."""
        running = asyncio.get_running_loop()
        deadline, left_s = running.time() + max(timeout_s, 0.0), FIRST_TURN_S
        while left_s > 0 and not self.stopped:
            self._pulse = self._pulse or running.create_future()
            # Not wait_for: before Python 3.12 it loses a cancellation that meets the turn, and with it a withdrawal.
            done, _ = await asyncio.wait([self._pulse], timeout=left_s)
            if not done or settled():
                return
            left_s = deadline - running.time()

    def apply(self, decisions: Iterable[AnyDecision]) -> None:
        """Carries decisions out, the loop's or a person's."""
        self.applier.decisions(decisions, self.clock())
        self.rev += 1
        self.changes += 1
        self._frame = None

    def decided(self, session: Session, decision: AnyDecision) -> None:
        """A decision was carried out: streams and event listeners hear of it."""
        data = {**plain(decision), "text": explain.WHY.get(decision.why, "")}
        self.streams.tell("decision", session.user, session.id, data)
        if self.on_decision is not None:
            self.on_decision(session.user, session.id, data)

    def warned(self, session: Session, decision: Warn) -> None:
        data = {"session": session.id, "rung": decision.rung, "in_s": decision.in_s, "why": decision.why}
        self.streams.tell("warning", session.user, session.id, data)

    def end(self, session: Session, why: str) -> None:
        """A lease's end is proven: what it held is free, what survives of it is a leftover."""
        if not session.live:
            return
        log.info("%s ended: %s", session.id, why)
        if session.reserves is None:
            self.applier.end(session)
            self.ledger.lease_ended(session.id, why)
        now = self.clock()
        session.ended, session.end_why, session.burst = now, why, None
        session.placements, session.parked_bytes, session.held = {}, None, None
        session.waiting_since, session.gated, session.cells = None, False, 0
        session.warned = session.warned_until = None
        wishes.pin(self, session, None)
        for key in [key for key, holder in self.cluster.tickets.items() if holder == session.id]:
            del self.cluster.tickets[key]
        if session.reserves is not None:
            self.cluster.reservations.pop(session.reserves, None)
            self.cluster.sessions.pop(session.id, None)
        shadow = self.cluster.sessions.get(self.cluster.reservations.get(session.id, ""))
        if shadow is not None:
            self.end(shadow, why)
        self.touch()

    # --- what is asked of it ----------------------------------------------------------------------------------

    def frame(self) -> view.Frame:
        """The cluster as of now, for drawing; the same one until something changes or time goes by."""
        now = self.clock()
        if self._frame is None or self._frame.now != now:
            self._frame = view.Frame(self.cluster, self.settings, self.policy, now, self.rev, upkeep.findings(self))
        return self._frame

    def next_id(self) -> int:
        self.rev += 1
        return self.rev

    def why(self, session: Session) -> Why:
        """Why a session is where it is: what counted when it was placed there, else as of now."""
        now = self.clock()
        decided = tuple(
            {**plain(decision), "text": explain.WHY.get(decision.why, ""), "ago_s": round(max(0.0, now - at), 1)}
            for at, decision in reversed(session.decided)
        )
        if not session.live or not session.wants:
            return Why(terms=(), alternatives=(), decided=decided)
        chosen = session.place
        if chosen is not None and chosen.terms and set(chosen.devices) == set(session.devices):
            return Why(terms=chosen.terms, alternatives=chosen.alternatives, decided=decided)
        matrix = state.build(self.cluster, self.settings, self.policy, now, self.columns)
        policy = in_force(self.policy, matrix, now)
        _, terms, alternatives = placement(matrix, row_of(matrix.sessions.id, session.id), policy)
        return Why(terms=terms, alternatives=alternatives, decided=decided)

    # --- the ledger -------------------------------------------------------------------------------------------

    async def _recover(self) -> None:
        rows = await self.ledger.leases()
        self._unread = rows is None
        if rows is None:
            return  # all of it is asked for again when the ledger is back: who takes over must not wait for it
        if rows:
            count = recovery.recover(self.cluster, rows, self.clock())
            log.info("Took up %d leases of the ledger; each is kept until proof of its end", count)
            for session in self.cluster.sessions.values():
                self.applier.attach(session)
                self.applier.remember(session)
        wishes.restore(self, await self.ledger.wishes() or ())
        usage = await self.ledger.fair_usage()
        now = self.clock()
        for user, saved in (usage or {}).items():
            self.cluster.usage.setdefault(user, Usage(saved.usage, now - saved.age_s))

    async def _housekeeping(self) -> None:
        """What may wait for the database: leases that could not be read at the start, usage saved now and then."""
        while True:
            await asyncio.sleep(1.0)
            loop.show_metrics(self)
            pace.forget(self, self.clock())
            if self._unread and self.ledger.degraded is None:
                await self._recover()
                self.touch()
            if self.clock() - self._saved_at >= SAVE_USAGE_S:
                self._save_usage()

    def _save_usage(self) -> None:
        now = self._saved_at = self.clock()
        self.ledger.usage_saved(
            {user: state.usage_of(self.cluster, user, self.policy, now) for user in self.cluster.usage}
        )


def _told(task: asyncio.Task[None]) -> None:
    """A task of the broker's life that ends by a bug says so at once, not when the broker stops."""
    if not task.cancelled() and task.exception() is not None:
        log.critical("%s ended; restart this server", task.get_name(), exc_info=task.exception())
