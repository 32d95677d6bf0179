"""A cell knows which one of its fleet it is, in case the fleet database is lost.

Revision ID: cell_0018
"""

import sqlalchemy as sa
from alembic import op

revision = "cell_0018"
down_revision = "cell_0017"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("cell_state", sa.Column("uuid", sa.String(36)))
    op.add_column("cell_state", sa.Column("number", sa.Integer))
