"""Aggregates: named groups of hosts, which can be what gives them their zone.

Revision ID: fleet_0007
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "fleet_0007"
down_revision = "fleet_0006"
branch_labels = None
depends_on = None

_NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_BINARY_TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
_JSON = sa.JSON().with_variant(JSONB(), "postgresql")


def upgrade() -> None:
    op.create_table(
        "aggregates",
        sa.Column("number", _NUMBER, nullable=False),
        sa.Column("uuid", sa.String(36), nullable=False),
        sa.Column("name", _BINARY_TEXT, nullable=False),
        sa.Column("metadata", _JSON, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("updated_at", sa.BigInteger),
        sa.PrimaryKeyConstraint("number", name="pk_aggregates"),
        sa.UniqueConstraint("uuid", name="uq_aggregates_uuid"),
        sa.UniqueConstraint("name", name="uq_aggregates_name"),
    )
    op.create_table(
        "aggregate_hosts",
        sa.Column("aggregate_number", sa.BigInteger, nullable=False),
        sa.Column("host", _BINARY_TEXT, nullable=False),
        sa.ForeignKeyConstraint(
            ["aggregate_number"], ["aggregates.number"], name="fk_aggregate_hosts_aggregate_number"
        ),
        sa.PrimaryKeyConstraint("aggregate_number", "host", name="pk_aggregate_hosts"),
    )
    op.create_index("ix_aggregate_hosts_host", "aggregate_hosts", ["host"])
