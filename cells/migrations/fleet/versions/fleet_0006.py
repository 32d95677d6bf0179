"""Changelogs of cells that keep none (fleetlight.cells.fleet.journals).

Revision ID: fleet_0006
"""

import sqlalchemy as sa
from alembic import op

revision = "fleet_0006"
down_revision = "fleet_0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "journals",
        sa.Column("cell_uuid", sa.String(36), nullable=False),
        sa.Column("incarnation", sa.String(36), nullable=False),
        sa.Column("sequence", sa.BigInteger, nullable=False),
        sa.Column("followed_at", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("cell_uuid", name="pk_journals"),
    )
    op.create_table(
        "journal_entries",
        sa.Column("cell_uuid", sa.String(36), nullable=False),
        sa.Column("sequence", sa.BigInteger, nullable=False),
        sa.Column("instance_uuid", sa.String(36), nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("record", sa.LargeBinary, nullable=False),
        sa.Column("is_gone", sa.Boolean, nullable=False),
        sa.PrimaryKeyConstraint("cell_uuid", "sequence", name="pk_journal_entries"),
    )
    op.create_index("ix_journal_entries_instance", "journal_entries", ["cell_uuid", "instance_uuid"], unique=True)
