"""The tables of Nova that this program reads, with columns of every release from Wallaby on (contracts/nova-db, 1).

Times become microseconds. Text is compared by code point: PostgreSQL and SQLite have such a collation; in MySQL, whose
columns ignore case, accents and trailing spaces, it is compared as bytes of UTF-8.
"""

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import (
    Boolean,
    Column,
    ColumnElement,
    DateTime,
    Dialect,
    Float,
    FromClause,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    cast,
    column,
    false,
    func,
    literal,
    table,
)
from sqlalchemy.types import TypeDecorator, TypeEngine

from fleetlight.cells.capabilities import CAPABILITIES, CellKind
from fleetlight.cells.kinds.nova_db.databases import NovaDialect
from fleetlight.resources.fields import Kind, from_microseconds, to_microseconds
from fleetlight.resources.instance import DERIVED_FIELDS, INSTANCE_FIELDS

INSTANCE_NAME_PREFIX = "instance-"
"""The prefix of names by the default of `[DEFAULT] instance_name_template`; the row's number follows."""


class NaiveTime(TypeDecorator[int]):
    """A column of naive UTC times, as microseconds since the epoch."""

    impl = DateTime
    cache_ok = True

    def process_bind_param(self, value: int | None, dialect: Dialect) -> datetime | None:
        return None if value is None else from_microseconds(value).replace(tzinfo=None)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> int | None:
        return None if value is None else to_microseconds(value.replace(tzinfo=UTC))


class Utf8(TypeDecorator[str]):
    """Text as the bytes of its UTF-8 form, whose order is that of code points."""

    impl = LargeBinary
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> bytes | None:
        return None if value is None else value.encode()


class Hexadecimal(TypeDecorator[str]):
    """A uuid: lower-case digits and dashes, which every collation orders alike, so the column's own suits its index."""

    impl = String
    cache_ok = True


# Fields that are not, or not in the same form, in a column of `instances` with the same name.
NOT_IN_COLUMNS = DERIVED_FIELDS - {"memory_mb", "vcpus"}
"""Fields that are derived here, too; the other derived fields have columns, which Nova updates with the flavor."""
_NOT_PLAIN = NOT_IN_COLUMNS | {"deleted", "hidden", "locked", "instance_name", "forthcoming", "locked_reason"}
_OF_API = CAPABILITIES[CellKind.NOVA_DB].fields_of_deployment
_TYPES: dict[Kind, type[TypeEngine[Any]]] = {
    **{Kind.TEXT: String, Kind.NUMBER: Integer, Kind.UNIT: Integer, Kind.BOOL: Boolean, Kind.TIMESTAMP: NaiveTime}
}
_COMPARED = tuple(
    name
    for name, field in INSTANCE_FIELDS.items()
    if field.kind is not Kind.OTHER and name not in _NOT_PLAIN and name not in _OF_API
)
PLAIN_COLUMNS = (*_COMPARED, "user_data")
"""The fields that are columns of `instances` in the same form."""

metadata = MetaData()


def _table(name: str, *columns: Column[Any]) -> Table:
    return Table(name, metadata, *columns)


def _of_instance(name: str, *columns: Column[Any]) -> Table:
    """A table whose rows belong to instances, and may be marked as deleted."""
    keys = (Column("id", Integer), Column("instance_uuid", String), Column("deleted", Integer))
    return _table(name, *keys, *columns)


# Of a cell.
instances = _table(
    "instances",
    Column("id", Integer),
    Column("uuid", Hexadecimal, nullable=False),
    Column("deleted", Integer),
    Column("hidden", Boolean),
    Column("user_data", Text),
    *(Column(name, _TYPES[INSTANCE_FIELDS[name].kind]) for name in _COMPARED if name != "uuid"),
)
instance_extra = _of_instance("instance_extra", Column("flavor", Text), Column("trusted_certs", Text))
instance_info_caches = _of_instance("instance_info_caches", Column("network_info", Text))
instance_metadata = _of_instance("instance_metadata", Column("key", String), Column("value", String))
instance_system_metadata = _of_instance("instance_system_metadata", Column("key", String), Column("value", String))
instance_faults = _of_instance(
    "instance_faults",
    Column("code", Integer),
    Column("message", String),
    Column("details", Text),
    Column("created_at", DateTime),
)
block_device_mapping = _of_instance(
    "block_device_mapping",
    Column("volume_id", String),
    Column("device_name", String),
    Column("boot_index", Integer),
    Column("delete_on_termination", Boolean),
    Column("tag", String),
)
tags = _table("tags", Column("resource_id", String), Column("tag", String))
services = _table(
    "services",
    Column("host", String),
    Column("binary", String),
    Column("deleted", Integer),
    Column("disabled", Boolean),
    Column("forced_down", Boolean),
    Column("last_seen_up", NaiveTime),
    Column("created_at", NaiveTime),
)

CELL_TABLES = tuple(metadata.tables.values())
"""The tables of a cell database."""

cell_mappings = _table(
    "cell_mappings",
    Column("id", Integer),
    Column("uuid", String),
    Column("name", String),
    Column("database_connection", Text),
)

# Separate, since not every account may read this column.
cell_buses = table("cell_mappings", column("uuid", String), column("transport_url", Text))
instance_mappings = _table(
    "instance_mappings",
    Column("id", Integer),
    Column("instance_uuid", String),
    Column("cell_id", Integer),
    Column("project_id", String),
    Column("user_id", String),
    Column("created_at", NaiveTime),
    Column("queued_for_delete", Boolean),
)
build_requests = _table(
    "build_requests",
    Column("id", Integer),
    Column("instance_uuid", Hexadecimal),
    Column("project_id", String),
    Column("created_at", NaiveTime),
    Column("updated_at", NaiveTime),
    Column("instance", Text),
    Column("tags", Text),
)
request_specs = _table("request_specs", Column("instance_uuid", String), Column("spec", Text))
instance_groups = _table("instance_groups", Column("id", Integer), Column("uuid", String), Column("project_id", String))
instance_group_member = _table("instance_group_member", Column("instance_uuid", String), Column("group_id", Integer))


API_TABLES = tuple(table for table in metadata.tables.values() if table not in CELL_TABLES)
"""The tables of the API database."""


# In a cell database, and not needed to list instances: an account without rights to it lists no nodes.
compute_nodes = _table(
    "compute_nodes",
    Column("uuid", String),
    Column("host", String),
    Column("hypervisor_hostname", String),
    Column("host_ip", String),
    Column("deleted", Integer),
    Column("created_at", NaiveTime),
    Column("updated_at", NaiveTime),
    *(Column(name, Integer) for name in ("vcpus", "memory_mb", "memory_mb_used", "local_gb", "local_gb_used")),
    Column("vcpus_used", Integer),
    *(Column(f"{name}_allocation_ratio", Float) for name in ("cpu", "ram", "disk")),
)


def field_columns(rows: FromClause, dialect: NovaDialect) -> dict[str, ColumnElement[Any]]:
    """The fields (fleetlight.resources.instance) in columns of `rows`, an alias of `instances`, in comparable form."""
    columns = {name: _comparable(rows.c[name], dialect) for name in _COMPARED}
    columns["instance_name"] = _instance_name(rows.c.id, dialect)
    columns["deleted"] = rows.c.deleted != 0
    columns["forthcoming"] = literal(False, Boolean)  # Nova has no reservations
    columns["hidden"] = func.coalesce(rows.c.hidden, false(), type_=Boolean)
    # Nova shows this column, and has another, `locked`, for filters.
    columns["locked"] = func.coalesce(as_text(rows.c.locked_by, dialect) != "", false(), type_=Boolean)
    return columns


def _instance_name(number: ColumnElement[Any], dialect: NovaDialect) -> ColumnElement[Any]:
    """The name on the hypervisor, made from the number of a row, which has 32 bits at most."""
    digits: ColumnElement[Any]
    match dialect:
        case "postgresql":
            digits = func.lpad(func.to_hex(number), 8, "0", type_=String)
        case "mysql":
            digits = func.lpad(func.lower(func.hex(number)), 8, "0", type_=String)
        case "sqlite":
            digits = func.printf("%08x", number, type_=String)
    name = INSTANCE_NAME_PREFIX + digits
    return utf8(name) if dialect == "mysql" else name


def read_columns(rows: FromClause, dialect: NovaDialect) -> list[ColumnElement[Any]]:
    """The columns to read of `rows`, an alias of `instances`."""
    plain = (as_text(rows.c[name], dialect).label(name) for name in PLAIN_COLUMNS)
    return [rows.c.id, rows.c.deleted, rows.c.hidden, *plain]


def as_text(stored: ColumnElement[Any], dialect: NovaDialect) -> ColumnElement[Any]:
    """A column as text: on PostgreSQL, addresses and `locked_by` have types of their own."""
    if dialect == "postgresql":
        if stored.name in {"access_ip_v4", "access_ip_v6", "host_ip"}:
            return func.host(stored, type_=String)
        if stored.name == "locked_by":
            return cast(stored, String)
    return stored


def utf8(stored: ColumnElement[Any]) -> ColumnElement[Any]:
    """A text that MySQL compares byte by byte."""
    return cast(stored, Utf8)


def _comparable(stored: ColumnElement[Any], dialect: NovaDialect) -> ColumnElement[Any]:
    return utf8(stored) if dialect == "mysql" and type(stored.type) is String else as_text(stored, dialect)
