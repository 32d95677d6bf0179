"""Nodes have a revision, by which an index knows the newest of their changes.

Revision ID: cell_0017
"""

import sqlalchemy as sa
from alembic import op

revision = "cell_0017"
down_revision = "cell_0016"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("compute_nodes", sa.Column("revision", sa.BigInteger, nullable=False, server_default="1"))
