"""What workers have found of the mappings of instances, beside the rows of their cells.

Revision ID: fleet_0013
"""

import sqlalchemy as sa
from alembic import op

from fleetlight.cells.columns import UUID_TEXT

revision = "fleet_0013"
down_revision = "fleet_0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "compared_mappings",
        sa.Column("cell_uuid", UUID_TEXT, nullable=False),
        sa.Column("compared_at", sa.BigInteger, nullable=False),
        sa.Column("repaired", sa.BigInteger, nullable=False),
        sa.Column("repaired_at", sa.BigInteger),
        sa.Column("elsewhere", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("cell_uuid", name="pk_compared_mappings"),
    )
