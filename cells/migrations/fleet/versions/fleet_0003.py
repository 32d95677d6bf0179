"""Work on the index that operators order over HTTP, and what audits have found.

Revision ID: fleet_0003
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "fleet_0003"
down_revision = "fleet_0002"
branch_labels = None
depends_on = None

_JSON = sa.JSON().with_variant(JSONB(), "postgresql")
_UUID = sa.String(36)


def upgrade() -> None:
    op.create_table(
        "index_work",
        sa.Column("id", _UUID, primary_key=True),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("subjects", _JSON, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("ordered_at", sa.BigInteger, nullable=False),
        sa.Column("ordered_by", sa.Text, nullable=False),
        sa.Column("started_at", sa.BigInteger),
        sa.Column("ended_at", sa.BigInteger),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("done", sa.BigInteger, nullable=False),
        sa.Column("total", sa.BigInteger),
        sa.Column("is_to_stop", sa.Boolean, nullable=False),
        sa.Column("result", sa.Text),
        sa.Column("findings", _JSON, nullable=False),
        sa.Index(None, "ordered_at", "id"),
    )
    op.create_table(
        "audit_rounds",
        sa.Column("cell_uuid", _UUID, primary_key=True),
        sa.Column("at", sa.BigInteger, nullable=False),
        sa.Column("compared", sa.BigInteger, nullable=False),
        sa.Column("found", sa.BigInteger, nullable=False),
        sa.Column("repaired", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "restored_cells",
        sa.Column("cell_uuid", _UUID, primary_key=True),
        sa.Column("at", sa.BigInteger, nullable=False),
        sa.Column("watermark", sa.BigInteger, nullable=False),
        sa.Column("last_sequence", sa.BigInteger, nullable=False),
    )
