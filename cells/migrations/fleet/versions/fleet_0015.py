"""Which cells take announcements, and from which producers.

Revision ID: fleet_0015
"""

import sqlalchemy as sa
from alembic import op

from fleetlight.cells.columns import BINARY_TEXT, UUID_TEXT

revision = "fleet_0015"
down_revision = "fleet_0014"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("cells", sa.Column("takes_announcements", sa.Boolean, nullable=False, server_default=sa.false()))
    op.create_table(
        "producer_keys",
        sa.Column("producer", BINARY_TEXT, nullable=False),
        sa.Column("cell_uuid", UUID_TEXT, nullable=False),
        sa.Column("key_id", sa.String(16), nullable=False),
        sa.Column("secret", sa.LargeBinary, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("expires_at", sa.BigInteger),
        sa.PrimaryKeyConstraint("producer", "cell_uuid", "key_id", name="pk_producer_keys"),
    )
