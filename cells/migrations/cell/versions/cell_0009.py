"""Instances may be reservations, and have what only Ganeti has words for.

Revision ID: cell_0009
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "cell_0009"
down_revision = "cell_0008"
branch_labels = None
depends_on = None

_JSON_VALUE = sa.JSON().with_variant(JSONB(), "postgresql")


def upgrade() -> None:
    op.add_column("instances", sa.Column("forthcoming", sa.Boolean, server_default=sa.false()))
    op.add_column("instances", sa.Column("ganeti", _JSON_VALUE))
