"""Instances, the outbox of their changes, and the last sequence number.

Revision ID: cell_0001
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "cell_0001"
down_revision = None
branch_labels = None
depends_on = None

_TEXTS = [
    "project_id",
    "user_id",
    "display_name",
    "display_description",
    "hostname",
    "host",
    "node",
    "launched_on",
    "availability_zone",
    "vm_state",
    "task_state",
    "locked_by",
    "locked_reason",
    "reservation_id",
    "flavor_id",
    "image_ref",
    "kernel_id",
    "ramdisk_id",
    "key_name",
    "os_type",
    "architecture",
    "root_device_name",
    "config_drive",
    "access_ip_v4",
    "access_ip_v6",
    "instance_name",
    "pinned_availability_zone",
]
_NUMBERS = [
    "power_state",
    "progress",
    "created_at",
    "updated_at",
    "launched_at",
    "terminated_at",
    "deleted_at",
    "launch_index",
    "instance_type_id",
]
_BOOLEANS = ["deleted", "hidden", "locked", "auto_disk_config"]
_JSON = [
    "user_data",
    "metadata",
    "flavor",
    "image_properties",
    "ip_addresses",
    "block_devices",
    "security_groups",
    "server_groups",
    "scheduler_hints",
    "trusted_image_certificates",
    "keypairs",
    "shares",
    "fault",
]


def upgrade() -> None:
    binary_text = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
    json_value = sa.JSON().with_variant(JSONB(), "postgresql")
    op.create_table(
        "instances",
        sa.Column("uuid", binary_text, nullable=False),
        *(sa.Column(name, binary_text) for name in _TEXTS),
        *(sa.Column(name, sa.BigInteger) for name in _NUMBERS),
        *(sa.Column(name, sa.Boolean) for name in _BOOLEANS),
        sa.Column("tags", json_value, nullable=False),
        *(sa.Column(name, json_value) for name in _JSON),
        sa.Column("revision", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("uuid", name="pk_instances"),
    )
    is_sqlite = op.get_bind().dialect.name == "sqlite"
    newest_first = ("deleted", sa.text("created_at DESC" if is_sqlite else "created_at DESC NULLS LAST"), "uuid")
    op.create_index("ix_instances_by_age", "instances", [*newest_first])
    op.create_index("ix_instances_project_by_age", "instances", ["project_id", *newest_first])
    op.create_index("ix_instances_host_deleted", "instances", ["host", "deleted"])
    op.create_index("ix_instances_updated_at", "instances", ["updated_at"])

    op.create_table(
        "changes",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("instance_uuid", sa.String(36), nullable=False),
        sa.Column("revision", sa.BigInteger, nullable=False),
        sa.Column("event_type", sa.Text, nullable=False),
        sa.Column("routing_key", sa.Text, nullable=False),
        sa.Column("message", sa.LargeBinary, nullable=False),
        sa.Column("committed_at", sa.BigInteger, nullable=False),
        sa.Column("sequence", sa.BigInteger),
        sa.Column("published_at", sa.BigInteger),
        sa.PrimaryKeyConstraint("id", name="pk_changes"),
        sa.UniqueConstraint("sequence", name="uq_changes_sequence"),
    )
    unnumbered = sa.text("sequence IS NULL")
    unpublished = sa.text("published_at IS NULL AND sequence IS NOT NULL")
    op.create_index("ix_changes_unnumbered", "changes", ["id"], sqlite_where=unnumbered, postgresql_where=unnumbered)
    op.create_index(
        "ix_changes_unpublished", "changes", ["sequence"], sqlite_where=unpublished, postgresql_where=unpublished
    )

    cell_state = op.create_table(
        "cell_state",
        sa.Column("id", sa.Integer, nullable=False, autoincrement=False),
        sa.Column("last_sequence", sa.BigInteger, nullable=False),
        sa.CheckConstraint("id = 1", name="one_row"),
        sa.PrimaryKeyConstraint("id", name="pk_cell_state"),
    )
    op.bulk_insert(cell_state, [{"id": 1, "last_sequence": 0}])
