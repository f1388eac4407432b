"""The durable record of leases, usage and decisions, as the event loop sees it: nothing here blocks or raises.

All work with the database is done by one thread (rule 9). What waits to be written lies in a bounded journal; while the
database is away it stays there, `degraded` says why, and it is written once the database is back (rule 12).
"""

from __future__ import annotations

import asyncio
import logging
import math
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import msgspec

from ..errors import Unavailable
from ..model import Caller, Finding
from .journal import AuditWrite, DecisionWrite, Journal, LeaseWrite, WishWrite
from .rows import DecisionRow, FairUsage, History, HistoryQuery, LeaseRow, UsageRow, Wish
from .storage import default_url

if TYPE_CHECKING:
    from .database import Database, Trouble

__all__ = [
    "DecisionRow",
    "FairUsage",
    "History",
    "HistoryQuery",
    "LeaseRow",
    "Ledger",
    "UsageRow",
    "default_url",
]

log = logging.getLogger(__name__)
Answer = TypeVar("Answer")
Ask: TypeAlias = "tuple[Callable[[Database], object], Future]"

ASKS_MAX = 64  # questions in line
LAZY_S = 10.0  # sums and decisions wait so long for company
SILENT_S = 3.0  # a database that takes longer is away (a hanging network file system)
NOTICE_S = 3600.0  # how long something that happened once is shown
RETRY_MAX_S = 30.0
SUPERSEDED = "Another GPU broker leads and writes the ledger since."
OWN_ERROR = "The ledger failed by an error of its own; the server's log has it. Leases are kept in memory meanwhile."


class Ledger:
    """Made by `Ledger.open`. Methods without `await` only take note; the thread writes."""

    def __init__(
        self,
        url: str,
        broker: str,
        *,
        clock: Callable[[], float],
        wall: Callable[[], float],
        retry_s: float,
        alone: bool,
    ) -> None:
        self._url, self._broker, self._alone = url, broker, alone
        self.superseded = False  # another ledger of this name that is `alone` writes since
        self._clock, self._wall = clock, wall
        self._retry_s = retry_s
        self._wake = threading.Condition()  # guards the five below; never held while the database is spoken to
        self._journal = Journal()
        self._asks: list[Ask] = []
        self._lazy_until: float | None = None
        self._closing = False
        self._open: dict[str, LeaseWrite] = {}  # every open lease, written again to a database that was lost
        self._working_since: float | None = None
        self._trouble: str | None = None
        self._notice: tuple[str, float] | None = None
        self._thread = threading.Thread(target=self._work, name="gpushare-ledger", daemon=True)

    @classmethod
    async def open(
        cls,
        url: str = "",
        *,
        broker: str = "",
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        timeout_s: float = 5.0,
        retry_s: float = 0.5,
        alone: bool = False,
    ) -> Ledger:
        """A ledger on this SQLAlchemy URL, tables made and migrated; the default one for an empty URL.

        Brokers that may use the same database at the same time need different names in `broker`, each the same over
        restarts: none of them sees the others' leases, usage and history. Where several have one name and one of them
        leads, the ledger of who leads is `alone`: those that were so before it write nothing any more.

        Returns within `timeout_s` in any case; a database that is not there by then is tried again after `retry_s`,
        then ever more rarely, and `degraded` says so.
        """
        ledger = cls(url, broker, clock=clock, wall=wall, retry_s=retry_s, alone=alone)
        ledger._thread.start()
        await ledger.flushed(timeout_s)
        return ledger

    @property
    def degraded(self) -> Finding | None:
        """Why what happens now is not recorded, or what befell the record within the last hour."""
        since = self._working_since
        if self._trouble is not None:
            return Finding(code="ledger", message=self._trouble)
        if since is not None and self._clock() - since > SILENT_S:
            return Finding(
                code="ledger", message="The ledger does not answer; leases are kept in memory until it does."
            )
        if self._notice is not None and self._clock() < self._notice[1]:
            return Finding(code="ledger", message=self._notice[0])
        return None

    # --- what is taken note of --------------------------------------------------------------------------------

    def lease_granted(self, row: LeaseRow) -> None:
        """A session holds this from now on."""
        self._note_lease(row.session, LeaseWrite(_clean(row), self._wall()))

    def lease_changed(self, row: LeaseRow) -> None:
        """The same lease, other facts: its process, devices, demand."""
        with self._wake:
            known = self._open.get(row.session)
        self._note_lease(row.session, LeaseWrite(_clean(row), known.opened_at if known else self._wall()))

    def lease_ended(self, session: str, why: str) -> None:
        """It holds nothing any more. Ending what is not open changes nothing."""
        now = self._wall()
        with self._wake:
            known = self._open.get(session, LeaseWrite(None, now))
        self._note_lease(session, known._replace(ended_at=max(now, known.opened_at), why=why))

    def _note_lease(self, session: str, write: LeaseWrite) -> None:
        with self._wake:
            self._journal.leases[session] = write
            if write.ended_at is None:
                self._open[session] = write
            else:
                self._open.pop(session, None)
            self._wake.notify()

    def decision(self, row: DecisionRow) -> None:
        """A decision that was carried out."""
        with self._wake:
            self._journal.add(self._journal.decisions, DecisionWrite(self._wall(), row.user, row.decision))
            self._written_soon()

    def usage(self, *rows: UsageRow) -> None:
        """What sessions had of their devices since it was last said."""
        now = self._wall()
        with self._wake:
            for row in rows:
                self._journal.add_usage(row, now)
            self._written_soon()

    def usage_saved(self, usage: dict[str, float]) -> None:
        """The decayed usage of all users as it is now. Negative values count as 0, what is not a number not at all."""
        with self._wake:
            self._journal.fair = {user: max(value, 0.0) for user, value in usage.items() if math.isfinite(value)}
            self._journal.fair_at = self._wall()
            self._written_soon()

    def wished(self, kind: str, key: str, value: str | None = "", for_s: float | None = None) -> None:
        """Somebody asked for something that shall last: a pin, a drain, a demand. `value` None takes it back."""
        until = None if for_s is None else self._wall() + for_s
        with self._wake:
            self._journal.wishes[(kind, _text(key))] = WishWrite(value, until)
            self._wake.notify()

    def audit(self, caller: Caller, verb: str, target: str, outcome: str, message: str = "") -> None:
        """Who asked for which change, and what came of it."""
        role = "admin" if caller.admin else caller.role
        entry = AuditWrite(self._wall(), *map(_text, (caller.user, role, verb, target, outcome, message)))
        with self._wake:
            self._journal.add(self._journal.audits, entry)
            self._wake.notify()

    def _written_soon(self) -> None:
        if self._lazy_until is None:
            self._lazy_until = time.monotonic() + LAZY_S
            self._wake.notify()

    # --- what is asked ----------------------------------------------------------------------------------------

    async def flushed(self, timeout_s: float = 1.0) -> bool:
        """Whether all that was noted before is in the database now."""
        try:
            await self._ask(lambda database: None, timeout_s)
        except Unavailable:
            return False
        return True

    async def leases(self, timeout_s: float = 5.0) -> list[LeaseRow] | None:
        """Every open lease; None where that could not be read: ask again when `degraded` is None."""
        try:
            found = await self._ask(lambda database: database.leases(), timeout_s)
        except Unavailable:
            return None
        with self._wake:
            for write in found:
                self._open.setdefault(write.row.session, write)
        return [write.row for write in found]

    async def wishes(self, timeout_s: float = 5.0) -> list[Wish] | None:
        """What people asked to last, with the time that is left; None where that could not be read."""
        now = self._wall()
        try:
            return await self._ask(lambda database: database.wishes(now), timeout_s)
        except Unavailable:
            return None

    async def fair_usage(self, timeout_s: float = 5.0) -> dict[str, FairUsage] | None:
        """What `usage_saved` saved last, by user; None where that could not be read."""
        now = self._wall()
        try:
            return await self._ask(lambda database: database.fair_usage(now), timeout_s)
        except Unavailable:
            return None

    async def history(self, query: HistoryQuery, timeout_s: float = 10.0) -> History:
        """The past as far as it is written. Raises Unavailable."""
        now = self._wall()
        return await self._ask(lambda database: database.history(query, now), timeout_s)

    async def close(self, timeout_s: float = 5.0, *, write: bool = True) -> None:
        """Writes what waits and lets go; what a silent database does not take within `timeout_s` is lost.

        `write` False: what waits is dropped, because another broker's word counts by now.
        """
        with self._wake:
            if not write:
                self._journal = Journal()
            self._closing = True
            self._wake.notify()
        await asyncio.get_running_loop().run_in_executor(None, self._thread.join, timeout_s)

    async def _ask(self, question: Callable[[Database], Answer], timeout_s: float) -> Answer:
        """The thread's answer, after all that was noted before. Raises Unavailable."""
        answer: Future[Answer] = Future()
        with self._wake:
            if self._closing or not self._thread.is_alive():
                raise Unavailable("The ledger is closed.")
            if len(self._asks) >= ASKS_MAX:
                raise Unavailable("The ledger is busy; ask again in a moment.")
            self._asks.append((question, answer))
            self._wake.notify()
        try:
            return await asyncio.wait_for(asyncio.wrap_future(answer), timeout_s)
        except asyncio.TimeoutError:
            raise Unavailable(f"The ledger did not answer within {timeout_s:g} s; ask again later.") from None

    # --- the thread -------------------------------------------------------------------------------------------

    def _work(self) -> None:
        # Here: importing SQLAlchemy takes longer than a server's start may.
        from .database import Database, Superseded, Trouble

        database = Database(self._url, self._broker, alone=self._alone)
        pause_s = 0.0
        asks: list[Ask] = []
        try:
            closing = False
            while not closing:
                closing = self._await_work(pause_s)
                journal, asks = self._take()
                if closing and not (journal or asks):
                    break
                self._working_since = self._clock()
                try:
                    if database.connect():
                        self._restore(journal)
                    journal, trouble = self._write(database, journal)
                    if trouble is None:
                        database.prune(self._wall())
                except Trouble as error:
                    trouble = error
                except Superseded:
                    self.superseded, self._trouble = True, SUPERSEDED
                    break
                except Exception:  # a bug: what waits is kept, and the thread lives on
                    if self._trouble is None:
                        log.exception("The ledger failed by an error of its own; it is tried again")
                    trouble = Trouble(OWN_ERROR)
                if trouble is None:
                    self._take_notice(database)
                    self._say(None)
                    _answer(database, asks)
                    pause_s = 0.0
                else:
                    self._put_back(journal)
                    self._say(str(trouble), journal.dropped)
                    _refuse(asks, str(trouble))
                    pause_s = min(max(2 * pause_s, self._retry_s), RETRY_MAX_S)
                self._working_since = None
        finally:
            database.close()
            with self._wake:
                if not (self._closing or self.superseded):
                    self._trouble = "The ledger stopped because of an error of its own; the server's log has it."
                self._closing = True
                _refuse(asks + self._asks, "The ledger is closed.")

    def _await_work(self, pause_s: float) -> bool:
        """Waits until something is to be done, but `pause_s` at least unless somebody asks. Whether it is the last."""
        earliest = time.monotonic() + pause_s
        with self._wake:
            while not (self._asks or self._closing):
                due = None
                if self._journal.urgent or self._trouble is not None:
                    due = earliest
                elif self._journal:
                    due = max(earliest, self._lazy_until or earliest)
                wait_s = None if due is None else due - time.monotonic()
                if wait_s is not None and wait_s <= 0:
                    break
                self._wake.wait(wait_s)
            return self._closing

    def _take(self) -> tuple[Journal, list[Ask]]:
        with self._wake:
            journal, asks = self._journal, self._asks
            self._journal, self._asks, self._lazy_until = Journal(), [], None
        return journal, [ask for ask in asks if ask[1].set_running_or_notify_cancel()]  # not those given up

    def _write(self, database: Database, journal: Journal) -> tuple[Journal, Trouble | None]:
        """Writes all of it; where a value is refused, each entry by itself. What is left to write, and why."""
        from .database import Superseded, Trouble

        try:
            database.write(journal)
        except Trouble as trouble:
            return journal, trouble
        except Superseded:
            raise
        except Exception:  # a value that no driver takes would fail for ever, and the others with it
            log.exception("The ledger could not write its entries together; each is written by itself")
        else:
            return Journal(), None
        left, failed = Journal(), None
        for entry in journal.singles():
            if failed is None:
                try:
                    database.write(entry)
                except Trouble as trouble:
                    failed = trouble
                except Superseded:
                    raise
                except Exception:  # whatever this value does to the driver, it does to nobody else
                    log.exception("The ledger dropped an entry that cannot be written: %.200r", entry)
                    self._forget(entry)
            if failed is not None:
                left.absorb(entry)
        return left, failed

    def _forget(self, entry: Journal) -> None:
        """A lease that was dropped is not restored with the next connection."""
        with self._wake:
            for session, write in entry.leases.items():
                if self._open.get(session) is write:
                    del self._open[session]

    def _put_back(self, journal: Journal) -> None:
        """What could not be written comes before what was noted meanwhile."""
        with self._wake:
            journal.absorb(self._journal)
            self._journal = journal

    def _restore(self, journal: Journal) -> None:
        """A database just opened may be a new one: every open lease is written to it again."""
        with self._wake:
            journal.leases = {**self._open, **journal.leases}

    def _take_notice(self, database: Database) -> None:
        if database.notice is not None:
            log.warning("%s", database.notice)
            self._notice = (database.notice, self._clock() + NOTICE_S)
            database.notice = None

    def _say(self, trouble: str | None, dropped: int = 0) -> None:
        """Keeps what `degraded` says, and logs when that changes."""
        if trouble is None and self._trouble is not None:
            log.info("The ledger is back; what waited is written.")
        elif trouble is not None and self._trouble is None:
            log.warning("%s", trouble)
        lost = f" The oldest {dropped} entries of usage and decisions were dropped." if dropped else ""
        self._trouble = None if trouble is None else trouble + lost


def _answer(database: Database, asks: list[Ask]) -> None:
    from .database import Trouble

    for question, answer in asks:
        try:
            answer.set_result(question(database))
        except Trouble as trouble:
            answer.set_exception(Unavailable(str(trouble)))
        except Exception:  # a bug in one question must not end the thread: leases still have to be written
            log.exception("A question to the ledger could not be answered")
            answer.set_exception(Unavailable("The ledger could not answer this; the server's log has why."))


def _refuse(asks: list[Ask], message: str) -> None:
    for _, answer in asks:
        if not answer.done():
            answer.set_exception(Unavailable(message))


def _text(text: str) -> str:
    """Text that every database takes: file names may hold bytes that are no characters."""
    return text.encode("utf-8", "backslashreplace").decode().replace("\0", "")


def _clean(row: LeaseRow) -> LeaseRow:
    path = None if row.path is None else _text(row.path)
    return msgspec.structs.replace(row, label=_text(row.label), path=path)
