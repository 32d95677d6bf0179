"""Operations of jobs are shown in a few words; instances are found by their names; reservations take up room.

Revision ID: cell_0013
"""

import sqlalchemy as sa
from alembic import op

revision = "cell_0013"
down_revision = "cell_0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("job_operations", sa.Column("summary", sa.Text))
    op.add_column("allocations", sa.Column("is_forthcoming", sa.Boolean, nullable=False, server_default=sa.false()))
    op.create_table(
        "nic_macs",
        sa.Column("mac", sa.String(17), nullable=False),
        sa.Column("instance_uuid", sa.String(36), nullable=False),
        sa.PrimaryKeyConstraint("mac", name="pk_nic_macs"),
    )
    op.create_index("ix_nic_macs_instance_uuid", "nic_macs", ["instance_uuid"])
    op.create_table(
        "reservation_expiries",
        sa.Column("instance_uuid", sa.String(36), nullable=False),
        sa.Column("expires_at", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("instance_uuid", name="pk_reservation_expiries"),
    )
    op.create_index("ix_reservation_expiries_expires_at", "reservation_expiries", ["expires_at"])
    op.create_index("ix_instances_display_name", "instances", ["display_name"])
