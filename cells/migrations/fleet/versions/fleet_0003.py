"""Messages that could not be indexed.

Revision ID: fleet_0003
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "fleet_0003"
down_revision = "fleet_0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "failures",
        sa.Column("id", sa.String(36), nullable=False),
        sa.Column("cell_uuid", sa.String(36), nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("detail", sa.Text, nullable=False),
        sa.Column("instance_uuid", sa.Text),
        sa.Column("first_at", sa.BigInteger, nullable=False),
        sa.Column("last_at", sa.BigInteger, nullable=False),
        sa.Column("times", sa.BigInteger, nullable=False),
        sa.Column("reread_at", sa.BigInteger),
        sa.Column("routing_key", sa.Text, nullable=False),
        sa.Column(
            "headers", sa.JSON(none_as_null=True).with_variant(JSONB(none_as_null=True), "postgresql"), nullable=False
        ),
        sa.Column("body", sa.LargeBinary, nullable=False),
        sa.Column("trace", sa.Text),
        sa.PrimaryKeyConstraint("id", name="pk_failures"),
    )
    op.create_index("ix_failures_of_cell", "failures", ["cell_uuid", "first_at", "id"])
    op.create_index("ix_failures_of_instance", "failures", ["cell_uuid", "instance_uuid"])
