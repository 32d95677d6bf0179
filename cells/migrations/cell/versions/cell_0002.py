"""Hosts of a cell, what instances take up of them, jobs, instance actions and migrations.

Revision ID: cell_0002
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "cell_0002"
down_revision = "cell_0001"
branch_labels = None
depends_on = None

_BINARY_TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
_JSON_VALUE = sa.JSON().with_variant(JSONB(), "postgresql")


def upgrade() -> None:
    _create_nodes()
    _create_jobs()
    _create_actions()
    _create_migrations()


def _row_number(table: str) -> tuple[sa.Column[int], sa.PrimaryKeyConstraint]:
    kind = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    return sa.Column("id", kind, nullable=False), sa.PrimaryKeyConstraint("id", name=f"pk_{table}")


def _create_nodes() -> None:
    op.create_table(
        "services",
        *_row_number("services"),
        sa.Column("uuid", sa.String(36), nullable=False),
        sa.Column("host", _BINARY_TEXT, nullable=False),
        sa.Column("binary", sa.Text, nullable=False),
        sa.Column("availability_zone", _BINARY_TEXT, nullable=False),
        sa.Column("disabled", sa.Boolean, nullable=False),
        sa.Column("disabled_reason", sa.Text),
        sa.Column("forced_down", sa.Boolean, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("updated_at", sa.BigInteger, nullable=False),
        sa.UniqueConstraint("uuid", name="uq_services_uuid"),
        sa.UniqueConstraint("host", "binary", name="uq_services_host_binary"),
    )
    op.create_table(
        "compute_nodes",
        *_row_number("compute_nodes"),
        sa.Column("uuid", sa.String(36), nullable=False),
        sa.Column("service_id", sa.BigInteger, nullable=False),
        sa.Column("hypervisor_hostname", _BINARY_TEXT, nullable=False),
        sa.Column("hypervisor_type", sa.Text, nullable=False),
        sa.Column("hypervisor_version", sa.BigInteger, nullable=False),
        sa.Column("host_ip", sa.Text, nullable=False),
        sa.Column("vcpus", sa.BigInteger, nullable=False),
        sa.Column("memory_mib", sa.BigInteger, nullable=False),
        sa.Column("disk_gib", sa.BigInteger, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.ForeignKeyConstraint(["service_id"], ["services.id"], name="fk_compute_nodes_service_id"),
        sa.UniqueConstraint("uuid", name="uq_compute_nodes_uuid"),
        sa.UniqueConstraint("hypervisor_hostname", name="uq_compute_nodes_hypervisor_hostname"),
    )
    op.create_index("ix_compute_nodes_service_id", "compute_nodes", ["service_id"])
    op.create_table(
        "allocations",
        sa.Column("instance_uuid", sa.String(36), nullable=False),
        sa.Column("node_id", sa.BigInteger, nullable=False),
        sa.Column("vcpus", sa.BigInteger, nullable=False),
        sa.Column("memory_mib", sa.BigInteger, nullable=False),
        sa.Column("disk_gib", sa.BigInteger, nullable=False),
        sa.ForeignKeyConstraint(["node_id"], ["compute_nodes.id"], name="fk_allocations_node_id"),
        sa.PrimaryKeyConstraint("instance_uuid", "node_id", name="pk_allocations"),
    )
    op.create_index("ix_allocations_of_node", "allocations", ["node_id", "vcpus", "memory_mib", "disk_gib"])


def _create_jobs() -> None:
    op.create_table(
        "jobs",
        *_row_number("jobs"),
        sa.Column("instance_uuid", sa.String(36), nullable=False),
        sa.Column("action", sa.Text, nullable=False),
        sa.Column("position", sa.Integer, nullable=False),
        sa.Column("parameters", _JSON_VALUE, nullable=False),
        sa.Column("request_id", sa.Text),
        sa.Column("user_id", _BINARY_TEXT),
        sa.Column("project_id", _BINARY_TEXT),
        sa.Column("instance_action_id", sa.BigInteger),
        sa.Column("migration_id", sa.BigInteger),
        sa.Column("created_at", sa.BigInteger, nullable=False),
    )
    op.create_index("ix_jobs_instance_uuid", "jobs", ["instance_uuid"])


def _create_actions() -> None:
    op.create_table(
        "instance_actions",
        *_row_number("instance_actions"),
        sa.Column("instance_uuid", sa.String(36), nullable=False),
        sa.Column("request_id", sa.Text, nullable=False),
        sa.Column("action", sa.Text, nullable=False),
        sa.Column("user_id", _BINARY_TEXT),
        sa.Column("project_id", _BINARY_TEXT),
        sa.Column("start_time", sa.BigInteger, nullable=False),
        sa.Column("updated_at", sa.BigInteger, nullable=False),
        sa.Column("message", sa.Text),
    )
    for column in ("updated_at", "request_id"):
        op.create_index(f"ix_instance_actions_instance_uuid_{column}", "instance_actions", ["instance_uuid", column])
    op.create_table(
        "instance_action_events",
        *_row_number("instance_action_events"),
        sa.Column("action_id", sa.BigInteger, nullable=False),
        sa.Column("event", sa.Text, nullable=False),
        sa.Column("host", _BINARY_TEXT),
        sa.Column("start_time", sa.BigInteger, nullable=False),
        sa.Column("finish_time", sa.BigInteger),
        sa.Column("result", sa.Text),
        sa.Column("traceback", sa.Text),
        sa.Column("details", sa.Text),
        sa.ForeignKeyConstraint(["action_id"], ["instance_actions.id"], name="fk_instance_action_events_action_id"),
    )
    op.create_index("ix_instance_action_events_action_id", "instance_action_events", ["action_id"])


def _create_migrations() -> None:
    op.create_table(
        "migrations",
        *_row_number("migrations"),
        sa.Column("uuid", sa.String(36), nullable=False),
        sa.Column("instance_uuid", sa.String(36), nullable=False),
        sa.Column("migration_type", sa.Text, nullable=False),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("source_compute", _BINARY_TEXT),
        sa.Column("source_node", _BINARY_TEXT),
        sa.Column("dest_compute", _BINARY_TEXT),
        sa.Column("dest_node", _BINARY_TEXT),
        sa.Column("dest_host", _BINARY_TEXT),
        sa.Column("old_instance_type_id", sa.BigInteger),
        sa.Column("new_instance_type_id", sa.BigInteger),
        sa.Column("old_instance", _JSON_VALUE, nullable=False),
        sa.Column("user_id", _BINARY_TEXT),
        sa.Column("project_id", _BINARY_TEXT),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("updated_at", sa.BigInteger, nullable=False),
        sa.UniqueConstraint("uuid", name="uq_migrations_uuid"),
    )
    op.create_index("ix_migrations_instance_uuid_status", "migrations", ["instance_uuid", "status"])
    op.create_index("ix_migrations_updated_at", "migrations", ["updated_at"])
