"""The hosts that cells had when they were last seen.

Revision ID: fleet_0008
"""

import sqlalchemy as sa
from alembic import op

revision = "fleet_0008"
down_revision = "fleet_0007"
branch_labels = None
depends_on = None

_BINARY_TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    op.create_table(
        "known_hosts",
        sa.Column("cell_uuid", sa.String(36), nullable=False),
        sa.Column("host", _BINARY_TEXT, nullable=False),
        sa.PrimaryKeyConstraint("cell_uuid", "host", name="pk_known_hosts"),
    )
