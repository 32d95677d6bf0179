"""What API processes tell each other of instances that have just changed.

Revision ID: fleet_0011
"""

import sqlalchemy as sa
from alembic import op

revision = "fleet_0011"
down_revision = "fleet_0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "recent_changes",
        sa.Column("id", sa.String(36), nullable=False),
        sa.Column("process", sa.String(36), nullable=False),
        sa.Column("reader", sa.Text().with_variant(sa.Text(collation="C"), "postgresql"), nullable=False),
        sa.Column("cell_uuid", sa.String(36), nullable=False),
        sa.Column("instance_uuid", sa.String(36), nullable=False),
        sa.Column("revision", sa.BigInteger, nullable=False),
        sa.Column("noted_at", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_recent_changes"),
    )
    op.create_index("ix_recent_changes_noted_at", "recent_changes", ["noted_at"])
    op.create_table(
        "listening_processes",
        sa.Column("uuid", sa.String(36), nullable=False),
        sa.Column("listened_at", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("uuid", name="pk_listening_processes"),
    )
    if op.get_bind().dialect.name == "postgresql":
        # They hold seconds: a change waits for no disk because of them, and after a crash they are empty.
        op.execute("ALTER TABLE recent_changes SET UNLOGGED")
        op.execute("ALTER TABLE listening_processes SET UNLOGGED")
