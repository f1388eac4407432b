"""Migrations lead to the tables the code uses, from any earlier state, all of it or nothing."""

from __future__ import annotations

import sqlite3

import msgspec
import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine, func, inspect, select
from sqlalchemy.exc import IntegrityError

from jupyter_gpushare.broker import database as module
from jupyter_gpushare.broker import tables
from jupyter_gpushare.broker.database import HEAD, Database, Trouble
from jupyter_gpushare.broker.journal import AuditWrite, Journal, LeaseWrite
from jupyter_gpushare.broker.rows import LeaseRow, UsageRow
from jupyter_gpushare.broker.tables import metadata

NFS = "srv:/home {folder} nfs4 rw 0 0\n"


@pytest.fixture
def engine(tmp_path):
    engine = create_engine(f"sqlite:///{tmp_path}/ledger.sqlite")
    yield engine
    engine.dispose()


@pytest.fixture
def database(tmp_path):
    database = Database(f"sqlite:///{tmp_path}/ledger.sqlite")
    yield database
    database.close()


def test_migrations_from_nothing_make_the_tables_of_the_code(database, engine):
    assert database.connect() is True
    assert database.connect() is False

    with engine.connect() as connection:
        context = MigrationContext.configure(connection)
        assert compare_metadata(context, metadata) == []
        assert context.get_current_revision() == HEAD


def test_the_newest_migration_is_the_one_the_code_expects():
    config = Config()
    config.set_main_option("script_location", str(module.MIGRATIONS))
    config.set_main_option("path_separator", "os")
    assert ScriptDirectory.from_config(config).get_current_head() == HEAD


def test_an_old_schema_is_brought_up_to_date(database, engine):
    with engine.begin() as connection:  # as alembic leaves it before its first migration
        connection.exec_driver_sql("CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL PRIMARY KEY)")

    database.connect()

    with engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []


def test_usage_from_before_there_were_sums_of_days_is_in_them(database, engine):
    config = Config()
    config.set_main_option("script_location", str(module.MIGRATIONS).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "0002")
        for at, session, group in ((86400, "k1", "vision"), (90000, "k2", "vision"), (90000, "k3", None)):
            values = {"broker": "", "at": at, "session": session, "device": "GPU-a", "user": "alice", "group": group}
            seconds = {"held_s": 10.0, "gpu_s": 5.0, "used_s": 1.0, "known_s": 2.0}
            connection.execute(tables.usage.insert().values(**values, **seconds))

    database.connect()

    with engine.connect() as connection:
        rows = connection.execute(select(tables.usage_days).order_by(tables.usage_days.c.group)).all()
    assert [tuple(row) for row in rows] == [
        ("", 86400, "alice", "", 10.0, 5.0, 1.0, 2.0),
        ("", 86400, "alice", "vision", 20.0, 10.0, 2.0, 4.0),
    ]


def test_a_migration_that_fails_half_way_leaves_nothing_behind_and_is_tried_again(database, engine):
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE fair_usage (in_the_way INTEGER)")  # the last table that is made
    with pytest.raises(Trouble, match="fair_usage"):
        database.connect()
    assert inspect(engine).get_table_names() == ["fair_usage"]

    with engine.begin() as connection:
        connection.exec_driver_sql("DROP TABLE fair_usage")
    assert database.connect() is True


def test_the_database_itself_refuses_a_second_open_lease(database, tmp_path):
    database.connect()
    row = LeaseRow(session="k1", user="alice", origin="o", server="s", label="l")
    database.write(Journal(leases={"k1": LeaseWrite(row, 1.0)}))
    database.close()

    connection = sqlite3.connect(tmp_path / "ledger.sqlite")
    names = [name for _, name, *_ in connection.execute("PRAGMA table_info(leases)") if name != "id"]
    columns = ", ".join(f'"{name}"' for name in names)
    copy = f"INSERT INTO leases ({columns}) SELECT {columns} FROM leases"
    with pytest.raises(sqlite3.IntegrityError):
        connection.execute(copy)
    connection.execute("UPDATE leases SET ended_at = 2.0")
    connection.execute(copy)  # another ended one is history
    connection.close()


@pytest.mark.parametrize(("network", "journal"), [(False, "wal"), (True, "delete")])
def test_shared_memory_is_used_on_local_file_systems_only(tmp_path, network, journal):
    table = NFS.format(folder=tmp_path) if network else "/dev/sda / ext4 rw 0 0\n"
    database = Database(f"sqlite:///{tmp_path}/ledger.sqlite", mount_table=table)
    database.connect()
    assert database._connection.exec_driver_sql("PRAGMA journal_mode").scalar() == journal
    database.close()


def test_nothing_is_half_written(database):
    database.connect()
    row = LeaseRow(session="k1", user="alice", origin="o", server="s", label="l")
    nameless = LeaseRow(session="k2", user=None, origin="o", server="s", label="l")
    with pytest.raises(IntegrityError):
        database.write(Journal(leases={"k1": LeaseWrite(row, 1.0), "k2": LeaseWrite(nameless, 1.0)}))

    database.connect()
    assert database.leases() == []


def test_what_is_older_than_a_year_is_forgotten_once_a_day_but_no_open_lease():
    database = Database("sqlite://")
    database.connect()
    now = 2 * module.KEPT_S
    row = LeaseRow(session="k1", user="alice", origin="o", server="s", label="l")
    for at in (0.0, now):
        journal = Journal(leases={f"{at}": LeaseWrite(msgspec.structs.replace(row, session=f"{at}"), at)})
        journal.add_usage(UsageRow(session="k1", user="alice", device="GPU-a", held_s=1, gpu_s=1), at)
        journal.add(journal.audits, AuditWrite(at, "alice", "user", "pin", "k1", "ok", ""))
        database.write(journal)

    def count(table) -> int:
        return database._connection.execute(select(func.count()).select_from(table)).scalar()

    database.prune(now)
    assert [count(table) for table in (tables.usage, tables.usage_days, tables.audit, tables.leases)] == [1, 1, 1, 2]
    database._connection.rollback()
    database.write(Journal(leases={"0.0": LeaseWrite(None, 0.0, ended_at=0.0, why="cleanup")}))
    database.prune(now + 1)
    assert count(tables.leases) == 2
    database._connection.rollback()
    database.prune(now + module.DAY_S)
    assert count(tables.leases) == 1
    database.close()


def test_a_ledger_in_memory_works():
    database = Database("sqlite://")
    assert database.connect() is True
    assert database.connect() is False
    assert database.leases() == []
    database.close()
