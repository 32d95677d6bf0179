"""What there is to know of a cell of Nova besides its own database.

Revision ID: fleet_0005
"""

import sqlalchemy as sa
from alembic import op

revision = "fleet_0005"
down_revision = "fleet_0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("cells", sa.Column("api_database_url", sa.Text))
    op.add_column("cells", sa.Column("nova_uuid", sa.String(36)))
