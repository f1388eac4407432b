"""What must be so at every moment, read from the ledger itself: a trigger writes down each change of a lease."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, create_engine, text

EPS = 1e-6
LATE_S = 15.0  # a begin may be written so late: PostgreSQL is stopped for up to 12 s
WATCH = """
CREATE TABLE lease_log (
    n BIGSERIAL PRIMARY KEY, tx BIGINT NOT NULL, at TIMESTAMPTZ NOT NULL, lease INTEGER NOT NULL, session TEXT NOT NULL,
    devices TEXT NOT NULL, guarantee DOUBLE PRECISION NOT NULL, borrowed BOOLEAN NOT NULL, open BOOLEAN NOT NULL
);
CREATE FUNCTION log_lease() RETURNS trigger AS $$
BEGIN
    INSERT INTO lease_log (tx, at, lease, session, devices, guarantee, borrowed, open) VALUES (
        txid_current(), clock_timestamp(), NEW.id, NEW.session, NEW.devices, NEW.guarantee, NEW.borrowed,
        NEW.ended_at IS NULL
    );
    RETURN NEW;
END
$$ LANGUAGE plpgsql;
CREATE TRIGGER log_lease AFTER INSERT OR UPDATE ON leases FOR EACH ROW EXECUTE FUNCTION log_lease();
"""


@dataclass(frozen=True)
class Row:
    """An open lease; a guarantee of 0 is a binding, which holds nothing."""

    session: str
    user: str
    server: str
    devices: tuple[str, ...]
    guarantee: float
    borrowed: bool
    pid: int | None


class Ledger:
    """The bed's own look at the database, beside the brokers."""

    def __init__(self, url: str) -> None:
        self._engine = create_engine(url, pool_pre_ping=True)

    def watch(self) -> None:
        with self._engine.begin() as connection:
            connection.execute(text(WATCH))

    def open(self) -> dict[str, Row]:
        """By session. Raises SQLAlchemyError while the database is away."""
        with self._engine.begin() as connection:
            return {row["session"]: _row(row) for row in _read(connection, "leases WHERE ended_at IS NULL")}

    def close(self) -> None:
        self._engine.dispose()

    # --- rules ---

    def broken(self, lived_s: Mapping[str, float]) -> list[str]:
        """What was not as it must be, a sentence each. `lived_s`: by session, as it was measured where it ran."""
        with self._engine.begin() as connection:
            log = _read(connection, "lease_log ORDER BY n")
            lasted_s = {session: max(seconds, lived_s.get(session, 0.0)) for session, seconds in _lasted(log).items()}
            return [
                *_over_granted(log),
                *_without_end(_read(connection, "leases")),
                *_uncharged(_read(connection, "usage"), lasted_s),
            ]

    def counted(self) -> dict[str, int]:
        with self._engine.begin() as connection:
            grants = "SELECT count(*) FROM decisions WHERE act = 'place' AND CAST(decision AS json)->>'lease' = 'true'"
            return {
                "leases": connection.execute(text("SELECT count(*) FROM leases")).scalar_one(),
                "grants": connection.execute(text(grants)).scalar_one(),
                "parks": connection.execute(text("SELECT count(*) FROM decisions WHERE act = 'park'")).scalar_one(),
                "changes of leases": connection.execute(text("SELECT count(*) FROM lease_log")).scalar_one(),
            }


def _read(connection: Connection, what: str) -> list[Mapping[str, Any]]:
    return list(connection.execute(text(f"SELECT * FROM {what}")).mappings())


def _row(row: Mapping[str, Any]) -> Row:
    devices = tuple(json.loads(row["devices"]))
    return Row(
        row["session"], row["user"], row["server"], devices, row["guarantee"], row["borrowed"], row["pid"]
    )  # fmt: skip


def _over_granted(log: list[Mapping[str, Any]]) -> Iterator[str]:
    """After every transaction: the guarantees of the leases of a device, those borrowed aside, are at most 1."""
    held: dict[int, tuple[str, tuple[str, ...], float]] = {}
    told: set[str] = set()
    last = {row["tx"]: row["n"] for row in log}
    for row in log:
        counts = row["open"] and not row["borrowed"] and row["guarantee"] > 0
        if counts:
            held[row["lease"]] = (row["session"], tuple(json.loads(row["devices"])), row["guarantee"])
        else:
            held.pop(row["lease"], None)
        if row["n"] != last[row["tx"]]:
            continue
        sums: defaultdict[str, float] = defaultdict(float)
        for _, devices, guarantee in held.values():
            for device in devices:
                sums[device] += guarantee
        for device, total in sums.items():
            who = sorted(f"{session} {share:g}" for session, devices, share in held.values() if device in devices)
            story = f"{device} was granted {total:.2f} times: {', '.join(who)}"
            if total > 1 + EPS and story not in told:
                told.add(story)
                yield f"{story}, first at change {row['n']} of {row['session']} ({row['at']:%H:%M:%S.%f})"


def _without_end(leases: list[Mapping[str, Any]]) -> Iterator[str]:
    for row in leases:
        if row["ended_at"] is None:
            yield f"the lease of {row['session']} on {row['server']} has no end"
        elif row["ended_at"] < row["opened_at"]:
            yield f"the lease of {row['session']} ended {row['opened_at'] - row['ended_at']:.1f} s before it began"


def _lasted(log: list[Mapping[str, Any]]) -> dict[str, float]:
    """Seconds from the first to the last word on a session's lease, by the database's own clock, which nobody moves."""
    first: dict[str, Any] = {}
    for row in log:
        first.setdefault(row["session"], row["at"])
    return {row["session"]: (row["at"] - first[row["session"]]).total_seconds() for row in log}


def _uncharged(usage: list[Mapping[str, Any]], lasted_s: Mapping[str, float]) -> Iterator[str]:
    """Charges are times: none negative, none longer than the time in which it was held, or than its lease lasted."""
    held: defaultdict[tuple[str, str], float] = defaultdict(float)
    for row in usage:
        held[row["session"], row["device"]] += row["held_s"]
        parts = {name: row[name] for name in ("held_s", "gpu_s", "used_s", "known_s")}
        most = row["held_s"] + EPS
        if min(parts.values()) < 0 or max(parts.values()) > most or row["used_s"] > row["known_s"] + EPS:
            yield f"{row['session']} was charged what cannot be: {parts}"
    for (session, device), total in held.items():
        if total > lasted_s.get(session, 0.0) + LATE_S:
            lasted = lasted_s.get(session, 0.0)
            yield f"{session} had a lease for {lasted:.1f} s and was charged {total:.1f} s of {device}"
