"""What users keep: saved views of lists, and which of their logins have ended.

Revision ID: fleet_0002
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "fleet_0002"
down_revision = "fleet_0001"
branch_labels = None
depends_on = None

_BINARY_TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
_JSON = sa.JSON().with_variant(JSONB(), "postgresql")


def upgrade() -> None:
    op.create_table(
        "saved_views",
        sa.Column("id", sa.String(36), primary_key=True),
        sa.Column("user_id", _BINARY_TEXT, nullable=False),
        sa.Column("project_id", _BINARY_TEXT),
        sa.Column("name", _BINARY_TEXT, nullable=False),
        sa.Column("what", sa.Text, nullable=False),
        sa.Column("filter", sa.Text, nullable=False),
        sa.Column("fields", _JSON, nullable=False),
        sa.Column("order", _JSON, nullable=False),
        sa.Column("shared", sa.Boolean, nullable=False),
        sa.Index(None, "user_id", "name", unique=True),
        sa.Index(None, "project_id"),
    )
    op.create_table(
        "ended_sessions",
        sa.Column("user_id", _BINARY_TEXT, primary_key=True),
        sa.Column("session", sa.String(32), primary_key=True),
        sa.Column("ended_at", sa.BigInteger, nullable=False),
        sa.Column("expires_at", sa.BigInteger, nullable=False),
        sa.Index(None, "expires_at"),
    )
