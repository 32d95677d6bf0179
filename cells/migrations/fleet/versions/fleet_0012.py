"""Cells have numbers, which tell their jobs apart.

Revision ID: fleet_0012
"""

import sqlalchemy as sa
from alembic import op

revision = "fleet_0012"
down_revision = "fleet_0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("cells", sa.Column("number", sa.Integer))
    cells_table = sa.table("cells", sa.column("uuid"), sa.column("name"), sa.column("number"))
    connection = op.get_bind()
    uuids = connection.scalars(sa.select(cells_table.c.uuid).order_by(cells_table.c.name)).all()
    for number, uuid in enumerate(uuids, start=1):
        connection.execute(sa.update(cells_table).where(cells_table.c.uuid == uuid).values(number=number))
    op.create_index("ix_cells_number", "cells", ["number"], unique=True)
