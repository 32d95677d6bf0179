"""All tables of a cell, and the rows that it begins with.

Revision ID: cell_0001
"""

from uuid import uuid4

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

from fleetlight.resources.clock import system_clock

revision = "cell_0001"
down_revision = None
branch_labels = None
depends_on = None

_BINARY_TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
_JSON = sa.JSON().with_variant(JSONB(), "postgresql")
_ROW_NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_UUID = sa.String(36)
_SIZES = ("vcpus", "memory_mib", "disk_gib")
_UNNUMBERED = sa.text("sequence IS NULL")
_UNPUBLISHED = sa.text("published_at IS NULL AND sequence IS NOT NULL")
# Hosts without an agent are simulated, and can install what the simulator's instances are made from.
_SYSTEMS = {
    "cirros-0.6.3": "70a599e0-31e7-49b7-b260-868f441e862b",
    "debian-12": "3a8bc58e-4d60-546d-aa62-66b5b8bf0435",
    "rocky-9": "21eb97bb-faf1-58a0-a8b8-3119f3d1b613",
    "ubuntu-24.04": "2b4163e9-5d90-500c-95e3-bd5d29f078a7",
}


def upgrade() -> None:
    _create_instances()
    _create_changes()
    _create_nodes()
    _create_networks()
    _create_cluster()
    _create_jobs()
    _create_actions()


def _create_instances() -> None:
    op.create_table(
        "instances",
        sa.Column("uuid", _BINARY_TEXT, primary_key=True),
        sa.Column("project_id", _BINARY_TEXT),
        sa.Column("user_id", _BINARY_TEXT),
        sa.Column("display_name", _BINARY_TEXT),
        sa.Column("display_description", _BINARY_TEXT),
        sa.Column("hostname", _BINARY_TEXT),
        sa.Column("host", _BINARY_TEXT),
        sa.Column("node", _BINARY_TEXT),
        sa.Column("launched_on", _BINARY_TEXT),
        sa.Column("availability_zone", _BINARY_TEXT),
        sa.Column("vm_state", _BINARY_TEXT),
        sa.Column("task_state", _BINARY_TEXT),
        sa.Column("power_state", sa.BigInteger),
        sa.Column("progress", sa.BigInteger),
        sa.Column("created_at", sa.BigInteger),
        sa.Column("updated_at", sa.BigInteger),
        sa.Column("launched_at", sa.BigInteger),
        sa.Column("terminated_at", sa.BigInteger),
        sa.Column("deleted_at", sa.BigInteger),
        sa.Column("deleted", sa.Boolean),
        sa.Column("hidden", sa.Boolean),
        sa.Column("forthcoming", sa.Boolean),
        sa.Column("locked", sa.Boolean),
        sa.Column("locked_by", _BINARY_TEXT),
        sa.Column("locked_reason", _BINARY_TEXT),
        sa.Column("reservation_id", _BINARY_TEXT),
        sa.Column("launch_index", sa.BigInteger),
        sa.Column("instance_type_id", sa.BigInteger),
        sa.Column("flavor_id", _BINARY_TEXT),
        sa.Column("memory_mb", sa.BigInteger),
        sa.Column("vcpus", sa.BigInteger),
        sa.Column("disk_usage", sa.BigInteger),
        sa.Column("image_ref", _BINARY_TEXT),
        sa.Column("kernel_id", _BINARY_TEXT),
        sa.Column("ramdisk_id", _BINARY_TEXT),
        sa.Column("key_name", _BINARY_TEXT),
        sa.Column("os_type", _BINARY_TEXT),
        sa.Column("architecture", _BINARY_TEXT),
        sa.Column("root_device_name", _BINARY_TEXT),
        sa.Column("config_drive", _BINARY_TEXT),
        sa.Column("auto_disk_config", sa.Boolean),
        sa.Column("access_ip_v4", _BINARY_TEXT),
        sa.Column("access_ip_v6", _BINARY_TEXT),
        sa.Column("instance_name", _BINARY_TEXT),
        sa.Column("pinned_availability_zone", _BINARY_TEXT),
        sa.Column("tags", _JSON, nullable=False),
        sa.Column("user_data", _JSON),
        sa.Column("metadata", _JSON),
        sa.Column("flavor", _JSON),
        sa.Column("image_properties", _JSON),
        sa.Column("ip_addresses", _JSON),
        sa.Column("block_devices", _JSON),
        sa.Column("security_groups", _JSON),
        sa.Column("server_groups", _JSON),
        sa.Column("scheduler_hints", _JSON),
        sa.Column("trusted_image_certificates", _JSON),
        sa.Column("keypairs", _JSON),
        sa.Column("shares", _JSON),
        sa.Column("fault", _JSON),
        sa.Column("ganeti", _JSON),
        sa.Column("revision", sa.BigInteger, nullable=False),
        sa.Index(None, "host", "deleted"),
        sa.Index(None, "updated_at"),
        sa.Index(None, "display_name"),
    )
    is_sqlite = op.get_bind().dialect.name == "sqlite"
    newest_first = ("deleted", sa.text("created_at DESC" if is_sqlite else "created_at DESC NULLS LAST"), "uuid")
    op.create_index("ix_instances_by_age", "instances", [*newest_first])
    op.create_index("ix_instances_project_by_age", "instances", ["project_id", *newest_first])


def _create_changes() -> None:
    op.create_table(
        "changes",
        sa.Column("id", _ROW_NUMBER, primary_key=True),
        sa.Column("instance_uuid", _UUID, nullable=False),
        sa.Column("revision", sa.BigInteger, nullable=False),
        sa.Column("event_type", sa.Text, nullable=False),
        sa.Column("routing_key", sa.Text, nullable=False),
        sa.Column("message", sa.LargeBinary, nullable=False),
        sa.Column("committed_at", sa.BigInteger, nullable=False),
        sa.Column("sequence", sa.BigInteger, unique=True),
        sa.Column("published_at", sa.BigInteger),
        sa.Column("previous", _JSON),
        sa.Index(None, "instance_uuid", "revision"),
        sa.Index(None, "committed_at", "instance_uuid", "revision"),
        sa.Index("ix_changes_unnumbered", "id", sqlite_where=_UNNUMBERED, postgresql_where=_UNNUMBERED),
        sa.Index("ix_changes_unpublished", "sequence", sqlite_where=_UNPUBLISHED, postgresql_where=_UNPUBLISHED),
    )
    state = op.create_table(
        "cell_state",
        sa.Column(
            "id", sa.Integer, sa.CheckConstraint("id = 1", name="one_row"), primary_key=True, autoincrement=False
        ),
        sa.Column("last_sequence", sa.BigInteger, nullable=False),
        sa.Column("forgotten_until", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("uuid", _UUID),
        sa.Column("number", sa.Integer),
    )
    op.bulk_insert(state, [{"id": 1, "last_sequence": 0}])
    op.create_table(
        "epochs",
        sa.Column("id", _ROW_NUMBER, primary_key=True),
        sa.Column("uuid", _UUID, nullable=False, unique=True),
        sa.Column("after_sequence", sa.BigInteger, nullable=False),
    )


def _create_nodes() -> None:
    op.create_table(
        "services",
        sa.Column("id", _ROW_NUMBER, primary_key=True),
        sa.Column("uuid", _UUID, nullable=False, unique=True),
        sa.Column("host", _BINARY_TEXT, nullable=False),
        sa.Column("binary", sa.Text, nullable=False),
        sa.Column("availability_zone", _BINARY_TEXT, nullable=False),
        sa.Column("disabled", sa.Boolean, nullable=False),
        sa.Column("disabled_reason", sa.Text),
        sa.Column("forced_down", sa.Boolean, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("updated_at", sa.BigInteger, nullable=False),
        sa.UniqueConstraint("host", "binary"),
    )
    groups = op.create_table(
        "node_groups",
        sa.Column("id", _ROW_NUMBER, primary_key=True),
        sa.Column("uuid", _UUID, nullable=False, unique=True),
        sa.Column("name", _BINARY_TEXT, nullable=False, unique=True),
        sa.Column("alloc_policy", sa.Text, nullable=False),
        sa.Column("ipolicy", _JSON, nullable=False),
        sa.Column("ndparams", _JSON, nullable=False),
        sa.Column("diskparams", _JSON, nullable=False),
        sa.Column("tags", _JSON, nullable=False),
        sa.Column("serial_no", sa.BigInteger, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("updated_at", sa.BigInteger, nullable=False),
    )
    now = system_clock()
    op.bulk_insert(
        groups,
        [
            {
                "uuid": str(uuid4()),
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
    op.create_table(
        "compute_nodes",
        sa.Column("id", _ROW_NUMBER, primary_key=True),
        sa.Column("uuid", _UUID, nullable=False, unique=True),
        sa.Column("service_id", sa.BigInteger, sa.ForeignKey("services.id"), nullable=False, index=True),
        sa.Column("hypervisor_hostname", _BINARY_TEXT, nullable=False, unique=True),
        sa.Column("hypervisor_type", sa.Text, nullable=False),
        sa.Column("hypervisor_version", sa.BigInteger, nullable=False),
        sa.Column("host_ip", sa.Text, nullable=False),
        sa.Column("vcpus", sa.BigInteger, nullable=False),
        sa.Column("memory_mib", sa.BigInteger, nullable=False),
        sa.Column("disk_gib", sa.BigInteger, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("group_uuid", _UUID, nullable=False),
        sa.Column("master_candidate", sa.Boolean, nullable=False, server_default=sa.false()),
        sa.Column("master_capable", sa.Boolean, nullable=False, server_default=sa.true()),
        sa.Column("vm_capable", sa.Boolean, nullable=False, server_default=sa.true()),
        sa.Column("secondary_ip", sa.Text),
        sa.Column("ndparams", _JSON, nullable=False, server_default="{}"),
        sa.Column("tags", _JSON, nullable=False, server_default="[]"),
        sa.Column("serial_no", sa.BigInteger, nullable=False, server_default="1"),
        sa.Column("updated_at", sa.BigInteger),
        *(sa.Column(f"reserved_{size}", sa.BigInteger, nullable=False, server_default="0") for size in _SIZES),
        *(sa.Column(f"{size}_permille", sa.BigInteger, nullable=False, server_default="1000") for size in _SIZES),
        sa.Column("agent_address", sa.Text),
        sa.Column("revision", sa.BigInteger, nullable=False, server_default="1"),
    )
    op.create_table(
        "node_traits",
        sa.Column("node_id", sa.BigInteger, sa.ForeignKey("compute_nodes.id"), primary_key=True, autoincrement=False),
        sa.Column("trait", sa.Text, primary_key=True),
    )
    op.create_table(
        "allocations",
        sa.Column("instance_uuid", _UUID, primary_key=True),
        sa.Column("node_id", sa.BigInteger, sa.ForeignKey("compute_nodes.id"), primary_key=True),
        sa.Column("vcpus", sa.BigInteger, nullable=False),
        sa.Column("memory_mib", sa.BigInteger, nullable=False),
        sa.Column("disk_gib", sa.BigInteger, nullable=False),
        sa.Column("is_forthcoming", sa.Boolean, nullable=False, server_default=sa.false()),
        sa.Index("ix_allocations_of_node", "node_id", "vcpus", "memory_mib", "disk_gib"),
    )
    op.create_table(
        "reservation_expiries",
        sa.Column("instance_uuid", _UUID, primary_key=True),
        sa.Column("expires_at", sa.BigInteger, nullable=False, index=True),
    )
    op.create_table(
        "observed_statuses",
        sa.Column("kind", sa.Text, primary_key=True),
        sa.Column("name", _BINARY_TEXT, primary_key=True),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("observed_at", sa.BigInteger, nullable=False),
    )


def _create_networks() -> None:
    op.create_table(
        "networks",
        sa.Column("id", _ROW_NUMBER, primary_key=True),
        sa.Column("uuid", _UUID, nullable=False, unique=True),
        sa.Column("name", _BINARY_TEXT, nullable=False, unique=True),
        sa.Column("network", sa.Text, nullable=False),
        sa.Column("gateway", sa.Text),
        sa.Column("network6", sa.Text),
        sa.Column("gateway6", sa.Text),
        sa.Column("mac_prefix", sa.Text),
        sa.Column("external_reservations", _JSON, nullable=False),
        sa.Column("tags", _JSON, nullable=False),
        sa.Column("serial_no", sa.BigInteger, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("updated_at", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "network_connections",
        sa.Column("network_uuid", _UUID, primary_key=True),
        sa.Column("group_uuid", _UUID, primary_key=True),
        sa.Column("mode", sa.Text, nullable=False),
        sa.Column("link", sa.Text, nullable=False),
        sa.Column("vlan", sa.Text, nullable=False),
    )
    op.create_table(
        "network_nics",
        sa.Column("instance_uuid", _UUID, primary_key=True),
        sa.Column("position", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("network_uuid", _UUID, nullable=False),
        sa.Column("address", sa.Text),
        sa.UniqueConstraint("network_uuid", "address"),
    )
    op.create_table(
        "nic_macs",
        sa.Column("mac", sa.String(17), primary_key=True),
        sa.Column("instance_uuid", _UUID, nullable=False, index=True),
    )


def _create_cluster() -> None:
    systems = op.create_table(
        "operating_systems",
        sa.Column("name", _BINARY_TEXT, primary_key=True),
        sa.Column("image_ref", sa.Text),
        sa.Column("variants", _JSON, nullable=False),
        sa.Column("api_versions", _JSON, nullable=False),
        sa.Column("parameters", _JSON, nullable=False),
        sa.Column("trusted", sa.Boolean, nullable=False),
    )
    op.bulk_insert(
        systems,
        [
            {
                "name": name,
                "image_ref": image,
                "variants": [],
                "api_versions": [20],
                "parameters": [],
                "trusted": True,
            }
            for name, image in _SYSTEMS.items()
        ],
    )
    op.create_table(
        "job_filters",
        sa.Column("id", _ROW_NUMBER, primary_key=True),
        sa.Column("uuid", _UUID, nullable=False, unique=True),
        sa.Column("priority", sa.BigInteger, nullable=False),
        sa.Column("predicates", _JSON, nullable=False),
        sa.Column("action", _JSON, nullable=False),
        sa.Column("watermark", sa.BigInteger, nullable=False),
        sa.Column("reason_trail", _JSON, nullable=False),
    )
    parameters = op.create_table(
        "cluster_parameters",
        sa.Column(
            "id", sa.Integer, sa.CheckConstraint("id = 1", name="one_row"), primary_key=True, autoincrement=False
        ),
        sa.Column("parameters", _JSON, nullable=False),
        sa.Column("tags", _JSON, nullable=False),
        sa.Column("serial_no", sa.BigInteger, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("updated_at", sa.BigInteger, nullable=False),
    )
    now = system_clock()
    op.bulk_insert(
        parameters, [{"id": 1, "parameters": {}, "tags": [], "serial_no": 1, "created_at": now, "updated_at": now}]
    )
    jobs = op.create_table(
        "periodic_jobs",
        sa.Column("operation", sa.Text, primary_key=True),
        sa.Column("due_at", sa.BigInteger, nullable=False),
    )
    op.bulk_insert(jobs, [{"operation": "OP_NODE_SNAPSHOT_REFRESH", "due_at": 0}])


def _create_jobs() -> None:
    op.create_table(
        "jobs",
        sa.Column("id", _ROW_NUMBER, primary_key=True),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("priority", sa.Integer, nullable=False),
        sa.Column("is_ready", sa.Boolean, nullable=False),
        sa.Column("stage", sa.Text, nullable=False),
        sa.Column("position", sa.Integer, nullable=False),
        sa.Column("operation_count", sa.Integer, nullable=False),
        sa.Column("request_id", sa.Text),
        sa.Column("user_id", _BINARY_TEXT),
        sa.Column("project_id", _BINARY_TEXT),
        sa.Column("received_at", sa.BigInteger, nullable=False),
        sa.Column("started_at", sa.BigInteger),
        sa.Column("ended_at", sa.BigInteger),
        sa.Index(
            "ix_jobs_ready",
            "priority",
            "id",
            sqlite_where=sa.text("is_ready = 1"),
            postgresql_where=sa.text("is_ready"),
        ),
        sa.Index(
            "ix_jobs_ended",
            "ended_at",
            sqlite_where=sa.text("ended_at IS NOT NULL"),
            postgresql_where=sa.text("ended_at IS NOT NULL"),
        ),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "job_operations",
        sa.Column(
            "job_id", sa.BigInteger, sa.ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True, autoincrement=False
        ),
        sa.Column("position", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("operation", sa.Text, nullable=False),
        sa.Column("parameters", _JSON, nullable=False),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("next_step", sa.Integer, nullable=False),
        sa.Column("notes", _JSON, nullable=False),
        sa.Column("result", _JSON),
        sa.Column("instance_uuid", _UUID),
        sa.Column("instance_action_id", sa.BigInteger),
        sa.Column("migration_id", sa.BigInteger),
        sa.Column("summary", sa.Text),
        sa.Column("started_at", sa.BigInteger),
        sa.Column("ended_at", sa.BigInteger),
        sa.Index(
            "ix_job_operations_of_instance",
            "instance_uuid",
            sqlite_where=sa.text("ended_at IS NULL"),
            postgresql_where=sa.text("ended_at IS NULL"),
        ),
    )
    op.create_table(
        "job_log",
        sa.Column(
            "job_id", sa.BigInteger, sa.ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True, autoincrement=False
        ),
        sa.Column("serial", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("position", sa.Integer, nullable=False),
        sa.Column("logged_at", sa.BigInteger, nullable=False),
        sa.Column("type", sa.Text, nullable=False),
        sa.Column("data", _JSON, nullable=False),
    )
    op.create_table(
        "job_dependencies",
        sa.Column(
            "job_id", sa.BigInteger, sa.ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True, autoincrement=False
        ),
        sa.Column("depends_on", sa.BigInteger, primary_key=True, autoincrement=False, index=True),
        sa.Column("statuses", _JSON, nullable=False),
    )
    op.create_table(
        "job_locks",
        sa.Column(
            "job_id", sa.BigInteger, sa.ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True, autoincrement=False
        ),
        sa.Column("level", sa.Text, primary_key=True),
        sa.Column("name", _BINARY_TEXT, primary_key=True),
        sa.Column("is_shared", sa.Boolean, nullable=False),
        sa.Column("priority", sa.Integer, nullable=False),
        sa.Column("wanted_at", sa.BigInteger, nullable=False),
        sa.Column("held_at", sa.BigInteger),
        sa.Index("ix_job_locks_of_name", "level", "name", "priority", "job_id"),
        sa.Index(
            "ix_job_locks_held",
            "level",
            "name",
            sqlite_where=sa.text("held_at IS NOT NULL"),
            postgresql_where=sa.text("held_at IS NOT NULL"),
        ),
    )


def _create_actions() -> None:
    op.create_table(
        "instance_actions",
        sa.Column("id", _ROW_NUMBER, primary_key=True),
        sa.Column("instance_uuid", _UUID, nullable=False),
        sa.Column("request_id", sa.Text, nullable=False),
        sa.Column("action", sa.Text, nullable=False),
        sa.Column("user_id", _BINARY_TEXT),
        sa.Column("project_id", _BINARY_TEXT),
        sa.Column("start_time", sa.BigInteger, nullable=False),
        sa.Column("updated_at", sa.BigInteger, nullable=False),
        sa.Column("message", sa.Text),
        sa.Index(None, "instance_uuid", "updated_at"),
        sa.Index(None, "instance_uuid", "request_id"),
    )
    op.create_table(
        "instance_action_events",
        sa.Column("id", _ROW_NUMBER, primary_key=True),
        sa.Column("action_id", sa.BigInteger, sa.ForeignKey("instance_actions.id"), nullable=False, index=True),
        sa.Column("event", sa.Text, nullable=False),
        sa.Column("host", _BINARY_TEXT),
        sa.Column("start_time", sa.BigInteger, nullable=False),
        sa.Column("finish_time", sa.BigInteger),
        sa.Column("result", sa.Text),
        sa.Column("traceback", sa.Text),
        sa.Column("details", sa.Text),
    )
    op.create_table(
        "migrations",
        sa.Column("id", _ROW_NUMBER, primary_key=True),
        sa.Column("uuid", _UUID, nullable=False, unique=True),
        sa.Column("instance_uuid", _UUID, nullable=False),
        sa.Column("migration_type", sa.Text, nullable=False),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("source_compute", _BINARY_TEXT),
        sa.Column("source_node", _BINARY_TEXT),
        sa.Column("dest_compute", _BINARY_TEXT),
        sa.Column("dest_node", _BINARY_TEXT),
        sa.Column("dest_host", _BINARY_TEXT),
        sa.Column("old_instance_type_id", sa.BigInteger),
        sa.Column("new_instance_type_id", sa.BigInteger),
        sa.Column("old_instance", _JSON, nullable=False),
        sa.Column("user_id", _BINARY_TEXT),
        sa.Column("project_id", _BINARY_TEXT),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("updated_at", sa.BigInteger, nullable=False),
        sa.Index(None, "instance_uuid", "status"),
        sa.Index(None, "updated_at"),
    )
