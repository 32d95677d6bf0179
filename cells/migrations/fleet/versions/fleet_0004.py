"""Bulk changes: actions on many instances, as they were in a preview.

Revision ID: fleet_0004
"""

import sqlalchemy as sa
from alembic import op

revision = "fleet_0004"
down_revision = "fleet_0003"
branch_labels = None
depends_on = None

_BINARY_TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
_UUID = sa.String(36)


def upgrade() -> None:
    op.create_table(
        "bulk_changes",
        sa.Column("id", _UUID, primary_key=True),
        sa.Column("user_id", _BINARY_TEXT, nullable=False),
        sa.Column("project_id", _BINARY_TEXT),
        sa.Column("action", sa.Text, nullable=False),
        sa.Column("filter", sa.Text, nullable=False),
        sa.Column("as_of", sa.BigInteger, nullable=False),
        sa.Column("is_complete", sa.Boolean, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("run", sa.Integer, nullable=False),
        sa.Column("reason", sa.Text),
        sa.Index(None, "user_id", "created_at"),
    )
    op.create_table(
        "bulk_items",
        sa.Column("bulk_id", _UUID, primary_key=True),
        sa.Column("position", sa.Integer, primary_key=True),
        sa.Column("uuid", _UUID, nullable=False),
        sa.Column("revision", sa.BigInteger),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("project_id", _BINARY_TEXT, nullable=False),
        sa.Column("cell", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("reason", sa.Text),
        sa.Column("changed_at", sa.BigInteger, nullable=False),
    )
