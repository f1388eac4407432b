"""Usage by user and UTC day: a year of many users is answered without reading every stretch of it."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

SUMS = ("held_s", "gpu_s", "used_s", "known_s")


def upgrade() -> None:
    days = op.create_table(
        "usage_days",
        sa.Column("broker", sa.String, primary_key=True),
        sa.Column("at", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("user", sa.String, primary_key=True),
        sa.Column("group", sa.String, primary_key=True),
        *(sa.Column(name, sa.Float, nullable=False) for name in SUMS),
    )
    names = ("broker", "at", "user", "group", *SUMS)
    usage = sa.table("usage", *map(sa.column, names)).c
    keys = (usage.broker, usage.at - usage.at % 86400, usage.user, sa.func.coalesce(usage.group, ""))
    sums = (sa.func.sum(usage[name]) for name in SUMS)
    op.execute(days.insert().from_select(names, sa.select(*keys, *sums).group_by(*keys)))


def downgrade() -> None:
    op.drop_table("usage_days")
