"""Leases, decisions, usage, audit and fair-share usage."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "leases",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("broker", sa.String, nullable=False),
        sa.Column("session", sa.String, nullable=False),
        sa.Column("user", sa.String, nullable=False),
        sa.Column("origin", sa.String, nullable=False),
        sa.Column("server", sa.String, nullable=False),
        sa.Column("label", sa.String, nullable=False),
        sa.Column("path", sa.String),
        sa.Column("devices", sa.Text, nullable=False),
        sa.Column("guarantee", sa.Float, nullable=False),
        sa.Column("borrowed", sa.Boolean, nullable=False),
        sa.Column("demand", sa.Text, nullable=False),
        sa.Column("pid", sa.Integer),
        sa.Column("started", sa.Float),
        sa.Column("opened_at", sa.Float, nullable=False),
        sa.Column("ended_at", sa.Float),
        sa.Column("why", sa.String),
    )
    is_open = sa.text("ended_at IS NULL")
    op.create_index(
        "leases_open_session",
        "leases",
        ["broker", "session"],
        unique=True,
        sqlite_where=is_open,
        postgresql_where=is_open,
    )
    op.create_table(
        "decisions",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("broker", sa.String, nullable=False),
        sa.Column("at", sa.Float, nullable=False, index=True),
        sa.Column("session", sa.String, nullable=False),
        sa.Column("user", sa.String, nullable=False),
        sa.Column("act", sa.String, nullable=False),
        sa.Column("why", sa.String, nullable=False),
        sa.Column("decision", sa.Text, nullable=False),
    )
    op.create_table(
        "usage",
        sa.Column("broker", sa.String, primary_key=True),
        sa.Column("at", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("session", sa.String, primary_key=True),
        sa.Column("device", sa.String, primary_key=True),
        sa.Column("user", sa.String, nullable=False, index=True),
        sa.Column("group", sa.String),
        sa.Column("held_s", sa.Float, nullable=False),
        sa.Column("gpu_s", sa.Float, nullable=False),
        sa.Column("used_s", sa.Float, nullable=False),
        sa.Column("known_s", sa.Float, nullable=False),
    )
    op.create_table(
        "audit",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("broker", sa.String, nullable=False),
        sa.Column("at", sa.Float, nullable=False, index=True),
        sa.Column("user", sa.String, nullable=False),
        sa.Column("role", sa.String, nullable=False),
        sa.Column("verb", sa.String, nullable=False),
        sa.Column("target", sa.String, nullable=False),
        sa.Column("outcome", sa.String, nullable=False),
        sa.Column("message", sa.Text, nullable=False),
    )
    op.create_table(
        "fair_usage",
        sa.Column("broker", sa.String, primary_key=True),
        sa.Column("user", sa.String, primary_key=True),
        sa.Column("usage", sa.Float, nullable=False),
        sa.Column("saved_at", sa.Float, nullable=False),
    )


def downgrade() -> None:
    for table in ("fair_usage", "audit", "usage", "decisions", "leases"):
        op.drop_table(table)
