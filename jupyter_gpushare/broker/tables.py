"""The ledger's tables. A change here needs a migration in `migrations/versions` (a test compares the two).

Brokers may share a database, such as every user's own on one machine: `broker` says whose a row is.
"""

from __future__ import annotations

from sqlalchemy import Boolean, Column, Float, Index, Integer, MetaData, String, Table, Text

metadata = MetaData()


def _sums() -> tuple[Column, ...]:
    """Seconds of devices; `used_s` is over the `known_s` seconds in which it could be read."""
    return tuple(Column(name, Float, nullable=False) for name in ("held_s", "gpu_s", "used_s", "known_s"))


# One row per lease, open while `ended_at` is null.
leases = Table(
    "leases",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("broker", String, nullable=False),
    Column("session", String, nullable=False),
    Column("user", String, nullable=False),
    Column("origin", String, nullable=False),
    Column("server", String, nullable=False),
    Column("label", String, nullable=False),
    Column("path", String),
    Column("devices", Text, nullable=False),  # JSON list of UUIDs
    Column("guarantee", Float, nullable=False),
    Column("borrowed", Boolean, nullable=False),
    Column("demand", Text, nullable=False),  # JSON of model.Demand
    Column("pid", Integer),
    Column("started", Float),
    Column("opened_at", Float, nullable=False),
    Column("ended_at", Float),
    Column("why", String),  # why it ended
)
_open = leases.c.ended_at.is_(None)
Index("leases_open_session", leases.c.broker, leases.c.session, unique=True, sqlite_where=_open, postgresql_where=_open)

decisions = Table(
    "decisions",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("broker", String, nullable=False),
    Column("at", Float, nullable=False, index=True),
    Column("session", String, nullable=False),
    Column("user", String, nullable=False),
    Column("act", String, nullable=False),
    Column("why", String, nullable=False),
    Column("decision", Text, nullable=False),  # JSON of model.AnyDecision
)

# Sums over stretches of BUCKET_S seconds that begin at `at`.
usage = Table(
    "usage",
    metadata,
    Column("broker", String, primary_key=True),
    Column("at", Integer, primary_key=True, autoincrement=False),
    Column("session", String, primary_key=True),
    Column("device", String, primary_key=True),
    Column("user", String, nullable=False, index=True),
    Column("group", String),
    *_sums(),
)

# The same by user over UTC days, which answers for months.
usage_days = Table(
    "usage_days",
    metadata,
    Column("broker", String, primary_key=True),
    Column("at", Integer, primary_key=True, autoincrement=False),
    Column("user", String, primary_key=True),
    Column("group", String, primary_key=True),  # "" none
    *_sums(),
)

audit = Table(
    "audit",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("broker", String, nullable=False),
    Column("at", Float, nullable=False, index=True),
    Column("user", String, nullable=False),
    Column("role", String, nullable=False),
    Column("verb", String, nullable=False),
    Column("target", String, nullable=False),
    Column("outcome", String, nullable=False),
    Column("message", Text, nullable=False),
)

# What people asked to last.
wishes = Table(
    "wishes",
    metadata,
    Column("broker", String, primary_key=True),
    Column("kind", String, primary_key=True),  # pin, drain, demand
    Column("key", String, primary_key=True),
    Column("value", Text, nullable=False),
    Column("until", Float),
)

fair_usage = Table(
    "fair_usage",
    metadata,
    Column("broker", String, primary_key=True),
    Column("user", String, primary_key=True),
    Column("usage", Float, nullable=False),
    Column("saved_at", Float, nullable=False),
)

# Raised by each broker that begins to lead: one that led before, and does not know yet, writes nothing any more.
writers = Table(
    "writers",
    metadata,
    Column("broker", String, primary_key=True),
    Column("turn", Integer, nullable=False),
)
