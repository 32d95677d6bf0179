"""Cells and instance mappings.

Revision ID: fleet_0001
"""

import sqlalchemy as sa
from alembic import op

revision = "fleet_0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    binary_text = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
    op.create_table(
        "cells",
        sa.Column("uuid", sa.String(36), nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("database_url", sa.Text, nullable=False),
        sa.Column("transport_url", sa.Text, nullable=False),
        sa.Column("disabled", sa.Boolean, nullable=False),
        sa.PrimaryKeyConstraint("uuid", name="pk_cells"),
        sa.UniqueConstraint("name", name="uq_cells_name"),
    )
    op.create_table(
        "instance_mappings",
        sa.Column("instance_uuid", sa.String(36), nullable=False),
        sa.Column("cell_uuid", sa.String(36), nullable=False),
        sa.Column("project_id", binary_text),
        sa.Column("user_id", binary_text),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("queued_for_delete", sa.Boolean, nullable=False),
        sa.ForeignKeyConstraint(["cell_uuid"], ["cells.uuid"], name="fk_instance_mappings_cell_uuid"),
        sa.PrimaryKeyConstraint("instance_uuid", name="pk_instance_mappings"),
    )
    op.create_index(
        "ix_instance_mappings_of_cell",
        "instance_mappings",
        ["cell_uuid", "queued_for_delete", "project_id", "instance_uuid"],
    )
