"""Nodes reserve a part for themselves, may be overcommitted, and have traits.

Revision ID: cell_0012
"""

import sqlalchemy as sa
from alembic import op

revision = "cell_0012"
down_revision = "cell_0010"
branch_labels = None
depends_on = None

_SIZES = ("vcpus", "memory_mib", "disk_gib")


def upgrade() -> None:
    for size in _SIZES:
        op.add_column("compute_nodes", sa.Column(f"reserved_{size}", sa.BigInteger, nullable=False, server_default="0"))
        op.add_column(
            "compute_nodes", sa.Column(f"{size}_permille", sa.BigInteger, nullable=False, server_default="1000")
        )
    op.create_table(
        "node_traits",
        sa.Column("node_id", sa.BigInteger, sa.ForeignKey("compute_nodes.id"), primary_key=True, autoincrement=False),
        sa.Column("trait", sa.Text, primary_key=True),
    )
