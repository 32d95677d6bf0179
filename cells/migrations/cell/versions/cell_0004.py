"""The changes of one instance can be found, for tokens of finished operations.

Revision ID: cell_0004
"""

from alembic import op

revision = "cell_0004"
down_revision = "cell_0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index("ix_changes_instance_uuid_revision", "changes", ["instance_uuid", "revision"])
