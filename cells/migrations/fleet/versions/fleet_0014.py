"""The newest state of instances that only notifications from outside tell of.

Revision ID: fleet_0014
"""

import sqlalchemy as sa
from alembic import op

from fleetlight.cells.columns import UUID_TEXT

revision = "fleet_0014"
down_revision = "fleet_0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "announced_instances",
        sa.Column("cell_uuid", UUID_TEXT, nullable=False),
        sa.Column("instance_uuid", UUID_TEXT, nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("deleted_at", sa.BigInteger),
        sa.Column("record", sa.LargeBinary, nullable=False),
        sa.Column("extra", sa.LargeBinary),
        sa.PrimaryKeyConstraint("cell_uuid", "instance_uuid", name="pk_announced_instances"),
    )
    op.create_index("ix_announced_instances_version", "announced_instances", ["cell_uuid", "version"])
