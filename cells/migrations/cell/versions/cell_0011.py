"""Changes keep what they replaced, so that the list as of a moment can be told.

Revision ID: cell_0011
"""

import time

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "cell_0011"
down_revision = "cell_0010"
branch_labels = None
depends_on = None

_JSON_VALUE = sa.JSON().with_variant(JSONB(), "postgresql")
_MICROSECONDS = 1_000_000


def upgrade() -> None:
    op.add_column("changes", sa.Column("previous", _JSON_VALUE))
    columns = ["committed_at", "instance_uuid", "revision"]
    op.create_index("ix_changes_committed_at_instance_uuid_revision", "changes", columns)
    op.add_column("cell_state", sa.Column("forgotten_until", sa.BigInteger, nullable=False, server_default="0"))
    state = sa.table("cell_state", sa.column("last_sequence"), sa.column("forgotten_until"))
    # What happened before is kept without what it replaced, or not any more.
    now = round(time.time() * _MICROSECONDS)
    op.execute(state.update().where(state.c.last_sequence > 0).values(forgotten_until=now))
