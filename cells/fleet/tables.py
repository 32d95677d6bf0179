"""The tables of the fleet database: cells, mappings, keys, failures, journals, and resources of the whole fleet."""

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Double,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
)

from fleetlight.cells.columns import BINARY_TEXT, JSON_VALUE, NAMES, ROW_NUMBER, UUID_TEXT

fleet_metadata = MetaData(naming_convention=NAMES)

cells = Table(
    "cells",
    fleet_metadata,
    Column("uuid", UUID_TEXT, primary_key=True),
    Column("name", Text, nullable=False, unique=True),
    Column("kind", Text, nullable=False),
    Column("database_url", Text, nullable=False),
    Column("transport_url", Text, nullable=False),
    Column("disabled", Boolean, nullable=False),
    Column("api_database_url", Text),
    Column("nova_uuid", UUID_TEXT),
    Column("number", Integer, nullable=False, unique=True),
    Column("takes_announcements", Boolean, nullable=False),
)

instance_mappings = Table(
    "instance_mappings",
    fleet_metadata,
    Column("instance_uuid", UUID_TEXT, primary_key=True),
    Column("cell_uuid", UUID_TEXT, ForeignKey("cells.uuid"), nullable=False),
    Column("project_id", BINARY_TEXT),
    Column("user_id", BINARY_TEXT),
    Column("created_at", BigInteger, nullable=False),
    Column("queued_for_delete", Boolean, nullable=False),
    Index("ix_instance_mappings_of_cell", "cell_uuid", "queued_for_delete", "project_id", "instance_uuid"),
)

# Results of workers that compare mappings with rows of the cells (fleetlight.cells.fleet.compared_mappings).
compared_mappings = Table(
    "compared_mappings",
    fleet_metadata,
    Column("cell_uuid", UUID_TEXT, primary_key=True),
    Column("compared_at", BigInteger, nullable=False),
    Column("repaired", BigInteger, nullable=False),
    Column("repaired_at", BigInteger),
    Column("elsewhere", BigInteger, nullable=False),
)

# Signing keys of relays (fleetlight.cells.fleet.cell_keys). Only relays and indexers read them.
cell_keys = Table(
    "cell_keys",
    fleet_metadata,
    Column("cell_uuid", UUID_TEXT, primary_key=True),
    Column("key_id", String(16), primary_key=True),
    Column("secret", LargeBinary, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("expires_at", BigInteger),
)

# Signing keys of producers, in each cell that takes their announcements (fleetlight.cells.fleet.producer_keys). Not in
# `cell_keys`, since processes of the previous version would take them for keys of relays.
producer_keys = Table(
    "producer_keys",
    fleet_metadata,
    Column("producer", BINARY_TEXT, primary_key=True),
    Column("cell_uuid", UUID_TEXT, primary_key=True),
    Column("key_id", String(16), primary_key=True),
    Column("secret", LargeBinary, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("expires_at", BigInteger),
)

# Messages that could not be indexed, until an operator solves or drops them (fleetlight.cells.fleet.failures).
failures = Table(
    "failures",
    fleet_metadata,
    Column("id", UUID_TEXT, primary_key=True),
    Column("cell_uuid", UUID_TEXT, nullable=False),
    Column("reason", Text, nullable=False),
    Column("detail", Text, nullable=False),
    Column("instance_uuid", Text),
    Column("first_at", BigInteger, nullable=False),
    Column("last_at", BigInteger, nullable=False),
    Column("times", BigInteger, nullable=False),
    Column("reread_at", BigInteger),
    Column("routing_key", Text, nullable=False),
    Column("headers", JSON_VALUE, nullable=False),
    Column("body", LargeBinary, nullable=False),
    Column("trace", Text),
    Column("size", BigInteger, nullable=False),
    Index("ix_failures_of_cell", "cell_uuid", "first_at", "id"),
    Index("ix_failures_of_instance", "cell_uuid", "instance_uuid"),
)

# The number of failures of a cell that were dropped for newer ones.
dropped_failures = Table(
    "dropped_failures",
    fleet_metadata,
    Column("cell_uuid", UUID_TEXT, primary_key=True),
    Column("count", BigInteger, nullable=False),
)

# Changelogs of cells without numbered changes (fleetlight.cells.fleet.journals).
journals = Table(
    "journals",
    fleet_metadata,
    Column("cell_uuid", UUID_TEXT, primary_key=True),
    Column("epoch", UUID_TEXT, nullable=False),
    Column("sequence", BigInteger, nullable=False),
    Column("began_at", BigInteger, nullable=False),
    Column("followed_at", BigInteger, nullable=False),
)

journal_entries = Table(
    "journal_entries",
    fleet_metadata,
    Column("cell_uuid", UUID_TEXT, primary_key=True),
    Column("sequence", BigInteger, primary_key=True),
    Column("instance_uuid", UUID_TEXT, nullable=False),
    Column("version", BigInteger, nullable=False),
    Column("record", LargeBinary, nullable=False),
    Column("is_gone", Boolean, nullable=False),
    Column("found_at", BigInteger, nullable=False),
    Index("ix_journal_entries_instance", "cell_uuid", "instance_uuid", unique=True),
)

# The newest states of instances that only notifications from outside announce
# (fleetlight.cells.fleet.announced_instances).
announced_instances = Table(
    "announced_instances",
    fleet_metadata,
    Column("cell_uuid", UUID_TEXT, primary_key=True),
    Column("instance_uuid", UUID_TEXT, primary_key=True),
    Column("version", BigInteger, nullable=False),
    Column("deleted_at", BigInteger),
    Column("record", LargeBinary, nullable=False),
    Column("extra", LargeBinary),
    Index("ix_announced_instances_version", "cell_uuid", "version"),
)

flavors = Table(
    "flavors",
    fleet_metadata,
    Column("number", ROW_NUMBER, primary_key=True),
    Column("flavorid", BINARY_TEXT, nullable=False, unique=True),
    Column("name", BINARY_TEXT, nullable=False, unique=True),
    Column("memory_mb", BigInteger, nullable=False),
    Column("vcpus", BigInteger, nullable=False),
    Column("root_gb", BigInteger, nullable=False),
    Column("ephemeral_gb", BigInteger, nullable=False),
    Column("swap", BigInteger, nullable=False),
    Column("rxtx_factor", Double, nullable=False),
    Column("is_public", Boolean, nullable=False),
    Column("disabled", Boolean, nullable=False),
    Column("description", Text),
    Column("extra_specs", JSON_VALUE, nullable=False),
)

flavor_access = Table(
    "flavor_access",
    fleet_metadata,
    Column("flavor_number", BigInteger, ForeignKey("flavors.number"), primary_key=True),
    Column("project_id", BINARY_TEXT, primary_key=True),
)

keypairs = Table(
    "keypairs",
    fleet_metadata,
    Column("number", ROW_NUMBER, primary_key=True),
    Column("user_id", BINARY_TEXT, nullable=False),
    Column("name", BINARY_TEXT, nullable=False),
    Column("type", Text, nullable=False),
    Column("public_key", Text, nullable=False),
    Column("fingerprint", Text, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Index(None, "user_id", "name", unique=True),
)

# A missing limit is the default; -1 is no limit.
quota_limits = Table(
    "quota_limits",
    fleet_metadata,
    Column("project_id", BINARY_TEXT, primary_key=True),
    Column("resource", Text, primary_key=True),
    Column("limit", BigInteger, nullable=False),
)

# The limits of the class `default` are those of projects without limits of their own.
quota_classes = Table(
    "quota_classes",
    fleet_metadata,
    Column("name", BINARY_TEXT, primary_key=True),
    Column("resource", Text, primary_key=True),
    Column("limit", BigInteger, nullable=False),
)

server_groups = Table(
    "server_groups",
    fleet_metadata,
    Column("number", ROW_NUMBER, primary_key=True),
    Column("uuid", String(36), nullable=False, unique=True),
    Column("name", Text, nullable=False),
    Column("project_id", BINARY_TEXT, nullable=False),
    Column("user_id", BINARY_TEXT, nullable=False),
    Column("policy", Text, nullable=False),
    Column("max_server_per_host", BigInteger),
    Index(None, "project_id"),
)

server_group_members = Table(
    "server_group_members",
    fleet_metadata,
    Column("group_uuid", String(36), ForeignKey("server_groups.uuid"), primary_key=True),
    Column("instance_uuid", String(36), primary_key=True),
    Index(None, "instance_uuid"),
)

# shared: with the project of its owner at the last save (fleetlight.cells.fleet.saved_views).
saved_views = Table(
    "saved_views",
    fleet_metadata,
    Column("id", UUID_TEXT, primary_key=True),
    Column("user_id", BINARY_TEXT, nullable=False),
    Column("project_id", BINARY_TEXT),
    Column("name", BINARY_TEXT, nullable=False),
    Column("what", Text, nullable=False),
    Column("filter", Text, nullable=False),
    Column("fields", JSON_VALUE, nullable=False),
    Column("order", JSON_VALUE, nullable=False),
    Column("shared", Boolean, nullable=False),
    Index(None, "user_id", "name", unique=True),
    Index(None, "project_id"),
)

# Ended sessions of browsers (fleetlight.cells.fleet.ended_sessions). session: a digest; empty for all sessions that the
# user had begun by then.
ended_sessions = Table(
    "ended_sessions",
    fleet_metadata,
    Column("user_id", BINARY_TEXT, primary_key=True),
    Column("session", String(32), primary_key=True),
    Column("ended_at", BigInteger, nullable=False),
    Column("expires_at", BigInteger, nullable=False),
    Index(None, "expires_at"),
)

# Native cells have the truth; these rows are for lists while a cell is down.
known_hosts = Table(
    "known_hosts",
    fleet_metadata,
    Column("cell_uuid", String(36), primary_key=True),
    Column("host", BINARY_TEXT, primary_key=True),
)

# metadata: contains the zone of the hosts, as `availability_zone`.
aggregates = Table(
    "aggregates",
    fleet_metadata,
    Column("number", ROW_NUMBER, primary_key=True),
    Column("uuid", String(36), nullable=False, unique=True),
    Column("name", BINARY_TEXT, nullable=False, unique=True),
    Column("metadata", JSON_VALUE, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("updated_at", BigInteger),
)

aggregate_hosts = Table(
    "aggregate_hosts",
    fleet_metadata,
    Column("aggregate_number", BigInteger, ForeignKey("aggregates.number"), primary_key=True),
    Column("host", BINARY_TEXT, primary_key=True),
    Index(None, "host"),
)

# Changes that the processes of an API announce to each other (fleetlight.cells.fleet.recent_changes). Both tables are
# unlogged in PostgreSQL, since their loss does no harm.
recent_changes = Table(
    "recent_changes",
    fleet_metadata,
    Column("id", String(36), primary_key=True),
    Column("process", String(36), nullable=False),
    Column("reader", BINARY_TEXT, nullable=False),
    Column("cell_uuid", String(36), nullable=False),
    Column("instance_uuid", String(36), nullable=False),
    Column("revision", BigInteger, nullable=False),
    Column("noted_at", BigInteger, nullable=False),
    Index(None, "noted_at"),
)

listening_processes = Table(
    "listening_processes",
    fleet_metadata,
    Column("uuid", String(36), primary_key=True),
    Column("listened_at", BigInteger, nullable=False),
)

# Work on the index that operators have ordered (fleetlight.cells.fleet.index_work).
index_work = Table(
    "index_work",
    fleet_metadata,
    Column("id", UUID_TEXT, primary_key=True),
    Column("kind", Text, nullable=False),
    Column("subjects", JSON_VALUE, nullable=False),
    Column("state", Text, nullable=False),
    Column("ordered_at", BigInteger, nullable=False),
    Column("ordered_by", Text, nullable=False),
    Column("started_at", BigInteger),
    Column("ended_at", BigInteger),
    Column("attempts", Integer, nullable=False),
    Column("done", BigInteger, nullable=False),
    Column("total", BigInteger),
    Column("is_to_stop", Boolean, nullable=False),
    Column("result", Text),
    Column("findings", JSON_VALUE, nullable=False),
    Index(None, "ordered_at", "id"),
)

# Results of the last audit of each cell (fleetlight.indexer.reconcile.audit).
audit_rounds = Table(
    "audit_rounds",
    fleet_metadata,
    Column("cell_uuid", UUID_TEXT, primary_key=True),
    Column("at", BigInteger, nullable=False),
    Column("compared", BigInteger, nullable=False),
    Column("found", BigInteger, nullable=False),
    Column("repaired", BigInteger, nullable=False),
)

# Restores of cells that no operator has acknowledged yet (fleetlight.cells.fleet.restored_cells).
restored_cells = Table(
    "restored_cells",
    fleet_metadata,
    Column("cell_uuid", UUID_TEXT, primary_key=True),
    Column("at", BigInteger, nullable=False),
    Column("watermark", BigInteger, nullable=False),
    Column("last_sequence", BigInteger, nullable=False),
)

# Actions on many instances, as they were in a preview (fleetlight.cells.fleet.bulk_changes).
bulk_changes = Table(
    "bulk_changes",
    fleet_metadata,
    Column("id", UUID_TEXT, primary_key=True),
    Column("user_id", BINARY_TEXT, nullable=False),
    Column("project_id", BINARY_TEXT),
    Column("action", Text, nullable=False),
    Column("filter", Text, nullable=False),
    Column("as_of", BigInteger, nullable=False),
    Column("is_complete", Boolean, nullable=False),
    Column("left_out", JSON_VALUE, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("state", Text, nullable=False),
    Column("run", Integer, nullable=False),
    Column("reason", Text),
    Index(None, "user_id", "created_at"),
)

bulk_items = Table(
    "bulk_items",
    fleet_metadata,
    Column("bulk_id", UUID_TEXT, primary_key=True),
    Column("position", Integer, primary_key=True),
    Column("uuid", UUID_TEXT, nullable=False),
    Column("revision", BigInteger),
    Column("name", Text, nullable=False),
    Column("project_id", BINARY_TEXT, nullable=False),
    Column("cell", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("reason", Text),
    Column("changed_at", BigInteger, nullable=False),
)

# Saved queries whose changes are delivered to a target (fleetlight.cells.fleet.subscriptions).
subscriptions = Table(
    "subscriptions",
    fleet_metadata,
    Column("id", UUID_TEXT, primary_key=True),
    Column("user_id", BINARY_TEXT),
    Column("project_id", BINARY_TEXT),
    Column("roles", JSON_VALUE, nullable=False),
    Column("name", Text, nullable=False),
    Column("what", Text, nullable=False),
    Column("filter", Text, nullable=False),
    Column("fields", JSON_VALUE, nullable=False),
    Column("all_projects", Boolean, nullable=False),
    Column("target", Text, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("confirmed_at", BigInteger, nullable=False),
    Column("state", Text, nullable=False),
    Column("reason", Text),
    Column("is_complete", Boolean),
    Column("delivered", BigInteger, nullable=False),
    Column("delivered_at", BigInteger),
    Column("failing_since", BigInteger),
    Column("last_error", Text),
    Index(None, "user_id"),
)


def _of_subscription() -> ForeignKey:
    return ForeignKey("subscriptions.id", ondelete="CASCADE")


# Only deliverers read secrets.
subscription_secrets = Table(
    "subscription_secrets",
    fleet_metadata,
    Column("subscription_id", UUID_TEXT, _of_subscription(), primary_key=True),
    Column("secret", Text, nullable=False),
)

subscription_positions = Table(
    "subscription_positions",
    fleet_metadata,
    Column("subscription_id", UUID_TEXT, _of_subscription(), primary_key=True),
    Column("cell_uuid", UUID_TEXT, primary_key=True),
    Column("epoch", UUID_TEXT),
    Column("sequence", BigInteger, nullable=False),
)

# Events that a target has refused, and those that a deliverer shall deliver again.
subscription_failures = Table(
    "subscription_failures",
    fleet_metadata,
    Column("id", UUID_TEXT, primary_key=True),
    Column("subscription_id", UUID_TEXT, _of_subscription(), nullable=False),
    Column("event_id", Text, nullable=False),
    Column("type", Text, nullable=False),
    Column("subject", Text),
    Column("body", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("times", Integer, nullable=False),
    Column("failed_at", BigInteger, nullable=False),
    Column("is_wanted", Boolean, nullable=False),
    Index(None, "subscription_id", "failed_at"),
)
