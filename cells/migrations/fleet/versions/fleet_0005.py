"""Subscriptions: saved queries whose changes are delivered to a target.

Revision ID: fleet_0005
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "fleet_0005"
down_revision = "fleet_0004"
branch_labels = None
depends_on = None

_BINARY_TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
_JSON = sa.JSON().with_variant(JSONB(), "postgresql")
_UUID = sa.String(36)


def _of_subscription() -> sa.ForeignKey:
    return sa.ForeignKey("subscriptions.id", ondelete="CASCADE")


def upgrade() -> None:
    op.create_table(
        "subscriptions",
        sa.Column("id", _UUID, primary_key=True),
        sa.Column("user_id", _BINARY_TEXT),
        sa.Column("project_id", _BINARY_TEXT),
        sa.Column("roles", _JSON, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("what", sa.Text, nullable=False),
        sa.Column("filter", sa.Text, nullable=False),
        sa.Column("fields", _JSON, nullable=False),
        sa.Column("all_projects", sa.Boolean, nullable=False),
        sa.Column("target", sa.Text, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("confirmed_at", sa.BigInteger, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("reason", sa.Text),
        sa.Column("is_complete", sa.Boolean),
        sa.Column("delivered", sa.BigInteger, nullable=False),
        sa.Column("delivered_at", sa.BigInteger),
        sa.Column("failing_since", sa.BigInteger),
        sa.Column("last_error", sa.Text),
        sa.Index(None, "user_id"),
    )
    op.create_table(
        "subscription_secrets",
        sa.Column("subscription_id", _UUID, _of_subscription(), primary_key=True),
        sa.Column("secret", sa.Text, nullable=False),
    )
    op.create_table(
        "subscription_positions",
        sa.Column("subscription_id", _UUID, _of_subscription(), primary_key=True),
        sa.Column("cell_uuid", _UUID, primary_key=True),
        sa.Column("epoch", _UUID),
        sa.Column("sequence", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "subscription_failures",
        sa.Column("id", _UUID, primary_key=True),
        sa.Column("subscription_id", _UUID, _of_subscription(), nullable=False),
        sa.Column("event_id", sa.Text, nullable=False),
        sa.Column("type", sa.Text, nullable=False),
        sa.Column("subject", sa.Text),
        sa.Column("body", sa.Text, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("times", sa.Integer, nullable=False),
        sa.Column("failed_at", sa.BigInteger, nullable=False),
        sa.Column("is_wanted", sa.Boolean, nullable=False),
        sa.Index(None, "subscription_id", "failed_at"),
    )
