"""The tables of the fleet database and of a cell database.

The columns of `instances` are the fields of an instance, under the same names: their types follow from the kinds, so a
field is defined once (query.instances). Migrations bring a database to this state; a test compares the two.
"""

from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    CheckConstraint,
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
    text,
)
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.types import TypeEngine

from query.fields import Field, Kind
from query.instances import INSTANCE_FIELDS

_NAMES = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_N_name)s",
    "pk": "pk_%(table_name)s",
}
# Text orders by code point in every cell (query.sort). That is SQLite's own order; PostgreSQL has to be told.
BINARY_TEXT = Text().with_variant(Text(collation="C"), "postgresql")
JSON_VALUE = JSON(none_as_null=True).with_variant(JSONB(none_as_null=True), "postgresql")
# SQLite counts up by itself only in a column whose type is exactly INTEGER.
_ROW_NUMBER = BigInteger().with_variant(Integer(), "sqlite")
_UUID = String(36)

_TYPES: dict[Kind, TypeEngine[Any]] = {
    Kind.TEXT: BINARY_TEXT,
    Kind.BOOL: Boolean(),
    Kind.NUMBER: BigInteger(),
    Kind.UNIT: BigInteger(),
    Kind.FLOAT: Double(),
    Kind.TIMESTAMP: BigInteger(),
    Kind.OTHER: JSON_VALUE,
}

fleet_metadata = MetaData(naming_convention=_NAMES)
cell_metadata = MetaData(naming_convention=_NAMES)

cells = Table(
    "cells",
    fleet_metadata,
    Column("uuid", _UUID, primary_key=True),
    Column("name", Text, nullable=False, unique=True),
    Column("kind", Text, nullable=False),
    Column("database_url", Text, nullable=False),
    Column("transport_url", Text, nullable=False),
    Column("disabled", Boolean, nullable=False),
)

instance_mappings = Table(
    "instance_mappings",
    fleet_metadata,
    Column("instance_uuid", _UUID, primary_key=True),
    Column("cell_uuid", _UUID, ForeignKey("cells.uuid"), nullable=False),
    Column("project_id", BINARY_TEXT),
    Column("user_id", BINARY_TEXT),
    Column("created_at", BigInteger, nullable=False),
    Column("queued_for_delete", Boolean, nullable=False),
    Index("ix_instance_mappings_of_cell", "cell_uuid", "queued_for_delete", "project_id", "instance_uuid"),
)


class _NewestFirst(FunctionElement[int]):
    """A column from high to low, nulls last (query.sort), as an index of each database has to say it.

    SQLite has nulls there by itself, and does not let an index say so; PostgreSQL has them first, and uses an index for
    an order only if both say the same.
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
)
# The default order of a list: of everybody, and of one project.
_NEWEST_FIRST = (instances.c.deleted, _NewestFirst(instances.c.created_at), instances.c.uuid)
Index("ix_instances_by_age", *_NEWEST_FIRST)
Index("ix_instances_project_by_age", instances.c.project_id, *_NEWEST_FIRST)

_UNNUMBERED = text("sequence IS NULL")
_UNPUBLISHED = text("published_at IS NULL AND sequence IS NOT NULL")

changes = Table(
    "changes",
    cell_metadata,
    Column("id", _ROW_NUMBER, primary_key=True),
    Column("instance_uuid", _UUID, nullable=False),
    Column("revision", BigInteger, nullable=False),
    Column("event_type", Text, nullable=False),
    Column("routing_key", Text, nullable=False),
    Column("message", LargeBinary, nullable=False),
    Column("committed_at", BigInteger, nullable=False),
    Column("sequence", BigInteger, unique=True),
    Column("published_at", BigInteger),
    Index("ix_changes_unnumbered", "id", sqlite_where=_UNNUMBERED, postgresql_where=_UNNUMBERED),
    Index("ix_changes_unpublished", "sequence", sqlite_where=_UNPUBLISHED, postgresql_where=_UNPUBLISHED),
)

# One row. It survives the pruning of `changes`, so that numbers never start again.
cell_state = Table(
    "cell_state",
    cell_metadata,
    Column("id", Integer, CheckConstraint("id = 1", name="one_row"), primary_key=True, autoincrement=False),
    Column("last_sequence", BigInteger, nullable=False),
)
