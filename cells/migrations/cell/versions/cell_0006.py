"""What an index wants of each instance is rendered by the indexer alone, and no longer kept beside its row.

APIs and workers of the version before write to this table with each change of an instance, and fail without it
(docs/operations/production.md, Upgrades).

Revision ID: cell_0006
"""

from alembic import op

revision = "cell_0006"
down_revision = "cell_0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.drop_table("kept_texts")
