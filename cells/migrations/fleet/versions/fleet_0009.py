"""Quota classes: the defaults become those of the class `default`, and there can be others.

Revision ID: fleet_0009
"""

import sqlalchemy as sa
from alembic import op

revision = "fleet_0009"
down_revision = "fleet_0008"
branch_labels = None
depends_on = None

_BINARY_TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    op.create_table(
        "quota_classes",
        sa.Column("name", _BINARY_TEXT, nullable=False),
        sa.Column("resource", sa.Text, nullable=False),
        sa.Column("limit", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("name", "resource", name="pk_quota_classes"),
    )
    op.execute("""INSERT INTO quota_classes SELECT 'default', resource, "limit" FROM quota_defaults""")
    op.drop_table("quota_defaults")
