"""The tables of a cell database; those of the fleet database are in fleetlight.cells.fleet.tables.

The columns of `instances` are the fields of an instance, under the same names: their types follow from the kinds, so a
field is defined once (fleetlight.resources.instance). Migrations bring a database to this state; a test compares the
two.
"""

from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Double,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
    false,
    text,
    true,
)
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.types import TypeEngine

from fleetlight.cells.columns import BINARY_TEXT, JSON_VALUE, NAMES, ROW_NUMBER, UUID_TEXT, Bytes
from fleetlight.resources.fields import Field, Kind
from fleetlight.resources.instance import INSTANCE_FIELDS

_TYPES: dict[Kind, TypeEngine[Any]] = {
    Kind.TEXT: BINARY_TEXT,
    Kind.BOOL: Boolean(),
    Kind.NUMBER: BigInteger(),
    Kind.UNIT: BigInteger(),
    Kind.FLOAT: Double(),
    Kind.TIMESTAMP: BigInteger(),
    Kind.OTHER: JSON_VALUE,
}

cell_metadata = MetaData(naming_convention=NAMES)


class _NewestFirst(FunctionElement[int]):
    """A column in descending order with nulls last (fleetlight.query.sort), in the syntax of each database's indexes.

    SQLite always has nulls last here, and its indexes have no syntax for it; PostgreSQL has them first by default, and
    uses an index for an order only if both have the same syntax.
    """

    inherit_cache = True


@compiles(_NewestFirst)
def _compile_newest_first(element: _NewestFirst, compiler: SQLCompiler, **options: Any) -> str:
    return f"{compiler.process(element.clauses, **options)} DESC NULLS LAST"


@compiles(_NewestFirst, "sqlite")
def _compile_newest_first_sqlite(element: _NewestFirst, compiler: SQLCompiler, **options: Any) -> str:
    return f"{compiler.process(element.clauses, **options)} DESC"


def _instance_column(field: Field) -> Column[Any]:
    is_key = field.name == "uuid"
    return Column(field.name, _TYPES[field.kind], primary_key=is_key, nullable=not (is_key or field.is_list))


instances = Table(
    "instances",
    cell_metadata,
    *(_instance_column(field) for field in INSTANCE_FIELDS.values()),
    Column("revision", BigInteger, nullable=False),
    Index(None, "host", "deleted"),
    Index(None, "updated_at"),
    Index(None, "display_name"),
)
# The default order of a list, of all projects or one.
_NEWEST_FIRST = (instances.c.deleted, _NewestFirst(instances.c.created_at), instances.c.uuid)
Index("ix_instances_by_age", *_NEWEST_FIRST)
Index("ix_instances_project_by_age", instances.c.project_id, *_NEWEST_FIRST)

_UNNUMBERED = text("sequence IS NULL")
_UNPUBLISHED = text("published_at IS NULL AND sequence IS NOT NULL")

# previous: the values that the change replaced, by field; null for a new instance, and for changes of other items.
changes = Table(
    "changes",
    cell_metadata,
    Column("id", ROW_NUMBER, primary_key=True),
    Column("instance_uuid", UUID_TEXT, nullable=False),
    Column("revision", BigInteger, nullable=False),
    Column("event_type", Text, nullable=False),
    Column("routing_key", Text, nullable=False),
    Column("message", Bytes, nullable=False),
    Column("committed_at", BigInteger, nullable=False),
    Column("sequence", BigInteger, unique=True),
    Column("published_at", BigInteger),
    Column("previous", JSON_VALUE),
    Index(None, "instance_uuid", "revision"),
    Index(None, "committed_at", "instance_uuid", "revision"),
    Index("ix_changes_unnumbered", "id", sqlite_where=_UNNUMBERED, postgresql_where=_UNNUMBERED),
    Index("ix_changes_unpublished", "sequence", sqlite_where=_UNPUBLISHED, postgresql_where=_UNPUBLISHED),
)

# One row. It survives the pruning of `changes`, so that sequences never start again. forgotten_until: the latest moment
# of a change that was pruned, or stored without the values that it replaced; 0 if there is none.
cell_state = Table(
    "cell_state",
    cell_metadata,
    Column("id", Integer, CheckConstraint("id = 1", name="one_row"), primary_key=True, autoincrement=False),
    Column("last_sequence", BigInteger, nullable=False),
    Column("forgotten_until", BigInteger, nullable=False, server_default="0"),
    # The identity of the cell in its fleet (fleetlight.cells.kinds.native.registration).
    Column("uuid", String(36)),
    Column("number", Integer),
)

# Epochs of the sequences, oldest first (fleetlight.cells.kinds.native.epochs).
epochs = Table(
    "epochs",
    cell_metadata,
    Column("id", ROW_NUMBER, primary_key=True),
    Column("uuid", String(36), nullable=False, unique=True),
    Column("after_sequence", BigInteger, nullable=False),
)

# The hosts of a cell. A compute service has one node here; other drivers may have several.
services = Table(
    "services",
    cell_metadata,
    Column("id", ROW_NUMBER, primary_key=True),
    Column("uuid", UUID_TEXT, nullable=False, unique=True),
    Column("host", BINARY_TEXT, nullable=False),
    Column("binary", Text, nullable=False),
    Column("availability_zone", BINARY_TEXT, nullable=False),
    Column("disabled", Boolean, nullable=False),
    Column("disabled_reason", Text),
    Column("forced_down", Boolean, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("updated_at", BigInteger, nullable=False),
    UniqueConstraint("host", "binary"),
)

# Ganeti's groups of nodes; each cell has at least one.
node_groups = Table(
    "node_groups",
    cell_metadata,
    Column("id", ROW_NUMBER, primary_key=True),
    Column("uuid", UUID_TEXT, nullable=False, unique=True),
    Column("name", BINARY_TEXT, nullable=False, unique=True),
    Column("alloc_policy", Text, nullable=False),
    Column("ipolicy", JSON_VALUE, nullable=False),
    Column("ndparams", JSON_VALUE, nullable=False),
    Column("diskparams", JSON_VALUE, nullable=False),
    Column("tags", JSON_VALUE, nullable=False),
    Column("serial_no", BigInteger, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("updated_at", BigInteger, nullable=False),
)

# Ganeti's networks. external_reservations: addresses that others than instances have, beside the first, the last and
# the gateway. `network_nics` has the addresses of instances.
networks = Table(
    "networks",
    cell_metadata,
    Column("id", ROW_NUMBER, primary_key=True),
    Column("uuid", UUID_TEXT, nullable=False, unique=True),
    Column("name", BINARY_TEXT, nullable=False, unique=True),
    Column("network", Text, nullable=False),
    Column("gateway", Text),
    Column("network6", Text),
    Column("gateway6", Text),
    Column("mac_prefix", Text),
    Column("external_reservations", JSON_VALUE, nullable=False),
    Column("tags", JSON_VALUE, nullable=False),
    Column("serial_no", BigInteger, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("updated_at", BigInteger, nullable=False),
)

# The connections of groups to networks, which give the parameters of interfaces.
network_connections = Table(
    "network_connections",
    cell_metadata,
    Column("network_uuid", UUID_TEXT, primary_key=True),
    Column("group_uuid", UUID_TEXT, primary_key=True),
    Column("mode", Text, nullable=False),
    Column("link", Text, nullable=False),
    Column("vlan", Text, nullable=False),
)

# The interfaces of instances in networks; `position` is that among the interfaces of the instance. No two have the same
# address in a network.
network_nics = Table(
    "network_nics",
    cell_metadata,
    Column("instance_uuid", UUID_TEXT, primary_key=True),
    Column("position", Integer, primary_key=True, autoincrement=False),
    Column("network_uuid", UUID_TEXT, nullable=False),
    Column("address", Text),
    UniqueConstraint("network_uuid", "address"),
)

# The MAC addresses of instances from Ganeti's remote API, which are unique.
nic_macs = Table(
    "nic_macs",
    cell_metadata,
    Column("mac", String(17), primary_key=True),
    Column("instance_uuid", UUID_TEXT, nullable=False, index=True),
)

# The operating systems that hosts can install. image_ref: the corresponding image of the compute API.
operating_systems = Table(
    "operating_systems",
    cell_metadata,
    Column("name", BINARY_TEXT, primary_key=True),
    Column("image_ref", Text),
    Column("variants", JSON_VALUE, nullable=False),
    Column("api_versions", JSON_VALUE, nullable=False),
    Column("parameters", JSON_VALUE, nullable=False),
    Column("trusted", Boolean, nullable=False),
)

# Ganeti's filters of jobs. watermark: the newest job when it was made.
job_filters = Table(
    "job_filters",
    cell_metadata,
    Column("id", ROW_NUMBER, primary_key=True),
    Column("uuid", UUID_TEXT, nullable=False, unique=True),
    Column("priority", BigInteger, nullable=False),
    Column("predicates", JSON_VALUE, nullable=False),
    Column("action", JSON_VALUE, nullable=False),
    Column("watermark", BigInteger, nullable=False),
    Column("reason_trail", JSON_VALUE, nullable=False),
)

# One row: the configuration of the cell as a cluster. parameters: those that differ from the defaults
# (fleetlight.resources.query_fields.cluster_parameters), by Ganeti's names.
cluster_parameters = Table(
    "cluster_parameters",
    cell_metadata,
    Column("id", Integer, CheckConstraint("id = 1", name="one_row"), primary_key=True, autoincrement=False),
    Column("parameters", JSON_VALUE, nullable=False),
    Column("tags", JSON_VALUE, nullable=False),
    Column("serial_no", BigInteger, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("updated_at", BigInteger, nullable=False),
)

SIZES = ("vcpus", "memory_mib", "disk_gib")
"""The resources of a node that instances use, which are also the names of columns of amounts."""

# Of each resource a node reserves `reserved_…` for itself, and instances may use `…_permille` thousandths of the rest:
# integers, so that every database and Python compute the same room.
# From group_uuid to updated_at: Ganeti's fields. Its flags `offline` and `drained` are `forced_down` and `disabled` of
# the service.
compute_nodes = Table(
    "compute_nodes",
    cell_metadata,
    Column("id", ROW_NUMBER, primary_key=True),
    Column("uuid", UUID_TEXT, nullable=False, unique=True),
    Column("service_id", BigInteger, ForeignKey("services.id"), nullable=False, index=True),
    Column("hypervisor_hostname", BINARY_TEXT, nullable=False, unique=True),
    Column("hypervisor_type", Text, nullable=False),
    Column("hypervisor_version", BigInteger, nullable=False),
    Column("host_ip", Text, nullable=False),
    Column("vcpus", BigInteger, nullable=False),
    Column("memory_mib", BigInteger, nullable=False),
    Column("disk_gib", BigInteger, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("group_uuid", UUID_TEXT, nullable=False),
    Column("master_candidate", Boolean, nullable=False, server_default=false()),
    Column("master_capable", Boolean, nullable=False, server_default=true()),
    Column("vm_capable", Boolean, nullable=False, server_default=true()),
    Column("secondary_ip", Text),
    Column("ndparams", JSON_VALUE, nullable=False, server_default="{}"),
    Column("tags", JSON_VALUE, nullable=False, server_default="[]"),
    Column("serial_no", BigInteger, nullable=False, server_default="1"),
    Column("updated_at", BigInteger),
    *(Column(f"reserved_{size}", BigInteger, nullable=False, server_default="0") for size in SIZES),
    *(Column(f"{size}_permille", BigInteger, nullable=False, server_default="1000") for size in SIZES),
    # Host and port of the agent of this host; null for a simulated host.
    Column("agent_address", Text),
    # +1 with each announced change (fleetlight.cells.kinds.native.items.stored_nodes).
    Column("revision", BigInteger, nullable=False, server_default="1"),
)

# Traits, as placement has them of a resource provider: `HW_CPU_X86_AVX2`, `CUSTOM_RACK_7` …
node_traits = Table(
    "node_traits",
    cell_metadata,
    Column("node_id", BigInteger, ForeignKey("compute_nodes.id"), primary_key=True, autoincrement=False),
    Column("trait", Text, primary_key=True),
)

# Resources of a node that an instance uses; on two nodes while it is moved or resized, or if its disks are mirrored.
# The use of a node is their sum, which one index answers alone, so no second figure can differ from it.
# is_forthcoming: of a reservation, which counts for the scheduler, and not in the reports of nodes.
allocations = Table(
    "allocations",
    cell_metadata,
    Column("instance_uuid", UUID_TEXT, primary_key=True),
    Column("node_id", BigInteger, ForeignKey("compute_nodes.id"), primary_key=True),
    Column("vcpus", BigInteger, nullable=False),
    Column("memory_mib", BigInteger, nullable=False),
    Column("disk_gib", BigInteger, nullable=False),
    Column("is_forthcoming", Boolean, nullable=False, server_default=false()),
    Index("ix_allocations_of_node", "node_id", "vcpus", "memory_mib", "disk_gib"),
)

# When reservations expire; most do not.
reservation_expiries = Table(
    "reservation_expiries",
    cell_metadata,
    Column("instance_uuid", UUID_TEXT, primary_key=True),
    Column("expires_at", BigInteger, nullable=False, index=True),
)

# Statuses of instances and nodes that differ from the wanted ones, by the last reports of nodes. A right status has no
# row. So a process that queries nodes again announces only changes.
observed_statuses = Table(
    "observed_statuses",
    cell_metadata,
    Column("kind", Text, primary_key=True),
    Column("name", BINARY_TEXT, primary_key=True),
    Column("status", Text, nullable=False),
    Column("observed_at", BigInteger, nullable=False),
)

# When a periodic job of the workers is due again, by its operation.
periodic_jobs = Table(
    "periodic_jobs",
    cell_metadata,
    Column("operation", Text, primary_key=True),
    Column("due_at", BigInteger, nullable=False),
)

# Accepted jobs, including ended ones until fleetlight.manager.operations.jobs.pruning removes them. A job is a list of
# operations, which run one after the other; `position` is that of the current one. A job is ready if a worker can do
# something for it; an index finds ready ones, however many wait. No number is assigned twice, hence SQLite's
# AUTOINCREMENT.
jobs = Table(
    "jobs",
    cell_metadata,
    Column("id", ROW_NUMBER, primary_key=True),
    Column("status", Text, nullable=False),
    Column("priority", Integer, nullable=False),
    Column("is_ready", Boolean, nullable=False),
    Column("stage", Text, nullable=False),
    Column("position", Integer, nullable=False),
    Column("operation_count", Integer, nullable=False),
    Column("request_id", Text),
    Column("user_id", BINARY_TEXT),
    Column("project_id", BINARY_TEXT),
    Column("received_at", BigInteger, nullable=False),
    Column("started_at", BigInteger),
    Column("ended_at", BigInteger),
    Index("ix_jobs_ready", "priority", "id", sqlite_where=text("is_ready = 1"), postgresql_where=text("is_ready")),
    Index(
        "ix_jobs_ended",
        "ended_at",
        sqlite_where=text("ended_at IS NOT NULL"),
        postgresql_where=text("ended_at IS NOT NULL"),
    ),
    sqlite_autoincrement=True,
)

# notes: of steps for later ones. result: of the operation, or the error that ended it as [class, [text]]. summary: the
# operation in a few words, if its vocabulary has some.
job_operations = Table(
    "job_operations",
    cell_metadata,
    Column("job_id", BigInteger, ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True, autoincrement=False),
    Column("position", Integer, primary_key=True, autoincrement=False),
    Column("operation", Text, nullable=False),
    Column("parameters", JSON_VALUE, nullable=False),
    Column("status", Text, nullable=False),
    Column("next_step", Integer, nullable=False),
    Column("notes", JSON_VALUE, nullable=False),
    Column("result", JSON_VALUE),
    Column("instance_uuid", UUID_TEXT),
    Column("instance_action_id", BigInteger),
    Column("migration_id", BigInteger),
    Column("summary", Text),
    Column("started_at", BigInteger),
    Column("ended_at", BigInteger),
    Index(
        "ix_job_operations_of_instance",
        "instance_uuid",
        sqlite_where=text("ended_at IS NULL"),
        postgresql_where=text("ended_at IS NULL"),
    ),
)

job_log = Table(
    "job_log",
    cell_metadata,
    Column("job_id", BigInteger, ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True, autoincrement=False),
    Column("serial", Integer, primary_key=True, autoincrement=False),
    Column("position", Integer, nullable=False),
    Column("logged_at", BigInteger, nullable=False),
    Column("type", Text, nullable=False),
    Column("data", JSON_VALUE, nullable=False),
)

# A job waits until those that it depends on have ended. statuses: those after which it continues.
job_dependencies = Table(
    "job_dependencies",
    cell_metadata,
    Column("job_id", BigInteger, ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True, autoincrement=False),
    Column("depends_on", BigInteger, primary_key=True, autoincrement=False, index=True),
    Column("statuses", JSON_VALUE, nullable=False),
)

# Locks of the current operation of a job: wanted since wanted_at, held since held_at. priority: of the job.
job_locks = Table(
    "job_locks",
    cell_metadata,
    Column("job_id", BigInteger, ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True, autoincrement=False),
    Column("level", Text, primary_key=True),
    Column("name", BINARY_TEXT, primary_key=True),
    Column("is_shared", Boolean, nullable=False),
    Column("priority", Integer, nullable=False),
    Column("wanted_at", BigInteger, nullable=False),
    Column("held_at", BigInteger),
    Index("ix_job_locks_of_name", "level", "name", "priority", "job_id"),
    Index(
        "ix_job_locks_held",
        "level",
        "name",
        sqlite_where=text("held_at IS NOT NULL"),
        postgresql_where=text("held_at IS NOT NULL"),
    ),
)

# Actions outlive their instance.
instance_actions = Table(
    "instance_actions",
    cell_metadata,
    Column("id", ROW_NUMBER, primary_key=True),
    Column("instance_uuid", UUID_TEXT, nullable=False),
    Column("request_id", Text, nullable=False),
    Column("action", Text, nullable=False),
    Column("user_id", BINARY_TEXT),
    Column("project_id", BINARY_TEXT),
    Column("start_time", BigInteger, nullable=False),
    Column("updated_at", BigInteger, nullable=False),
    Column("message", Text),
    Index(None, "instance_uuid", "updated_at"),
    Index(None, "instance_uuid", "request_id"),
)

instance_action_events = Table(
    "instance_action_events",
    cell_metadata,
    Column("id", ROW_NUMBER, primary_key=True),
    Column("action_id", BigInteger, ForeignKey("instance_actions.id"), nullable=False, index=True),
    Column("event", Text, nullable=False),
    Column("host", BINARY_TEXT),
    Column("start_time", BigInteger, nullable=False),
    Column("finish_time", BigInteger),
    Column("result", Text),
    Column("traceback", Text),
    Column("details", Text),
)

# old_instance: the fields of the record that a revert of the resize restores.
migrations = Table(
    "migrations",
    cell_metadata,
    Column("id", ROW_NUMBER, primary_key=True),
    Column("uuid", UUID_TEXT, nullable=False, unique=True),
    Column("instance_uuid", UUID_TEXT, nullable=False),
    Column("migration_type", Text, nullable=False),
    Column("status", Text, nullable=False),
    Column("source_compute", BINARY_TEXT),
    Column("source_node", BINARY_TEXT),
    Column("dest_compute", BINARY_TEXT),
    Column("dest_node", BINARY_TEXT),
    Column("dest_host", BINARY_TEXT),
    Column("old_instance_type_id", BigInteger),
    Column("new_instance_type_id", BigInteger),
    Column("old_instance", JSON_VALUE, nullable=False),
    Column("user_id", BINARY_TEXT),
    Column("project_id", BINARY_TEXT),
    Column("created_at", BigInteger, nullable=False),
    Column("updated_at", BigInteger, nullable=False),
    Index(None, "instance_uuid", "status"),
    Index(None, "updated_at"),
)
