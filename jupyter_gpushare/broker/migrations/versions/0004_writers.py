"""Whose turn it is to write, where one of several brokers leads: whoever led before writes no more."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "writers",
        sa.Column("broker", sa.String, primary_key=True),
        sa.Column("turn", sa.Integer, nullable=False),
    )


def downgrade() -> None:
    op.drop_table("writers")
