"""Nodes are in groups, and have what Ganeti knows of a node. Those that are there come into the group `default`.

Revision ID: cell_0008
"""

from uuid import uuid4

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

from fleetlight.resources.clock import system_clock

revision = "cell_0008"
down_revision = "cell_0007"
branch_labels = None
depends_on = None

_BINARY_TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
_JSON_VALUE = sa.JSON().with_variant(JSONB(), "postgresql")


def upgrade() -> None:
    groups = op.create_table(
        "node_groups",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), primary_key=True),
        sa.Column("uuid", sa.String(36), nullable=False),
        sa.Column("name", _BINARY_TEXT, nullable=False),
        sa.Column("alloc_policy", sa.Text, nullable=False),
        sa.Column("ipolicy", _JSON_VALUE, nullable=False),
        sa.Column("ndparams", _JSON_VALUE, nullable=False),
        sa.Column("diskparams", _JSON_VALUE, nullable=False),
        sa.Column("tags", _JSON_VALUE, nullable=False),
        sa.Column("serial_no", sa.BigInteger, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("updated_at", sa.BigInteger, nullable=False),
        sa.UniqueConstraint("uuid", name="uq_node_groups_uuid"),
        sa.UniqueConstraint("name", name="uq_node_groups_name"),
    )
    uuid, now = str(uuid4()), system_clock()
    op.bulk_insert(
        groups,
        [
            {
                "uuid": uuid,
                "name": "default",
                "alloc_policy": "preferred",
                "ipolicy": {},
                "ndparams": {},
                "diskparams": {},
                "tags": [],
                "serial_no": 1,
                "created_at": now,
                "updated_at": now,
            }
        ],
    )
    for column in (
        sa.Column("group_uuid", sa.String(36)),
        sa.Column("master_candidate", sa.Boolean, nullable=False, server_default=sa.false()),
        sa.Column("master_capable", sa.Boolean, nullable=False, server_default=sa.true()),
        sa.Column("vm_capable", sa.Boolean, nullable=False, server_default=sa.true()),
        sa.Column("secondary_ip", sa.Text),
        sa.Column("ndparams", _JSON_VALUE, nullable=False, server_default="{}"),
        sa.Column("tags", _JSON_VALUE, nullable=False, server_default="[]"),
        sa.Column("serial_no", sa.BigInteger, nullable=False, server_default="1"),
        sa.Column("updated_at", sa.BigInteger),
    ):
        op.add_column("compute_nodes", column)
    nodes = sa.table("compute_nodes", sa.column("group_uuid"))
    op.execute(nodes.update().values(group_uuid=uuid))
