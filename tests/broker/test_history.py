"""History adds up: whoever's, whenever, at any width of its steps."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jupyter_gpushare.broker.database import Database
from jupyter_gpushare.broker.history import POINTS_MAX
from jupyter_gpushare.broker.journal import BUCKET_S, Journal
from jupyter_gpushare.broker.rows import HistoryQuery, UsageRow

DAY_S = 86400
NOON = 20_000 * DAY_S + DAY_S // 2  # 2024-10-04 12:00 UTC


@pytest.fixture
def database():
    database = Database("sqlite://")
    database.connect()
    yield database
    database.close()


def write(database: Database, *entries: tuple[float, UsageRow]) -> None:
    journal = Journal()
    for at, row in entries:
        journal.add_usage(row, at)
    database.write(journal)


def row(gpu_s: float = 30.0, **facts: object) -> UsageRow:
    return UsageRow(
        **{"session": "k1", "user": "alice", "device": "GPU-a", "held_s": 60.0, "gpu_s": gpu_s, "used_s": 15.0, **facts}
    )


def test_gpu_seconds_are_summed_by_user_group_and_utc_day(database):
    write(
        database,
        (NOON, row(10, group="vision")),
        (NOON, row(20, session="k2", user="bob", group="vision")),
        (NOON, row(5, device="GPU-b", group="vision")),
        (NOON - DAY_S, row(40, session="k3", user="carol")),
    )
    found = database.history(HistoryQuery(), now=NOON + 60)

    assert found.by_user == {"alice": 15.0, "bob": 20.0, "carol": 40.0}
    assert found.by_group == {"vision": 35.0}
    assert found.by_day == {"2024-10-03": 40.0, "2024-10-04": 35.0}


def test_a_session_or_a_user_can_be_asked_for_and_a_stretch_of_time(database):
    write(
        database,
        (NOON, row(10)),
        (NOON, row(20, session="k2")),
        (NOON - 2 * DAY_S, row(40)),
        (NOON, row(80, session="k3", user="bob")),
    )
    assert database.history(HistoryQuery(session="k1"), NOON).by_user == {"alice": 50.0}
    assert database.history(HistoryQuery(user="alice"), NOON).by_user == {"alice": 70.0}
    assert database.history(HistoryQuery(user="alice", since=NOON - 3600), NOON).by_user == {"alice": 30.0}
    assert database.history(HistoryQuery(until=NOON - DAY_S), NOON).by_user == {"alice": 40.0}
    assert database.history(HistoryQuery(user="nobody"), NOON).series == ()


def test_share_is_the_mean_while_held_and_utilisation_the_mean_while_known(database):
    write(
        database,
        (NOON, row(gpu_s=60, held_s=60, used_s=30)),
        (NOON, row(gpu_s=0, held_s=60, used_s=None)),
        (NOON + BUCKET_S, row(gpu_s=6, held_s=60, used_s=None)),
    )
    found = database.history(HistoryQuery(session="k1", since=NOON, until=NOON + BUCKET_S), NOON)

    assert [(point.share, point.utilization) for point in found.series] == [(0.5, 0.5), (0.1, None)]
    assert found.step_s == BUCKET_S


def test_usage_that_is_written_again_is_added(database):
    for _ in range(3):
        write(database, (NOON, row(10)))
    assert database.history(HistoryQuery(), NOON).by_user == {"alice": 30.0}


def test_a_session_whose_group_changes_within_a_stretch_is_still_summed_once(database):
    write(database, (NOON, row(10, group="vision")), (NOON, row(20, group="language")))
    write(database, (NOON, row(40, group="vision")))
    assert database.history(HistoryQuery(), NOON).by_user == {"alice": 70.0}


def test_a_long_time_is_answered_with_few_points(database):
    write(database, *((NOON - 3600.0 * hour, row(1)) for hour in range(24 * 60)))
    found = database.history(HistoryQuery(since=NOON - 60 * DAY_S), NOON)

    assert len(found.series) <= POINTS_MAX + 1
    assert found.step_s > BUCKET_S
    assert sum(point.gpu_s for point in found.series) == pytest.approx(24 * 60)


GROUPS = ("vision", "text", None, "vision")  # by the number of a user's session
entries = st.lists(
    st.builds(
        lambda ago, gpu_s, session, user: (
            NOON - ago,
            row(gpu_s, session=f"{user}-{session}", user=user, group=GROUPS[session]),
        ),
        ago=st.floats(0, 6 * DAY_S),
        gpu_s=st.floats(0, 300),
        session=st.integers(0, len(GROUPS) - 1),
        user=st.sampled_from(["alice", "bob"]),
    ),
    max_size=30,
)


@settings(max_examples=20)  # each makes a database
@given(entries)
def test_every_way_to_sum_gives_the_same_total(entries):
    database = Database("sqlite://")
    database.connect()
    write(database, *entries)
    found = database.history(HistoryQuery(), NOON)
    months = database.history(HistoryQuery(since=NOON - 60 * DAY_S), NOON)
    database.close()

    assert months.step_s % DAY_S == 0  # read from other rows
    for name in ("by_user", "by_group", "by_day"):
        assert getattr(months, name) == pytest.approx(getattr(found, name))
    assert months.total_gpu_s == pytest.approx(found.total_gpu_s)
    assert sum(point.gpu_s for point in months.series) == pytest.approx(found.total_gpu_s)
    total = pytest.approx(sum(usage.gpu_s for _, usage in entries))
    assert sum(found.by_user.values()) == total
    assert sum(found.by_day.values()) == total
    assert sum(point.gpu_s for point in found.series) == total
