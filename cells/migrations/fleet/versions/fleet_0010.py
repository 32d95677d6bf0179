"""Keys that relays sign their messages with: each native cell gets one.

Revision ID: fleet_0010
"""

import secrets
import time

import sqlalchemy as sa
from alembic import op

revision = "fleet_0010"
down_revision = "fleet_0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    keys = op.create_table(
        "cell_keys",
        sa.Column("cell_uuid", sa.String(36), nullable=False),
        sa.Column("key_id", sa.String(16), nullable=False),
        sa.Column("secret", sa.LargeBinary, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("expires_at", sa.BigInteger),
        sa.PrimaryKeyConstraint("cell_uuid", "key_id", name="pk_cell_keys"),
    )
    cells = op.get_bind().execute(sa.text("SELECT uuid FROM cells WHERE kind = 'native'")).scalars().all()
    now = time.time_ns() // 1000
    rows = [
        {"cell_uuid": uuid, "key_id": secrets.token_hex(4), "secret": secrets.token_bytes(32), "created_at": now}
        for uuid in cells
    ]
    if rows:
        op.bulk_insert(keys, rows)
