"""What waits is bounded, and nothing is merged away that counts."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpushare.broker import journal as module
from jupyter_gpushare.broker.journal import BUCKET_S, AuditWrite, Journal, LeaseWrite
from jupyter_gpushare.broker.rows import LeaseRow, UsageRow


def usage(session: str = "k1", seconds: float = 1.0) -> UsageRow:
    return UsageRow(session=session, user="alice", device="GPU-a", held_s=seconds, gpu_s=seconds / 2, used_s=None)


def lease(session: str) -> LeaseWrite:
    return LeaseWrite(LeaseRow(session=session, user="alice", origin="o", server="s", label="l"), 1.0)


rows = st.lists(
    st.tuples(
        st.sampled_from(["k1", "k2", "k3"]), st.floats(0, 100), st.integers(0, 5), st.sampled_from(["old", "new"])
    )
)


@given(rows)
def test_usage_adds_up_however_it_was_split_between_writes(entries):
    older, newer = Journal(), Journal()
    for session, seconds, bucket, which in entries:
        (older if which == "old" else newer).add_usage(usage(session, seconds), bucket * BUCKET_S + 1.0)

    older.absorb(newer)

    total = sum(seconds for _, seconds, _, _ in entries)
    assert abs(sum(sums.held_s for sums in older.usage.values()) - total) < 1e-6
    assert all(key.at % BUCKET_S == 0 for key in older.usage)
    assert all(sums.known_s == 0 for sums in older.usage.values())


def test_the_oldest_usage_goes_first_and_leases_never_do():
    journal = Journal()
    for number in range(module.USAGE_MAX + 10):
        journal.leases[f"k{number}"] = lease(f"k{number}")
        journal.add_usage(usage(), number * BUCKET_S)

    assert len(journal.usage) == module.USAGE_MAX
    assert min(key.at for key in journal.usage) == 10 * BUCKET_S
    assert journal.dropped == 10
    assert len(journal.leases) == module.USAGE_MAX + 10


def test_the_oldest_records_go_first_and_are_counted_once():
    def entry(number: int) -> AuditWrite:
        return AuditWrite(float(number), "alice", "user", "pin", "k1", "ok", "")

    older, newer = Journal(), Journal()
    for number in range(module.RECORDS_MAX):
        older.add(older.audits, entry(number))
    for number in range(5):
        newer.add(newer.audits, entry(module.RECORDS_MAX + number))

    older.absorb(newer)

    assert len(older.audits) == module.RECORDS_MAX
    assert older.audits[0].at == 5.0
    assert older.dropped == 5


def test_a_later_lease_of_a_session_replaces_the_earlier_one():
    older, newer = Journal(leases={"k1": lease("k1"), "k2": lease("k2")}), Journal()
    newer.leases["k1"] = lease("k1")._replace(ended_at=2.0, why="cleanup")

    older.absorb(newer)

    assert older.leases["k1"].ended_at == 2.0
    assert older.leases["k2"].ended_at is None


def test_leases_and_acts_of_people_are_written_at_once_sums_may_wait():
    waiting = Journal()
    assert not waiting
    waiting.add_usage(usage(), 0.0)
    assert waiting
    assert not waiting.urgent
    waiting.leases["k1"] = lease("k1")
    assert waiting.urgent
