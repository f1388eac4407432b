"""The ledger's side of SQL: opening, migrating, writing and reading. Blocks; called by the ledger's thread only."""

from __future__ import annotations

import contextlib
import logging
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from sqlalchemy import (
    Connection,
    Engine,
    RowMapping,
    Table,
    bindparam,
    create_engine,
    delete,
    event,
    insert,
    inspect,
    select,
    text,
    update,
)
from sqlalchemy.engine import URL, make_url
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import DatabaseError, DataError, IntegrityError, SQLAlchemyError
from sqlalchemy.pool import StaticPool

from ..model import Demand
from . import tables
from .history import history
from .journal import DecisionWrite, Journal, LeaseWrite, UsageKey, UsageSums, WishWrite
from .rows import FairUsage, History, HistoryQuery, LeaseRow, Wish
from .storage import default_url, on_network

log = logging.getLogger(__name__)

MIGRATIONS = Path(__file__).parent / "migrations"
HEAD = "0004"  # the newest of them
MIGRATING = 0x6770755368617265  # "gpuShare": the lock of whoever changes the tables of a PostgreSQL database
LOCK_WAIT_S = 2.0
WITHIN_MS = 5000  # PostgreSQL ends a transaction whose client says nothing for so long: it may be cut off or paused
AWAY = {  # and a client of PostgreSQL notices so soon that it is cut off (libpq's names)
    "connect_timeout": 5,
    "tcp_user_timeout": 10_000,  # ms
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
}
DAY_S = 86400.0
KEPT_S = 400 * DAY_S  # a year can be compared with the one before
_DAMAGED = ("file is not a database", "database disk image is malformed", "malformed database schema")


class Trouble(Exception):
    """The database cannot be used now. The message says why, for people."""


class Superseded(Exception):
    """Another broker of the same name writes since: whatever this one knows may be wrong by now."""


class Database:
    """One connection to one database, opened when it is needed and again after every trouble."""

    def __init__(self, url: str, broker: str = "", mount_table: str | None = None, *, alone: bool = False) -> None:
        """`broker`: whose rows are written and read. `alone`: by this one only, until the next that says so."""
        self._asked, self._broker, self._mount_table = url, broker, mount_table
        self._alone, self._turn = alone, 0
        self._url: URL | None = None
        self._engine: Engine | None = None
        self._connection: Connection | None = None
        self._identity: tuple[int, int] | None = None  # device and inode of the file that is open
        self._damaged = False
        self._pruned: float | None = None
        self.notice: str | None = None  # something an admin should hear of, once

    # --- opening ----------------------------------------------------------------------------------------------

    def connect(self) -> bool:
        """Makes sure there is a usable connection. True: it is a new one. Raises Trouble."""
        try:
            return self._connect()
        except Trouble:
            if not self._damaged:
                raise
            return self._connect()  # with a new file

    def _connect(self) -> bool:
        with self._troubles():
            file = self._file()
            if self._connection is not None and self._identity == _identity(file):
                return False
            self.close()
            if file is not None:
                if self._damaged:
                    self._move_aside(file)
                file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                # The file exists before SQLite sees it, so that it and its companions are the owner's only.
                os.close(os.open(file, os.O_CREAT | os.O_RDWR, 0o600))
            self._engine = _engine(self._url, wal=file is not None and not on_network(file, self._mount_table))
            self._connection = self._engine.connect()
            _migrate(self._connection)
            if self._alone and not self._turn:
                self._turn = _taken(self._connection, self._broker)
            self._identity = _identity(file)
            return True

    def close(self) -> None:
        """Lets go of the connection. Safe to call twice."""
        connection, engine = self._connection, self._engine
        self._connection = self._engine = None
        with contextlib.suppress(SQLAlchemyError):  # what is broken already cannot be closed more
            if connection is not None:
                connection.close()
            if engine is not None:
                engine.dispose()

    def _file(self) -> Path | None:
        """The SQLite file, None for other databases and those in memory."""
        if self._url is None:
            url = self._asked
            if not url:
                url, self.notice = default_url()
            self._url = make_url(url)
        name = self._url.database
        is_file = self._url.get_backend_name() == "sqlite" and name and name != ":memory:"
        return Path(name).absolute() if is_file else None

    def _move_aside(self, file: Path) -> None:
        """A damaged file is kept for whoever can read it, and a new one is begun."""
        number = 1
        while (aside := file.with_name(f"{file.name}.damaged-{number}")).exists():
            number += 1
        for suffix in ("-wal", "-shm", "-journal", ""):
            companion = file.with_name(file.name + suffix)
            if companion.exists():
                companion.rename(file.with_name(aside.name + suffix))
        self._damaged = False
        self.notice = f"The ledger {file} was damaged; it was moved to {aside.name} and a new one begun."

    @contextlib.contextmanager
    def _troubles(self) -> Iterator[None]:
        """Every way a database fails becomes Trouble, in words; the connection is given up. What it refuses passes."""
        try:
            yield
        except (DataError, IntegrityError):
            raise  # the database is well; it refuses this value, and would for ever
        except (SQLAlchemyError, OSError, ImportError) as error:
            self.close()
            self._damaged = isinstance(error, DatabaseError) and any(sign in str(error.orig) for sign in _DAMAGED)
            raise Trouble(self._in_words(error)) from error

    def _in_words(self, error: Exception) -> str:
        where = self._url.render_as_string(hide_password=True) if self._url is not None else "(URL not readable)"
        reason = str(getattr(error, "orig", None) or error).strip().splitlines()[0]
        known = {
            "locked": "another process locks it",
            "readonly": "it cannot be written (read-only)",
            "is full": "the disk is full",
            "unable to open": "its file cannot be opened",
            "Can't locate revision": "it was written by a newer version of jupyter-gpushare",
            "No module named": "its driver is not installed",
        }
        words = next((said for sign, said in known.items() if sign in reason), None)
        why = f"{words}: {reason}" if words else reason
        return f"The ledger {where} cannot be used, {why}. Leases are kept in memory until it can."

    # --- writing ----------------------------------------------------------------------------------------------

    def write(self, journal: Journal) -> None:
        """All of it or nothing. Raises Trouble, Superseded."""
        if not journal:
            return
        with self._transaction() as connection:
            if self._turn:
                _check_turn(connection, self._broker, self._turn)
            for session, lease in journal.leases.items():
                _write_lease(connection, self._broker, session, lease)
            if journal.usage:
                _write_usage(connection, self._broker, journal.usage)
            mine = {"broker": self._broker}
            if journal.decisions:
                connection.execute(insert(tables.decisions), [mine | _decision(record) for record in journal.decisions])
            if journal.audits:
                connection.execute(insert(tables.audit), [mine | record._asdict() for record in journal.audits])
            for (kind, key), wish in journal.wishes.items():
                _write_wish(connection, self._broker, kind, key, wish)
            if journal.fair:
                table = tables.fair_usage
                old = (table.c.broker == self._broker) & table.c.user.in_(journal.fair)
                connection.execute(delete(table).where(old))
                rows = [{"user": u, "usage": value, "saved_at": journal.fair_at} for u, value in journal.fair.items()]
                connection.execute(insert(table), [mine | row for row in rows])

    def prune(self, now: float) -> None:
        """Forgets what is older than KEPT_S, once a day: no disk holds everything. Raises Trouble."""
        if self._pruned is not None and 0 <= now - self._pruned < DAY_S:
            return
        old = now - KEPT_S
        leases, past = tables.leases, (tables.usage, tables.usage_days, tables.decisions, tables.audit)
        with self._transaction() as connection:
            connection.execute(delete(leases).where(leases.c.ended_at < old))
            connection.execute(delete(tables.wishes).where(tables.wishes.c.until < now))
            for table in past:
                connection.execute(delete(table).where(table.c.at < old))
        self._pruned = now

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[Connection]:
        """Committed at its end, undone by an error. Raises Trouble."""
        with self._troubles():
            assert self._connection is not None, "connect() comes first"
            with self._connection.begin():
                yield self._connection

    # --- reading ----------------------------------------------------------------------------------------------

    def leases(self) -> list[LeaseWrite]:
        """Every open lease, oldest first. Raises Trouble."""
        table = tables.leases
        with self._transaction() as connection:
            mine = (table.c.broker == self._broker) & table.c.ended_at.is_(None)
            rows = connection.execute(select(table).where(mine).order_by(table.c.id)).mappings()
            return [lease for row in rows if (lease := _lease(row)) is not None]

    def fair_usage(self, now: float) -> dict[str, FairUsage]:
        """The usage saved last, by user. Raises Trouble."""
        with self._transaction() as connection:
            mine = tables.fair_usage.c.broker == self._broker
            rows = connection.execute(select(tables.fair_usage).where(mine)).all()
        return {row.user: FairUsage(usage=max(row.usage, 0.0), age_s=max(now - row.saved_at, 0.0)) for row in rows}

    def wishes(self, now: float) -> list[Wish]:
        """What people asked to last and has not ended. Raises Trouble."""
        table = tables.wishes
        with self._transaction() as connection:
            rows = connection.execute(select(table).where(table.c.broker == self._broker).order_by(table.c.until)).all()
        left = [(row, None if row.until is None else row.until - now) for row in rows]
        return [
            Wish(kind=row.kind, key=row.key, value=row.value, left_s=left_s)
            for row, left_s in left
            if left_s is None or left_s > 0
        ]

    def history(self, query: HistoryQuery, now: float) -> History:
        """Raises Trouble."""
        with self._transaction() as connection:
            return history(connection, self._broker, query, now)


def _identity(file: Path | None) -> tuple[int, int] | None:
    """Which file lies at that path: SQLite would go on writing to one that was deleted or replaced."""
    if file is None:
        return (0, 0)
    try:
        found = file.stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def _taken(connection: Connection, broker: str) -> int:
    """The next turn to write, which ends the one before."""
    table = tables.writers
    mine = table.c.broker == broker
    with connection.begin():
        if not connection.execute(update(table).where(mine).values(turn=table.c.turn + 1)).rowcount:
            connection.execute(insert(table).values(broker=broker, turn=1))
        return int(connection.execute(select(table.c.turn).where(mine)).scalar_one())


def _check_turn(connection: Connection, broker: str, turn: int) -> None:
    """Raises Superseded. The row stays locked to the transaction's end, so that no turn ends within it."""
    table = tables.writers
    mine = (table.c.broker == broker) & (table.c.turn == turn)
    if not connection.execute(update(table).where(mine).values(turn=turn)).rowcount:
        raise Superseded


def _engine(url: URL, wal: bool) -> Engine:
    if url.get_backend_name() == "postgresql":
        return _postgresql(url)
    if url.get_backend_name() != "sqlite":
        return create_engine(url, pool_pre_ping=True)
    patience = {} if "timeout" in url.query else {"timeout": LOCK_WAIT_S}
    engine = create_engine(url, poolclass=StaticPool, connect_args=patience)

    @event.listens_for(engine, "connect")
    def prepare(connection: sqlite3.Connection, _record: object) -> None:
        connection.isolation_level = None  # else the driver commits before every CREATE TABLE
        connection.execute(f"PRAGMA journal_mode={'WAL' if wal else 'DELETE'}")
        connection.execute(f"PRAGMA synchronous={'NORMAL' if wal else 'FULL'}")  # NORMAL keeps a commit over kill -9

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        connection.exec_driver_sql("BEGIN")

    return engine


def _postgresql(url: URL) -> Engine:
    with_libpq = url.get_driver_name().startswith("psycopg")
    patience = {name: value for name, value in AWAY.items() if with_libpq and name not in url.query}
    engine = create_engine(url, pool_pre_ping=True, connect_args=patience)

    @event.listens_for(engine, "connect")
    def prepare(connection: DBAPIConnection, _record: object) -> None:
        cursor = connection.cursor()
        cursor.execute(f"SET idle_in_transaction_session_timeout = {WITHIN_MS}")
        cursor.close()
        connection.commit()

    return engine


def _migrate(connection: Connection) -> None:
    """Brings the tables up to date, all of it or nothing; of several brokers that start at once one does it."""
    with connection.begin():
        if connection.dialect.name == "postgresql":  # SQLite's own write lock does this
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": MIGRATING})
        if inspect(connection).has_table("alembic_version"):
            found = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
            if found == HEAD:
                return
        from alembic import command  # here: only a new or an old database needs it
        from alembic.config import Config
        from alembic.util import CommandError

        config = Config()
        config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
        config.set_main_option("path_separator", "os")
        config.attributes["connection"] = connection
        try:
            command.upgrade(config, "head")
        except CommandError as error:
            raise SQLAlchemyError(str(error)) from error


def _write_lease(connection: Connection, broker: str, session: str, lease: LeaseWrite) -> None:
    """Changes the session's open lease, or makes one: never a second."""
    table = tables.leases
    values = {"opened_at": lease.opened_at, "ended_at": lease.ended_at, "why": lease.why}
    if lease.row is None:
        del values["opened_at"]
    else:
        values |= msgspec.structs.asdict(lease.row)
        values["devices"] = _json(lease.row.devices)
        values["demand"] = _json(lease.row.demand)
    here = (table.c.broker == broker) & (table.c.session == session) & table.c.ended_at.is_(None)
    changed = connection.execute(update(table).where(here).values(values)).rowcount
    if not changed and lease.row is not None:
        connection.execute(insert(table).values(broker=broker, **values))


def _write_wish(connection: Connection, broker: str, kind: str, key: str, wish: WishWrite) -> None:
    table = tables.wishes
    here = (table.c.broker == broker) & (table.c.kind == kind) & (table.c.key == key)
    connection.execute(delete(table).where(here))
    if wish.value is not None:
        connection.execute(insert(table).values(broker=broker, kind=kind, key=key, **wish._asdict()))


def _write_usage(connection: Connection, broker: str, usage: dict[UsageKey, UsageSums]) -> None:
    days: dict[tuple[int, str, str], UsageSums] = {}
    for key, sums in usage.items():
        day = (key.at - key.at % int(DAY_S), key.user, key.group or "")
        days[day] = days.get(day, UsageSums()).plus(sums)
    stretches = [key._asdict() | sums._asdict() for key, sums in usage.items()]
    by_day = [dict(zip(("at", "user", "group"), day, strict=True)) | sums._asdict() for day, sums in days.items()]
    _add_up(connection, broker, tables.usage, ("at", "session", "device"), stretches)
    _add_up(connection, broker, tables.usage_days, ("at", "user", "group"), by_day)


def _add_up(
    connection: Connection, broker: str, table: Table, keys: tuple[str, ...], rows: list[dict[str, Any]]
) -> None:
    """Adds to the rows that are there and makes the others: three statements, however many rows."""
    begins = [row["at"] for row in rows]
    there = (table.c.broker == broker) & table.c.at.between(min(begins), max(begins))
    known = {tuple(row) for row in connection.execute(select(*(table.c[key] for key in keys)).where(there))}
    new, more = [], []
    for row in rows:
        key = tuple(row[name] for name in keys)
        if key in known:
            more.append({f"its_{name}": value for name, value in row.items()} | {"its_broker": broker})
        else:
            known.add(key)
            new.append(row | {"broker": broker})
    if new:
        connection.execute(insert(table), new)
    if more:
        same = [table.c[name] == bindparam(f"its_{name}") for name in ("broker", *keys)]
        sums = {name: table.c[name] + bindparam(f"its_{name}") for name in UsageSums._fields}
        connection.execute(update(table).where(*same).values(sums), more)


def _decision(record: DecisionWrite) -> dict[str, object]:
    decision = record.decision
    return {
        "at": record.at,
        "session": decision.session,
        "user": record.user,
        "act": decision.__struct_config__.tag,
        "why": decision.why,
        "decision": _json(decision),
    }


def _lease(row: RowMapping) -> LeaseWrite | None:
    """A row as it was written; None, and logged, for one that cannot be read: it must not hide the others."""
    facts = {name: row[name] for name in LeaseRow.__struct_fields__}
    try:
        facts["devices"] = msgspec.json.decode(row["devices"], type=tuple[str, ...])
        facts["demand"] = msgspec.json.decode(row["demand"], type=Demand)
    except msgspec.MsgspecError as error:
        log.warning("lease %s of session %s cannot be read: %s", row["id"], row["session"], error)
        return None
    return LeaseWrite(LeaseRow(**facts), row["opened_at"])


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
