"""What the index wants of each instance is kept beside its row.

Rows from before get it when they change, or from `fleetlight database upgrade`.

Revision ID: cell_0005
"""

import sqlalchemy as sa
from alembic import op

revision = "cell_0005"
down_revision = "cell_0004"
branch_labels = None
depends_on = None

_BINARY_TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    op.create_table(
        "kept_texts",
        sa.Column("instance_uuid", _BINARY_TEXT, nullable=False),
        sa.Column("revision", sa.BigInteger, nullable=False),
        sa.Column("form", sa.Integer, nullable=False),
        sa.Column("text", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("instance_uuid", name="pk_kept_texts"),
    )
