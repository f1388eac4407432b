"""The ledger keeps what it was told, through everything that happens to databases, and never holds up the loop."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from jupyter_gpushare.broker.ledger import HistoryQuery, LeaseRow, Ledger, UsageRow
from jupyter_gpushare.errors import Unavailable
from jupyter_gpushare.model import Caller, Constraints, Demand


def lease(session: str = "k1", **facts: object) -> LeaseRow:
    return LeaseRow(
        **{
            "session": session,
            "user": "alice",
            "origin": "alice-server",
            "server": "alpha",
            "label": "train.ipynb",
            "devices": ("GPU-a",),
            "guarantee": 0.1,
            **facts,
        }
    )


async def until(condition: Callable[[], bool], timeout_s: float = 10.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        await asyncio.sleep(0.002)


@pytest.fixture
def file(tmp_path) -> Path:
    return tmp_path / "state" / "ledger.sqlite"


@pytest.fixture
def opened(file, jp_asyncio_loop):
    """Opens ledgers on the test's file, closes them all at the end."""
    ledgers = []

    async def open_one(url: str = f"sqlite:///{file}", **how: object) -> Ledger:
        ledger = await Ledger.open(url, **{"retry_s": 0.01, "timeout_s": 20, **how})
        ledgers.append(ledger)
        return ledger

    yield open_one
    for ledger in ledgers:
        jp_asyncio_loop.run_until_complete(ledger.close())


def rows(file: Path, sql: str) -> list[tuple]:
    connection = sqlite3.connect(file)
    try:
        return connection.execute(sql).fetchall()
    finally:
        connection.close()


# --- leases ------------------------------------------------------------------------------------------------------


async def test_of_two_brokers_of_one_name_only_the_later_one_writes_where_one_leads(tmp_path):
    url = f"sqlite:///{tmp_path}/ledger.sqlite"
    first = await Ledger.open(url, alone=True)
    first.lease_granted(lease("k1"))
    assert await first.flushed(20)
    second = await Ledger.open(url, alone=True)
    first.lease_ended("k1", "cleanup")
    try:
        await until(lambda: first.superseded, 20)
        assert [row.session for row in await second.leases()] == ["k1"]
    finally:
        await first.close()
        await second.close()


async def test_an_open_lease_is_there_after_a_restart_with_every_fact(opened):
    demand = Demand(gpus=2, memory=2**34, constraints=Constraints(model="A100"), near=("data:/d",), horizon="long")
    row = lease(devices=("GPU-a", "GPU-b"), demand=demand, path="work/train.ipynb", pid=42, started=12.5, borrowed=True)
    ledger = await opened()
    ledger.lease_granted(row)
    await ledger.close()

    assert await (await opened()).leases() == [row]


async def test_an_ended_lease_is_not_open_any_more_but_kept(opened, file):
    ledger = await opened()
    ledger.lease_granted(lease("k1"))
    ledger.lease_granted(lease("k2"))
    ledger.lease_ended("k1", "cleanup")
    ledger.lease_ended("never-heard-of", "cleanup")

    assert [row.session for row in await ledger.leases()] == ["k2"]
    assert rows(file, "SELECT session, why FROM leases WHERE ended_at IS NOT NULL") == [("k1", "cleanup")]


async def test_a_session_never_has_two_open_leases(opened, file):
    ledger = await opened()
    ledger.lease_granted(lease(devices=("GPU-a",)))
    assert await ledger.flushed(10)
    ledger.lease_granted(lease(devices=("GPU-b",)))
    ledger.lease_changed(lease(devices=("GPU-c",), pid=7))

    assert [(row.devices, row.pid) for row in await ledger.leases()] == [(("GPU-c",), 7)]
    assert rows(file, "SELECT count(*) FROM leases") == [(1,)]


async def test_a_lease_of_an_earlier_process_can_be_ended_without_reading_it_first(opened):
    first = await opened()
    first.lease_granted(lease())
    await first.close()

    second = await opened()
    second.lease_ended("k1", "expired")
    assert await second.leases() == []


async def test_a_change_keeps_the_begin_of_a_lease_and_a_lease_never_ends_before_it(opened, file, clock):
    ledger = await opened(wall=clock)
    ledger.lease_granted(lease())
    clock.advance(-100)  # somebody sets the wall clock back
    ledger.lease_changed(lease(pid=1))
    ledger.lease_ended("k1", "cleanup")
    assert await ledger.flushed(10)

    assert rows(file, "SELECT opened_at, ended_at FROM leases") == [(1000.0, 1000.0)]


async def test_a_notebook_name_that_is_no_text_does_not_stop_the_ledger(opened):
    ledger = await opened()
    ledger.lease_granted(lease(label="caf\udce9\0.ipynb", path="caf\udce9.ipynb"))

    assert [row.label for row in await ledger.leases()] == ["caf\\udce9.ipynb"]


async def test_a_row_that_cannot_be_read_does_not_hide_the_others(opened, file):
    ledger = await opened()
    ledger.lease_granted(lease("k1"))
    ledger.lease_granted(lease("k2"))
    assert await ledger.flushed(10)
    connection = sqlite3.connect(file)
    connection.execute("UPDATE leases SET demand = '{\"gpus\": \"many\"}' WHERE session = 'k1'")
    connection.commit()
    connection.close()

    assert [row.session for row in await ledger.leases()] == ["k2"]


WRITER = """
import asyncio, sys
from jupyter_gpushare.broker.ledger import Ledger, LeaseRow

async def main():
    ledger = await Ledger.open(sys.argv[1], timeout_s=60)
    for number in range(10_000):
        row = LeaseRow(session=f"k{number}", user="alice", origin="o", server="s", label="l", devices=("GPU-a",))
        ledger.lease_granted(row)
        if number % 3 == 2:
            ledger.lease_ended(f"k{number - 1}", "cleanup")
        if await ledger.flushed(60):
            print(number, flush=True)

asyncio.run(main())
"""


def kept_by_a_writer_that_is_killed(url: str) -> int:
    """The number of the last lease that a process saw flushed before it was killed in the middle of writing."""
    writer = subprocess.Popen([sys.executable, "-c", WRITER, url], stdout=subprocess.PIPE, text=True)
    with writer.stdout:
        for line in writer.stdout:
            if int(line) >= 50:
                break
        writer.send_signal(signal.SIGKILL)
        rest = writer.stdout.read().split("\n")[:-1]
    writer.wait()
    return max([50, *map(int, rest)])


async def test_what_was_flushed_is_there_after_kill_9_in_the_middle_of_writing(opened, file):
    last = kept_by_a_writer_that_is_killed(f"sqlite:///{file}")

    written = range(last + 1)
    expected = {f"k{number}" for number in written} - {f"k{number - 1}" for number in written if number % 3 == 2}
    found = {row.session for row in await (await opened()).leases()}
    assert expected - found <= {f"k{last}"}  # ended by the write that nobody heard an answer of
    assert found - expected <= {f"k{last + 1}"}


async def test_brokers_that_share_a_database_do_not_see_each_others_leases(opened, file):
    alices, bobs = await opened(broker="alice"), await opened(broker="bob")
    alices.lease_granted(lease("k1"))
    alices.usage_saved({"alice": 5.0})
    alices.usage(UsageRow(session="k1", user="alice", device="GPU-a", held_s=1, gpu_s=1))
    assert await alices.flushed(10)
    bobs.lease_granted(lease("k2"))
    bobs.lease_ended("k1", "expired")

    assert [row.session for row in await bobs.leases()] == ["k2"]
    assert await bobs.fair_usage() == {}
    assert (await bobs.history(HistoryQuery())).by_user == {}
    assert [row.session for row in await alices.leases()] == ["k1"]


# --- bad days ------------------------------------------------------------------------------------------------------


async def test_a_ledger_that_cannot_be_opened_says_so_and_catches_up_when_it_can(opened, tmp_path):
    folder = tmp_path / "away"
    folder.symlink_to("/proc/gpushare")  # where nobody can make a folder
    ledger = await opened(f"sqlite:///{folder}/ledger.sqlite")
    assert "cannot be used" in ledger.degraded.message
    assert ledger.degraded.code == "ledger"

    ledger.lease_granted(lease("k1"))
    ledger.lease_granted(lease("k2"))
    ledger.lease_ended("k1", "cleanup")
    ledger.audit(Caller(user="alice"), "pin", "k2", "ok")
    assert await ledger.flushed(10) is False
    assert await ledger.leases() is None
    assert await ledger.fair_usage() is None
    with pytest.raises(Unavailable, match="cannot be used"):
        await ledger.history(HistoryQuery())

    folder.unlink()
    folder.mkdir()
    await until(lambda: ledger.degraded is None)
    assert [row.session for row in await ledger.leases()] == ["k2"]
    assert rows(folder / "ledger.sqlite", "SELECT verb FROM audit") == [("pin",)]


async def test_a_locked_ledger_is_said_and_written_once_it_is_free(opened, file):
    ledger = await opened(f"sqlite:///{file}?timeout=0.01")
    other = sqlite3.connect(file, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    try:
        ledger.lease_granted(lease())
        assert await ledger.flushed(10) is False
        assert "another process locks it" in ledger.degraded.message
    finally:
        other.close()

    await until(lambda: ledger.degraded is None)
    assert [row.session for row in await ledger.leases()] == ["k1"]


async def test_a_ledger_that_hangs_holds_nobody_up(opened, file, clock):
    await (await opened()).close()
    other = sqlite3.connect(file, isolation_level=None)
    other.execute("PRAGMA locking_mode=EXCLUSIVE")
    other.execute("BEGIN EXCLUSIVE")
    try:
        began = time.monotonic()
        ledger = await opened(f"sqlite:///{file}?timeout=60", timeout_s=0.05, clock=clock)
        clock.advance(10)
        assert "does not answer" in ledger.degraded.message
        ledger.lease_granted(lease())
        assert await ledger.leases(0.05) is None
        await ledger.close(0.05)
        assert time.monotonic() - began < 2
    finally:
        other.close()

    await until(lambda: not ledger._thread.is_alive())
    assert rows(file, "SELECT session FROM leases") == [("k1",)]


FULL = """
import asyncio, resource, sys
from jupyter_gpushare.broker.ledger import Ledger, LeaseRow, UsageRow

async def main():
    ledger = await Ledger.open(sys.argv[1], timeout_s=60, retry_s=0.01)
    assert ledger.degraded is None, ledger.degraded
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))  # no file may grow beyond
    for number in range(300):
        ledger.lease_granted(LeaseRow(session=f"k{number}", user="alice", origin="o", server="s", label="l" * 1000))
    print(await ledger.flushed(60))
    print(ledger.degraded.message)
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    while ledger.degraded is not None:
        await asyncio.sleep(0.01)
    print(len(await ledger.leases(60)))
    await ledger.close()

asyncio.run(main())
"""


def test_a_full_disk_is_said_and_nothing_is_lost_when_there_is_room_again(file):
    done = subprocess.run(
        [sys.executable, "-c", FULL, f"sqlite:///{file}"], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    flushed, message, leases = done.stdout.splitlines()
    assert flushed == "False"
    assert "kept in memory" in message
    assert leases == "300"


@pytest.fixture
def read_only(file):
    """Makes the ledger's file system read-only; root does not mind mode bits, so it takes a mount of its own."""
    folder = file.parent
    folder.mkdir()
    if os.getuid():
        yield lambda flag: [path.chmod(0o500 if flag else 0o700) for path in [folder, *folder.iterdir()]]
        folder.chmod(0o700)
        return
    if subprocess.run(["mount", "-t", "tmpfs", "gpushare-test", folder], check=False).returncode:
        pytest.skip("root without the right to mount cannot see a read-only folder")
    yield lambda flag: subprocess.run(["mount", "-o", f"remount,{'ro' if flag else 'rw'}", folder], check=True)
    subprocess.run(["umount", "--lazy", folder], check=True)


async def test_a_read_only_ledger_is_said_and_is_written_when_it_can_be(opened, file, read_only):
    await (await opened()).close()
    read_only(True)
    ledger = await opened()
    ledger.lease_granted(lease())
    assert await ledger.flushed(10) is False
    assert "cannot be used" in ledger.degraded.message

    read_only(False)
    await until(lambda: ledger.degraded is None)
    assert [row.session for row in await ledger.leases()] == ["k1"]


async def test_a_damaged_file_is_moved_aside_and_said(opened, file):
    file.parent.mkdir()
    file.write_bytes(b"this is no database " * 500)

    ledger = await opened()

    assert "was damaged; it was moved to ledger.sqlite.damaged-1" in ledger.degraded.message
    assert file.with_name("ledger.sqlite.damaged-1").read_bytes().startswith(b"this is no database")
    ledger.lease_granted(lease())
    assert [row.session for row in await ledger.leases()] == ["k1"]


async def test_a_file_replaced_by_rubbish_while_open_costs_the_history_but_no_open_lease(opened, file):
    ledger = await opened()
    ledger.lease_granted(lease("k1"))
    assert await ledger.flushed(10)
    rubbish = file.with_name("rubbish")
    rubbish.write_bytes(b"this is no database " * 500)
    for path in set(file.parent.iterdir()) - {rubbish}:
        path.unlink()
    rubbish.rename(file)

    ledger.lease_granted(lease("k2"))
    assert await ledger.flushed(10)
    assert "damaged-1" in ledger.degraded.message
    assert {row.session for row in await ledger.leases()} == {"k1", "k2"}


async def test_a_file_that_vanishes_is_made_again_with_the_open_leases(opened, file):
    ledger = await opened()
    ledger.lease_granted(lease("k1"))
    assert await ledger.flushed(10)
    for path in file.parent.iterdir():
        path.unlink()

    ledger.lease_granted(lease("k2"))
    assert await ledger.flushed(10)
    assert {session for (session,) in rows(file, "SELECT session FROM leases")} == {"k1", "k2"}


async def test_a_ledger_of_a_newer_version_is_left_alone(opened, file):
    await (await opened()).close()
    connection = sqlite3.connect(file)
    connection.execute("UPDATE alembic_version SET version_num = 'from-the-future'")
    connection.commit()
    connection.close()

    ledger = await opened()
    assert "newer version of jupyter-gpushare" in ledger.degraded.message


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("postgresql+psycopg://gpu:secret@127.0.0.1:1/x", "cannot be used"),
        ("nonsense://x", "cannot be used"),
        ("no url at all", "cannot be used"),
    ],
)
async def test_a_url_that_leads_nowhere_is_said_without_its_password(opened, url, words):
    ledger = await opened(url)
    assert words in ledger.degraded.message
    assert "\n" not in ledger.degraded.message
    assert "secret" not in ledger.degraded.message


# --- what else is kept --------------------------------------------------------------------------------------------


async def test_fair_share_usage_comes_back_with_its_age_and_is_never_negative(opened):
    wall = 1000.0
    first = await opened(wall=lambda: wall)
    first.usage_saved({"alice": 3600.0, "bob": -1.0, "carol": float("nan")})
    first.usage_saved({"alice": 1800.0, "bob": -1.0})
    await first.close()

    later = await opened(wall=lambda: 1600.0)
    usage = await later.fair_usage()
    assert {user: (one.usage, one.age_s) for user, one in usage.items()} == {"alice": (1800.0, 600.0), "bob": (0, 600)}

    earlier = await opened(wall=lambda: 400.0)  # the wall clock was set back
    assert (await earlier.fair_usage())["alice"].age_s == 0.0


async def test_usage_is_summed_and_what_is_no_measurement_is_left_out(opened):
    ledger = await opened(wall=lambda: 1_000_000.0)
    one = {"session": "k1", "user": "alice", "device": "GPU-a", "held_s": 10.0}
    ledger.usage(UsageRow(**one, gpu_s=5.0, used_s=4.0), UsageRow(**one, gpu_s=3.0, used_s=None))
    ledger.usage(UsageRow(**one, gpu_s=-1.0, used_s=0.0), UsageRow(**one, gpu_s=float("nan"), used_s=0.0))
    history = await ledger.history(HistoryQuery())

    assert history.by_user == {"alice": 8.0}
    assert history.series[0].share == pytest.approx(8 / 20)
    assert history.series[0].utilization == pytest.approx(4 / 10)  # over the time it was known


async def test_file_and_folder_are_their_owners_only(opened, file):
    ledger = await opened()
    ledger.lease_granted(lease())
    assert await ledger.flushed(10)

    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in file.parent.iterdir()} == {0o600}


async def test_a_closed_ledger_has_written_all_and_left_no_thread(opened, file):
    ledger = await opened()
    ledger.usage(UsageRow(session="k1", user="alice", device="GPU-a", held_s=1, gpu_s=1))
    await ledger.close()
    await ledger.close()

    assert rows(file, "SELECT held_s FROM usage") == [(1.0,)]
    assert not [thread for thread in threading.enumerate() if thread.name == "gpushare-ledger"]
    assert await ledger.flushed(1) is False
    assert await ledger.leases() is None


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
async def test_an_error_of_our_own_in_the_thread_is_said_and_answered(opened, monkeypatch):
    ledger = await opened()
    monkeypatch.setattr(ledger, "_take_notice", lambda database: 1 / 0)
    ledger.lease_granted(lease())

    await until(lambda: ledger.degraded is not None)
    assert "stopped because of an error of its own" in ledger.degraded.message
    with pytest.raises(Unavailable, match="closed"):
        await ledger._ask(lambda database: [], 10)
    assert await ledger.flushed(1) is False


# --- what no database takes --------------------------------------------------------------------------------------


async def test_a_question_that_fails_is_answered_and_the_ledger_goes_on(opened, caplog):
    ledger = await opened()

    with pytest.raises(Unavailable):
        await ledger._ask(lambda database: 1 / 0, 20)
    ledger.lease_granted(lease())

    assert [row.session for row in await ledger.leases(20)] == ["k1"]
    assert caplog.text.count("ZeroDivisionError") == 1


@pytest.mark.parametrize("facts", [{"user": "a\udcffb"}, {"guarantee": None}, {"pid": 2**70}])
async def test_a_row_that_no_database_takes_is_dropped_and_the_others_are_written(opened, caplog, facts):
    ledger = await opened()
    ledger.lease_granted(lease("bad", **facts))
    ledger.lease_granted(lease("good"))

    await until(lambda: "dropped an entry" in caplog.text)
    await ledger.flushed(20)

    assert [row.session for row in await ledger.leases(20)] == ["good"]
    assert ledger.degraded is None
    assert caplog.text.count("dropped an entry") == 1


async def test_an_address_that_cannot_be_read_is_said_and_loses_nothing(opened, caplog):
    ledger = await opened("postgresql://host:no-port/db", timeout_s=0.5)
    ledger.lease_granted(lease())

    assert await ledger.flushed(2) is False
    assert ledger.degraded is not None
    assert "k1" in ledger._open
    assert "dropped an entry" not in caplog.text
    assert caplog.text.count("failed by an error of its own; it is tried again") == 1


async def test_usage_is_not_counted_twice_when_what_follows_the_writing_fails(opened, file, monkeypatch):
    from jupyter_gpushare.broker.database import Database

    failing = iter([True])
    prune = Database.prune
    ledger = await opened()
    monkeypatch.setattr(Database, "prune", lambda self, now: 1 / 0 if next(failing, False) else prune(self, now))
    ledger.usage(UsageRow(session="k1", user="alice", group=None, device="GPU-a", held_s=1.0, gpu_s=1.0, used_s=1.0))

    await ledger.flushed(20)
    assert await ledger.flushed(20) is True
    assert rows(file, "SELECT held_s FROM usage") == [(1.0,)]
