"""How long a year of many users' history takes to ask for, on SQLite and on PostgreSQL.

    python -m benchmarks.history [--users 1000] [--days 365] [--json FILE]

Each user works on weekdays for two hours with one session on one GPU, written as the ledger writes it. What is asked is
what the panel and the hub page ask: everybody's, one user's and one session's.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jupyter_gpushare.broker.database import DAY_S, Database
from jupyter_gpushare.broker.journal import BUCKET_S, Journal
from jupyter_gpushare.broker.rows import HistoryQuery, UsageRow
from tests.broker import postgres

NOW = 20_000 * DAY_S  # a Sunday's midnight, long ago: nothing reads a clock here
WORK_S, WEEK, GROUPS = 7200, 7, 20
TIMES = 5
SPANS = {"a year": 365.0, "a quarter": 91.0, "a month": 31.0, "a week": 7.0}


def fill(database: Database, users: int, days: int) -> int:
    """Rows of stretches that were written."""
    written = 0
    for day in range(days):
        if day % WEEK >= 5:
            continue
        journal = Journal()
        for user in range(users):
            begins = NOW - (day + 1) * DAY_S + 3600 * (8 + user % 10)
            name = f"user-{user:04d}"
            row = UsageRow(
                session=f"{name}-{day}",
                user=name,
                group=f"group-{user % GROUPS}",
                device=f"GPU-{user % 800}",
                held_s=BUCKET_S,
                gpu_s=0.5 * BUCKET_S,
                used_s=0.4 * BUCKET_S,
            )
            for stretch in range(WORK_S // BUCKET_S):
                journal.add_usage(row, begins + stretch * BUCKET_S)
            if len(journal.usage) > 10_000:
                written += len(journal.usage)
                database.write(journal)
                journal = Journal()
        written += len(journal.usage)
        database.write(journal)
    return written


def measure(url: str, users: int, days: int) -> dict[str, Any]:
    database = Database(url)
    database.connect()
    began = time.monotonic()
    rows = fill(database, users, days)
    found: dict[str, Any] = {"rows": rows, "written_rows_s": round(rows / (time.monotonic() - began))}
    for span, long in SPANS.items():
        if long <= days:
            since = NOW - long * DAY_S
            found[f"everybody, {span}"] = median_ms(database, HistoryQuery(since=since, until=NOW))
            found[f"one user, {span}"] = median_ms(database, HistoryQuery(user="user-0001", since=since, until=NOW))
    session = HistoryQuery(session="user-0001-3", since=NOW - 7 * DAY_S, until=NOW)
    found["one session, a week"] = median_ms(database, session)
    database.close()
    return found


def median_ms(database: Database, query: HistoryQuery) -> float:
    took = []
    for _ in range(TIMES):
        began = time.monotonic()
        answer = database.history(query, NOW)
        took.append(time.monotonic() - began)
        assert answer.total_gpu_s > 0
    return round(1e3 * statistics.median(took), 1)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.history", description=__doc__.splitlines()[0])
    parser.add_argument("--users", type=int, default=1000)
    parser.add_argument("--days", type=int, default=365)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args(argv)
    found: dict[str, Any] = {"users": asked.users, "days": asked.days}
    with tempfile.TemporaryDirectory(prefix="gpushare-history-") as made:
        folder = Path(made)
        folder.chmod(0o755)  # the user postgres may enter it
        found["SQLite"] = measure(f"sqlite:///{folder / 'ledger.sqlite'}", asked.users, asked.days)
        found["SQLite"]["file_mb"] = round((folder / "ledger.sqlite").stat().st_size / 1e6)
        if postgres.missing() is None:
            with postgres.running(folder) as cluster:
                found["PostgreSQL"] = measure(cluster.create("history"), asked.users, asked.days)
    names = [name for name in ("SQLite", "PostgreSQL") if name in found]
    print(f"{'':26}", *(f"{name:>12}" for name in names))
    for row in found["SQLite"]:
        print(f"{row:26}", *(f"{found[name].get(row, ''):>12}" for name in names))
    if asked.json:
        asked.json.write_text(json.dumps(found, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
