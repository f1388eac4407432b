"""What a ledger recorded becomes a workload, and the ledger is left as it is."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from jupyter_gpushare.broker.ledger import LeaseRow, Ledger, UsageRow
from jupyter_gpushare.cli import main
from jupyter_gpushare.errors import BadDemand
from jupyter_gpushare.model import Constraints, Demand
from jupyter_gpushare.simulator import replay, run
from jupyter_gpushare.simulator.replay import Stretch
from jupyter_gpushare.simulator.workloads import sessions
from jupyter_gpushare.units import GIB

MORNING = 1_700_000_100.0  # the begin of a stretch
SHORT = 300.0


class Day:
    """A ledger of which the time is set by hand."""

    def __init__(self, file: Path) -> None:
        self.file, self.now = file, MORNING

    def record(self, *events: tuple[float, Callable[[Ledger], None]]) -> str:
        """Tells a real ledger each event at its second after the morning; returns its URL."""

        async def tell() -> None:
            ledger = await Ledger.open(f"sqlite:///{self.file}", wall=lambda: self.now, timeout_s=20)
            for after, event in events:
                self.now = MORNING + after
                event(ledger)
            assert await ledger.flushed(20)
            await ledger.close(20)

        asyncio.run(tell())
        return f"sqlite:///{self.file}"


def opened(session: str, user: str, *devices: str, **facts: object) -> Callable[[Ledger], None]:
    row = {"origin": "o", "server": "alpha", "label": "n.ipynb", "demand": Demand(gpus=float(len(devices)))}
    lease = LeaseRow(session=session, user=user, devices=devices, guarantee=1.0, **{**row, **facts})
    return lambda ledger: ledger.lease_granted(lease)


def ended(session: str) -> Callable[[Ledger], None]:
    return lambda ledger: ledger.lease_ended(session, "ended")


def used(session: str, user: str, device: str, used_s: float | None, held_s: float = SHORT) -> Callable[[Ledger], None]:
    row = UsageRow(session=session, user=user, device=device, held_s=held_s, gpu_s=held_s, used_s=used_s)
    return lambda ledger: ledger.usage(row)


@pytest.fixture
def day(tmp_path: Path) -> Day:
    return Day(tmp_path / "ledger.sqlite")


@pytest.fixture
def url(day: Day) -> str:
    """Ann trains for ten minutes, rests, and runs a short cell; Bob, on two devices, uses one; Cem none."""
    return day.record(
        (0, opened("a", "ann", "GPU-0", demand=Demand(gpus=0.5, memory=4 * GIB, near=("data:/d",)))),
        (10, used("a", "ann", "GPU-0", 270.0)),
        (20, opened("b", "bob", "GPU-1", "GPU-2", demand=Demand(gpus=2, constraints=Constraints(server="alpha")))),
        (25, opened("c", "cem", demand=Demand(gpus=0))),
        (310, used("a", "ann", "GPU-0", 270.0)),
        (620, used("a", "ann", "GPU-0", 0.0)),
        (930, used("a", "ann", "GPU-0", 30.0)),
        (931, used("b", "bob", "GPU-1", 300.0)),
        (932, used("b", "bob", "GPU-2", 0.0)),
        (1230, used("b", "bob", "GPU-1", None)),
        (1500, ended("a")),
        (1800, ended("b")),
    )


def test_a_kernel_lives_from_its_lease_to_its_end_and_asks_as_it_asked(url: str) -> None:
    found = {each.id: each for each in replay.read(url).workload.scripts}
    assert set(found) == {"a", "b"}
    assert (found["a"].opens_s, found["a"].closes_s) == (0.0, 1500.0)
    assert (found["b"].opens_s, found["b"].closes_s) == (20.0, 1800.0)
    assert found["a"].demand == Demand(gpus=0.5, memory=4 * GIB)
    assert found["b"].demand == Demand(gpus=2.0)
    assert (found["a"].memory, found["b"].memory) == (4 * GIB, 8 * GIB)


def test_stretches_of_much_use_are_one_burst_and_those_of_little_use_are_short_ones(url: str) -> None:
    found = {each.id: each for each in replay.read(url).workload.scripts}
    assert found["a"].submit_s.tolist() == [0.0, 900.0]
    assert found["a"].work_s.tolist() == pytest.approx([600.0, 30.0])
    assert found["a"].compute == pytest.approx((540.0 + 30.0) / 630.0)
    assert (found["b"].work_s.tolist(), found["b"].uses) == ([300.0], 1)


def test_what_could_not_be_read_is_no_burst_and_is_said(url: str) -> None:
    past = replay.read(url)
    assert past.unread == pytest.approx(300.0 / 1800.0)
    assert "could not be read in 16.7%" in replay.as_text(past)


def test_the_recorded_row_holds_what_the_ledger_says_and_nothing_else(url: str) -> None:
    row = replay.recorded(replay.read(url))
    assert row.cluster == "1x3xA100"
    assert row.metrics["gpu_hours_held"] == pytest.approx((4 * SHORT + 3 * SHORT) / 3600)
    assert row.metrics["gpu_hours_used"] == pytest.approx((570.0 + 300.0) / 3600)
    assert row.metrics["delay_p95_s"] is None


def test_two_sessions_on_a_device_hold_it_once(day: Day) -> None:
    url = day.record(
        (0, opened("a", "ann", "GPU-0")),
        (1, opened("b", "bob", "GPU-0")),
        (5, used("a", "ann", "GPU-0", 150.0)),
        (6, used("b", "bob", "GPU-0", 150.0)),
    )
    row = replay.recorded(replay.read(url))
    assert row.metrics["gpu_hours_held"] == pytest.approx(SHORT / 3600)
    assert row.metrics["gpu_hours_used"] == pytest.approx(SHORT / 3600)


@pytest.mark.parametrize(
    ("stretches", "submit", "work", "device_s"),
    [
        ([], [], [], 0.0),
        ([Stretch(0, 300, None), Stretch(300, 300, 0.001)], [], [], 0.0),
        ([Stretch(0, 300, 0.9), Stretch(300, 100, 0.6)], [0], [400], 330.0),
        ([Stretch(0, 300, 0.9), Stretch(600, 300, 0.9)], [0, 600], [300, 300], 540.0),
        ([Stretch(0, 300, 0.1), Stretch(300, 300, 0.1)], [0, 300], [30, 30], 60.0),
    ],
)
def test_bursts_are_cut_where_use_pauses(
    stretches: list[Stretch], submit: list[float], work: list[float], device_s: float
) -> None:
    found = replay.bursts(stretches)
    assert found[0] == submit
    assert found[1] == pytest.approx(work)
    assert found[2] == pytest.approx(device_s)


def test_the_ledger_itself_is_not_changed(url: str, day: Day) -> None:
    before = day.file.read_bytes()
    replay.read(url)
    assert day.file.read_bytes() == before
    assert [path.name for path in day.file.parent.iterdir()] == [day.file.name]


def test_what_a_running_broker_wrote_last_is_read(url: str, day: Day) -> None:
    connection = sqlite3.connect(day.file)
    connection.execute("DELETE FROM leases WHERE session = 'b'")
    connection.commit()
    assert day.file.with_name("ledger.sqlite-wal").stat().st_size > 0
    assert [each.id for each in replay.read(url).workload.scripts] == ["a"]
    connection.close()


def test_what_is_saved_can_be_simulated(url: str, tmp_path: Path) -> None:
    past = replay.read(url)
    replay.save(past.workload, tmp_path / "bursts.csv")
    again = {each.id: each for each in sessions.load(f"sessions:{tmp_path / 'bursts.csv'}").scripts}
    for each in past.workload.scripts:
        assert again[each.id].submit_s.tolist() == each.submit_s.tolist()
        assert again[each.id].work_s.tolist() == pytest.approx(each.work_s.tolist(), abs=1e-3)
        assert again[each.id].demand.gpus == each.demand.gpus


def test_a_history_runs_under_any_policy_for_sessions(url: str) -> None:
    found = run.replayed(replay.read(url).workload, tuple(run.SESSIONS), None, lambda text: None)
    assert [each.policy for each in found] == list(run.SESSIONS)
    for each in found:
        assert each.metrics["gpu_hours_used"] == pytest.approx((630.0 + 300.0) / 3600, rel=0.05)
    held = {each.policy: each.metrics["gpu_hours_held"] or 0.0 for each in found}
    assert held["gpushare-always"] < held["static"]


def test_the_command_shows_what_was_recorded_beside_what_would_have_been(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["replay", "--ledger", url, "--policy", "gpushare-always,static"]) == 0
    said = capsys.readouterr().out
    assert "2 sessions of 2 users in 0.0 days, 3 bursts" in said
    rows = [line.split()[0] for line in said.splitlines() if line and not line.startswith(("*", "sqlite", "What"))]
    assert rows[-3:] == ["recorded", "gpushare-always", "static"]


# --- ledgers that cannot be replayed ---------------------------------------------------------------------------------


def refusal(url: str) -> str:
    with pytest.raises(BadDemand) as refused:
        replay.read(url)
    assert "\n" not in str(refused.value)
    return str(refused.value)


def test_an_address_that_is_none_is_refused_with_the_forms_there_are() -> None:
    assert "nonsense cannot be used" in refusal("nonsense")
    assert "use sqlite:///FILE or postgresql" in refusal("nonsense")


def test_a_password_is_not_repeated() -> None:
    said = refusal("nothing+such://ann:secret@host/name")
    assert "secret" not in said
    assert "ann:***@host" in said


def test_a_file_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    assert "there is no file" in refusal(f"sqlite:///{tmp_path / 'none.sqlite'}")
    assert list(tmp_path.iterdir()) == []


def test_a_file_of_another_kind_is_refused_and_left(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no database, but a long enough text to be looked at as one" * 20)
    assert "cannot be read (file is not a database)" in refusal(f"sqlite:///{tmp_path / 'text'}")
    assert [path.name for path in tmp_path.iterdir()] == ["text"]


def test_a_ledger_in_memory_cannot_be_replayed() -> None:
    assert "lives in memory" in refusal("sqlite://")
    assert "lives in memory" in refusal("sqlite:///:memory:")


def test_an_empty_ledger_says_so(day: Day) -> None:
    assert "holds no session that asked for a GPU" in refusal(day.record())


def test_a_ledger_of_a_newer_version_is_refused(url: str, day: Day) -> None:
    connection = sqlite3.connect(day.file)
    connection.execute("UPDATE alembic_version SET version_num = '9999'")
    connection.commit()
    connection.close()
    said = refusal(url)
    assert "it was written by a newer version of jupyter-gpushare" in said
    assert str(day.file) in said


def test_a_lease_that_nobody_can_read_is_named(url: str, day: Day) -> None:
    connection = sqlite3.connect(day.file)
    connection.execute("UPDATE leases SET demand = '{' WHERE session = 'b'")
    connection.commit()
    connection.close()
    assert "the lease of session b cannot be read" in refusal(url)


def test_a_session_whose_end_is_not_recorded_lives_to_the_end_of_the_record(day: Day) -> None:
    url = day.record((0, opened("a", "ann", "GPU-0")), (900, used("a", "ann", "GPU-0", 100.0)))
    (only,) = replay.read(url).workload.scripts
    assert only.closes_s == 1200.0
