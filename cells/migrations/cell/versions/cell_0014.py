"""Changes keep what they replaced, so that the list as of a moment can be told.

Revision ID: cell_0014
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

from fleetlight.resources.clock import system_clock

revision = "cell_0014"
down_revision = "cell_0013"
branch_labels = None
depends_on = None

_JSON_VALUE = sa.JSON().with_variant(JSONB(), "postgresql")


def upgrade() -> None:
    op.add_column("changes", sa.Column("previous", _JSON_VALUE))
    columns = ["committed_at", "instance_uuid", "revision"]
    op.create_index("ix_changes_committed_at_instance_uuid_revision", "changes", columns)
    op.add_column("cell_state", sa.Column("forgotten_until", sa.BigInteger, nullable=False, server_default="0"))
    state = sa.table("cell_state", sa.column("last_sequence"), sa.column("forgotten_until"))
    # What happened before is kept without what it replaced, or not any more.
    op.execute(state.update().where(state.c.last_sequence > 0).values(forgotten_until=system_clock()))
