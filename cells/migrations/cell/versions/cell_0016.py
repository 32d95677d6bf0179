"""Cells remember what is not as it is to be, and when jobs that workers queue by themselves are due.

Revision ID: cell_0016
"""

import sqlalchemy as sa
from alembic import op

revision = "cell_0016"
down_revision = "cell_0015"
branch_labels = None
depends_on = None

_BINARY_TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    op.create_table(
        "observed_statuses",
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("name", _BINARY_TEXT, nullable=False),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("observed_at", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("kind", "name", name="pk_observed_statuses"),
    )
    jobs = op.create_table(
        "periodic_jobs",
        sa.Column("operation", sa.Text, nullable=False),
        sa.Column("due_at", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("operation", name="pk_periodic_jobs"),
    )
    op.bulk_insert(jobs, [{"operation": "OP_NODE_SNAPSHOT_REFRESH", "due_at": 0}])
