"""Nodes say where their agents answer.

Revision ID: cell_0015
"""

import sqlalchemy as sa
from alembic import op

revision = "cell_0015"
down_revision = "cell_0014"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("compute_nodes", sa.Column("agent_address", sa.Text))
