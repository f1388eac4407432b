"""What people asked to last: pins, drains, demands of next kernels."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "wishes",
        sa.Column("broker", sa.String, primary_key=True),
        sa.Column("kind", sa.String, primary_key=True),
        sa.Column("key", sa.String, primary_key=True),
        sa.Column("value", sa.Text, nullable=False),
        sa.Column("until", sa.Float),
    )


def downgrade() -> None:
    op.drop_table("wishes")
