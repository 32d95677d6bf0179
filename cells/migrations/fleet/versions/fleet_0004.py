"""A limit to the failures that are kept: how large each is, and how many were dropped because of it.

Revision ID: fleet_0004
"""

import sqlalchemy as sa
from alembic import op

revision = "fleet_0004"
down_revision = "fleet_0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("failures", sa.Column("size", sa.BigInteger, nullable=False, server_default="0"))
    op.execute("UPDATE failures SET size = length(body)")
    op.create_table(
        "dropped_failures",
        sa.Column("cell_uuid", sa.String(36), nullable=False),
        sa.Column("count", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("cell_uuid", name="pk_dropped_failures"),
    )
