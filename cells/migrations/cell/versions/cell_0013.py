"""Operations of jobs are shown in a few words; instances are found by their names.

Revision ID: cell_0013
"""

import sqlalchemy as sa
from alembic import op

revision = "cell_0013"
down_revision = "cell_0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("job_operations", sa.Column("summary", sa.Text))
    op.create_index("ix_instances_display_name", "instances", ["display_name"])
