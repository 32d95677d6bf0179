"""The incarnations of a cell: each relay that took over, and what had been numbered by then.

Revision ID: cell_0003
"""

import sqlalchemy as sa
from alembic import op

revision = "cell_0003"
down_revision = "cell_0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "incarnations",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("uuid", sa.String(36), nullable=False),
        sa.Column("after_sequence", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_incarnations"),
        sa.UniqueConstraint("uuid", name="uq_incarnations_uuid"),
    )
