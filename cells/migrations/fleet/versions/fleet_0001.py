"""All tables of the fleet database, and the rows that it begins with.

Revision ID: fleet_0001
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

from fleetlight.cells.fleet.compute.default_flavors import DEFAULT_FLAVORS

revision = "fleet_0001"
down_revision = None
branch_labels = None
depends_on = None

_BINARY_TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
_JSON = sa.JSON().with_variant(JSONB(), "postgresql")
_ROW_NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_UUID = sa.String(36)


def upgrade() -> None:
    _create_cells()
    _create_failures()
    _create_journals()
    _create_flavors()
    _create_projects()
    _create_hosts()
    _create_messages()
    _create_users()
    _create_work()
    _create_bulk_changes()
    _create_subscriptions()


def _create_cells() -> None:
    op.create_table(
        "cells",
        sa.Column("uuid", _UUID, primary_key=True),
        sa.Column("name", sa.Text, nullable=False, unique=True),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("database_url", sa.Text, nullable=False),
        sa.Column("transport_url", sa.Text, nullable=False),
        sa.Column("disabled", sa.Boolean, nullable=False),
        sa.Column("api_database_url", sa.Text),
        sa.Column("nova_uuid", _UUID),
        sa.Column("number", sa.Integer, nullable=False, unique=True),
        sa.Column("takes_announcements", sa.Boolean, nullable=False),
    )
    op.create_table(
        "instance_mappings",
        sa.Column("instance_uuid", _UUID, primary_key=True),
        sa.Column("cell_uuid", _UUID, sa.ForeignKey("cells.uuid"), nullable=False),
        sa.Column("project_id", _BINARY_TEXT),
        sa.Column("user_id", _BINARY_TEXT),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("queued_for_delete", sa.Boolean, nullable=False),
        sa.Index("ix_instance_mappings_of_cell", "cell_uuid", "queued_for_delete", "project_id", "instance_uuid"),
    )
    op.create_table(
        "compared_mappings",
        sa.Column("cell_uuid", _UUID, primary_key=True),
        sa.Column("compared_at", sa.BigInteger, nullable=False),
        sa.Column("repaired", sa.BigInteger, nullable=False),
        sa.Column("repaired_at", sa.BigInteger),
        sa.Column("elsewhere", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "cell_keys",
        sa.Column("cell_uuid", _UUID, primary_key=True),
        sa.Column("key_id", sa.String(16), primary_key=True),
        sa.Column("secret", sa.LargeBinary, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("expires_at", sa.BigInteger),
    )
    op.create_table(
        "producer_keys",
        sa.Column("producer", _BINARY_TEXT, primary_key=True),
        sa.Column("cell_uuid", _UUID, primary_key=True),
        sa.Column("key_id", sa.String(16), primary_key=True),
        sa.Column("secret", sa.LargeBinary, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("expires_at", sa.BigInteger),
    )


def _create_failures() -> None:
    op.create_table(
        "failures",
        sa.Column("id", _UUID, primary_key=True),
        sa.Column("cell_uuid", _UUID, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("detail", sa.Text, nullable=False),
        sa.Column("instance_uuid", sa.Text),
        sa.Column("first_at", sa.BigInteger, nullable=False),
        sa.Column("last_at", sa.BigInteger, nullable=False),
        sa.Column("times", sa.BigInteger, nullable=False),
        sa.Column("reread_at", sa.BigInteger),
        sa.Column("routing_key", sa.Text, nullable=False),
        sa.Column("headers", _JSON, nullable=False),
        sa.Column("body", sa.LargeBinary, nullable=False),
        sa.Column("trace", sa.Text),
        sa.Column("size", sa.BigInteger, nullable=False),
        sa.Index("ix_failures_of_cell", "cell_uuid", "first_at", "id"),
        sa.Index("ix_failures_of_instance", "cell_uuid", "instance_uuid"),
    )
    op.create_table(
        "dropped_failures",
        sa.Column("cell_uuid", _UUID, primary_key=True),
        sa.Column("count", sa.BigInteger, nullable=False),
    )


def _create_journals() -> None:
    op.create_table(
        "journals",
        sa.Column("cell_uuid", _UUID, primary_key=True),
        sa.Column("epoch", _UUID, nullable=False),
        sa.Column("sequence", sa.BigInteger, nullable=False),
        sa.Column("began_at", sa.BigInteger, nullable=False),
        sa.Column("followed_at", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "journal_entries",
        sa.Column("cell_uuid", _UUID, primary_key=True),
        sa.Column("sequence", sa.BigInteger, primary_key=True),
        sa.Column("instance_uuid", _UUID, nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("record", sa.LargeBinary, nullable=False),
        sa.Column("is_gone", sa.Boolean, nullable=False),
        sa.Column("found_at", sa.BigInteger, nullable=False),
        sa.Index("ix_journal_entries_instance", "cell_uuid", "instance_uuid", unique=True),
    )
    op.create_table(
        "announced_instances",
        sa.Column("cell_uuid", _UUID, primary_key=True),
        sa.Column("instance_uuid", _UUID, primary_key=True),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("deleted_at", sa.BigInteger),
        sa.Column("record", sa.LargeBinary, nullable=False),
        sa.Column("extra", sa.LargeBinary),
        sa.Index("ix_announced_instances_version", "cell_uuid", "version"),
    )


def _create_flavors() -> None:
    flavors = op.create_table(
        "flavors",
        sa.Column("number", _ROW_NUMBER, primary_key=True),
        sa.Column("flavorid", _BINARY_TEXT, nullable=False, unique=True),
        sa.Column("name", _BINARY_TEXT, nullable=False, unique=True),
        sa.Column("memory_mb", sa.BigInteger, nullable=False),
        sa.Column("vcpus", sa.BigInteger, nullable=False),
        sa.Column("root_gb", sa.BigInteger, nullable=False),
        sa.Column("ephemeral_gb", sa.BigInteger, nullable=False),
        sa.Column("swap", sa.BigInteger, nullable=False),
        sa.Column("rxtx_factor", sa.Double, nullable=False),
        sa.Column("is_public", sa.Boolean, nullable=False),
        sa.Column("disabled", sa.Boolean, nullable=False),
        sa.Column("description", sa.Text),
        sa.Column("extra_specs", _JSON, nullable=False),
    )
    op.bulk_insert(
        flavors,
        [
            {
                "flavorid": str(number),
                "name": flavor.name,
                "memory_mb": flavor.memory_mb,
                "vcpus": flavor.vcpus,
                "root_gb": flavor.root_gb,
                "ephemeral_gb": flavor.ephemeral_gb,
                "swap": flavor.swap,
                "rxtx_factor": 1.0,
                "is_public": True,
                "disabled": False,
                "extra_specs": flavor.extra_specs,
            }
            for number, flavor in enumerate(DEFAULT_FLAVORS, start=1)
        ],
    )
    op.create_table(
        "flavor_access",
        sa.Column("flavor_number", sa.BigInteger, sa.ForeignKey("flavors.number"), primary_key=True),
        sa.Column("project_id", _BINARY_TEXT, primary_key=True),
    )


def _create_projects() -> None:
    op.create_table(
        "keypairs",
        sa.Column("number", _ROW_NUMBER, primary_key=True),
        sa.Column("user_id", _BINARY_TEXT, nullable=False),
        sa.Column("name", _BINARY_TEXT, nullable=False),
        sa.Column("type", sa.Text, nullable=False),
        sa.Column("public_key", sa.Text, nullable=False),
        sa.Column("fingerprint", sa.Text, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Index(None, "user_id", "name", unique=True),
    )
    op.create_table(
        "quota_limits",
        sa.Column("project_id", _BINARY_TEXT, primary_key=True),
        sa.Column("resource", sa.Text, primary_key=True),
        sa.Column("limit", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "quota_classes",
        sa.Column("name", _BINARY_TEXT, primary_key=True),
        sa.Column("resource", sa.Text, primary_key=True),
        sa.Column("limit", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "server_groups",
        sa.Column("number", _ROW_NUMBER, primary_key=True),
        sa.Column("uuid", _UUID, nullable=False, unique=True),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("project_id", _BINARY_TEXT, nullable=False),
        sa.Column("user_id", _BINARY_TEXT, nullable=False),
        sa.Column("policy", sa.Text, nullable=False),
        sa.Column("max_server_per_host", sa.BigInteger),
        sa.Index(None, "project_id"),
    )
    op.create_table(
        "server_group_members",
        sa.Column("group_uuid", _UUID, sa.ForeignKey("server_groups.uuid"), primary_key=True),
        sa.Column("instance_uuid", _UUID, primary_key=True),
        sa.Index(None, "instance_uuid"),
    )


def _create_hosts() -> None:
    op.create_table(
        "known_hosts",
        sa.Column("cell_uuid", _UUID, primary_key=True),
        sa.Column("host", _BINARY_TEXT, primary_key=True),
    )
    op.create_table(
        "aggregates",
        sa.Column("number", _ROW_NUMBER, primary_key=True),
        sa.Column("uuid", _UUID, nullable=False, unique=True),
        sa.Column("name", _BINARY_TEXT, nullable=False, unique=True),
        sa.Column("metadata", _JSON, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("updated_at", sa.BigInteger),
    )
    op.create_table(
        "aggregate_hosts",
        sa.Column("aggregate_number", sa.BigInteger, sa.ForeignKey("aggregates.number"), primary_key=True),
        sa.Column("host", _BINARY_TEXT, primary_key=True),
        sa.Index(None, "host"),
    )


def _create_messages() -> None:
    op.create_table(
        "recent_changes",
        sa.Column("id", _UUID, primary_key=True),
        sa.Column("process", _UUID, nullable=False),
        sa.Column("reader", _BINARY_TEXT, nullable=False),
        sa.Column("cell_uuid", _UUID, nullable=False),
        sa.Column("instance_uuid", _UUID, nullable=False),
        sa.Column("revision", sa.BigInteger, nullable=False),
        sa.Column("noted_at", sa.BigInteger, nullable=False),
        sa.Index(None, "noted_at"),
    )
    op.create_table(
        "listening_processes",
        sa.Column("uuid", _UUID, primary_key=True),
        sa.Column("listened_at", sa.BigInteger, nullable=False),
    )
    if op.get_bind().dialect.name == "postgresql":
        op.execute("ALTER TABLE recent_changes SET UNLOGGED")
        op.execute("ALTER TABLE listening_processes SET UNLOGGED")


def _create_users() -> None:
    op.create_table(
        "saved_views",
        sa.Column("id", _UUID, primary_key=True),
        sa.Column("user_id", _BINARY_TEXT, nullable=False),
        sa.Column("project_id", _BINARY_TEXT),
        sa.Column("name", _BINARY_TEXT, nullable=False),
        sa.Column("what", sa.Text, nullable=False),
        sa.Column("filter", sa.Text, nullable=False),
        sa.Column("fields", _JSON, nullable=False),
        sa.Column("order", _JSON, nullable=False),
        sa.Column("shared", sa.Boolean, nullable=False),
        sa.Index(None, "user_id", "name", unique=True),
        sa.Index(None, "project_id"),
    )
    op.create_table(
        "ended_sessions",
        sa.Column("user_id", _BINARY_TEXT, primary_key=True),
        sa.Column("session", sa.String(32), primary_key=True),
        sa.Column("ended_at", sa.BigInteger, nullable=False),
        sa.Column("expires_at", sa.BigInteger, nullable=False),
        sa.Index(None, "expires_at"),
    )


def _create_work() -> None:
    op.create_table(
        "index_work",
        sa.Column("id", _UUID, primary_key=True),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("subjects", _JSON, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("ordered_at", sa.BigInteger, nullable=False),
        sa.Column("ordered_by", sa.Text, nullable=False),
        sa.Column("started_at", sa.BigInteger),
        sa.Column("ended_at", sa.BigInteger),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("done", sa.BigInteger, nullable=False),
        sa.Column("total", sa.BigInteger),
        sa.Column("is_to_stop", sa.Boolean, nullable=False),
        sa.Column("result", sa.Text),
        sa.Column("findings", _JSON, nullable=False),
        sa.Index(None, "ordered_at", "id"),
    )
    op.create_table(
        "audit_rounds",
        sa.Column("cell_uuid", _UUID, primary_key=True),
        sa.Column("at", sa.BigInteger, nullable=False),
        sa.Column("compared", sa.BigInteger, nullable=False),
        sa.Column("found", sa.BigInteger, nullable=False),
        sa.Column("repaired", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "restored_cells",
        sa.Column("cell_uuid", _UUID, primary_key=True),
        sa.Column("at", sa.BigInteger, nullable=False),
        sa.Column("watermark", sa.BigInteger, nullable=False),
        sa.Column("last_sequence", sa.BigInteger, nullable=False),
    )


def _create_bulk_changes() -> None:
    op.create_table(
        "bulk_changes",
        sa.Column("id", _UUID, primary_key=True),
        sa.Column("user_id", _BINARY_TEXT, nullable=False),
        sa.Column("project_id", _BINARY_TEXT),
        sa.Column("action", sa.Text, nullable=False),
        sa.Column("filter", sa.Text, nullable=False),
        sa.Column("as_of", sa.BigInteger, nullable=False),
        sa.Column("is_complete", sa.Boolean, nullable=False),
        sa.Column("left_out", _JSON, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("run", sa.Integer, nullable=False),
        sa.Column("reason", sa.Text),
        sa.Index(None, "user_id", "created_at"),
    )
    op.create_table(
        "bulk_items",
        sa.Column("bulk_id", _UUID, primary_key=True),
        sa.Column("position", sa.Integer, primary_key=True),
        sa.Column("uuid", _UUID, nullable=False),
        sa.Column("revision", sa.BigInteger),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("project_id", _BINARY_TEXT, nullable=False),
        sa.Column("cell", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("reason", sa.Text),
        sa.Column("changed_at", sa.BigInteger, nullable=False),
    )


def _create_subscriptions() -> None:
    op.create_table(
        "subscriptions",
        sa.Column("id", _UUID, primary_key=True),
        sa.Column("user_id", _BINARY_TEXT),
        sa.Column("project_id", _BINARY_TEXT),
        sa.Column("roles", _JSON, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("what", sa.Text, nullable=False),
        sa.Column("filter", sa.Text, nullable=False),
        sa.Column("fields", _JSON, nullable=False),
        sa.Column("all_projects", sa.Boolean, nullable=False),
        sa.Column("target", sa.Text, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("confirmed_at", sa.BigInteger, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("reason", sa.Text),
        sa.Column("is_complete", sa.Boolean),
        sa.Column("delivered", sa.BigInteger, nullable=False),
        sa.Column("delivered_at", sa.BigInteger),
        sa.Column("failing_since", sa.BigInteger),
        sa.Column("last_error", sa.Text),
        sa.Index(None, "user_id"),
    )
    op.create_table(
        "subscription_secrets",
        sa.Column("subscription_id", _UUID, _of_subscription(), primary_key=True),
        sa.Column("secret", sa.Text, nullable=False),
    )
    op.create_table(
        "subscription_positions",
        sa.Column("subscription_id", _UUID, _of_subscription(), primary_key=True),
        sa.Column("cell_uuid", _UUID, primary_key=True),
        sa.Column("epoch", _UUID),
        sa.Column("sequence", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "subscription_failures",
        sa.Column("id", _UUID, primary_key=True),
        sa.Column("subscription_id", _UUID, _of_subscription(), nullable=False),
        sa.Column("event_id", sa.Text, nullable=False),
        sa.Column("type", sa.Text, nullable=False),
        sa.Column("subject", sa.Text),
        sa.Column("body", sa.Text, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("times", sa.Integer, nullable=False),
        sa.Column("failed_at", sa.BigInteger, nullable=False),
        sa.Column("is_wanted", sa.Boolean, nullable=False),
        sa.Index(None, "subscription_id", "failed_at"),
    )


def _of_subscription() -> sa.ForeignKey:
    return sa.ForeignKey("subscriptions.id", ondelete="CASCADE")
