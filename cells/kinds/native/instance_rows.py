"""Reads rows of instances as text, and writes them."""

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import lru_cache, reduce
from typing import Any, Literal, get_args

import msgspec
from sqlalchemy import (
    ColumnElement,
    Connection,
    Engine,
    Select,
    Text,
    bindparam,
    cast,
    func,
    insert,
    literal_column,
    select,
    update,
)
from sqlalchemy.exc import DBAPIError

from fleetlight.cells.database.engines import reason_of, tells_of_damage
from fleetlight.cells.model import Cell, DamagedRecord, InstanceRow
from fleetlight.cells.tables import instances
from fleetlight.resources.fields import Kind, Record
from fleetlight.resources.instance import INSTANCE_FIELDS

Dialect = Literal["sqlite", "postgresql"]

_JSON_NAMES = [name for name, field in INSTANCE_FIELDS.items() if field.kind is Kind.OTHER]
_PLAIN_NAMES = [name for name in INSTANCE_FIELDS if name not in _JSON_NAMES]
_JSON_ARRAY = {"sqlite": func.json_array, "postgresql": func.json_build_array}
_COMMA, _BRACKET, _NULL = (literal_column(f"'{text}'", Text) for text in (",", "]", "null"))
_TYPES: Mapping[Kind, Any] = {
    Kind.TEXT: str | None,
    Kind.BOOL: bool | None,
    Kind.NUMBER: int | None,
    Kind.UNIT: int | None,
    Kind.FLOAT: float | None,
    Kind.TIMESTAMP: int | None,
}
_type_of = {name: _TYPES.get(field.kind, Any) for name, field in INSTANCE_FIELDS.items()}
_to_record = msgspec.structs.asdict


class FieldsReader:
    """Reads some fields of rows. names: of the fields, including `uuid`; None for all."""

    def __init__(self, names: Collection[str] | None) -> None:
        wanted = INSTANCE_FIELDS if names is None else names
        self._plain = [name for name in _PLAIN_NAMES if name in wanted]
        self._json = [name for name in _JSON_NAMES if name in wanted]
        fields = msgspec.defstruct(
            "_Fields",
            [(name, _type_of[name]) for name in (*self._plain, *self._json)],
            array_like=True,
            forbid_unknown_fields=True,
            gc=False,
        )
        # Not strict, since SQLite's booleans are numbers.
        self._decode: Callable[[str], Any] = msgspec.json.Decoder(fields, strict=False).decode
        self.statements = {
            dialect: select(instances.c.revision, self.text(dialect), instances.c.uuid) for dialect in get_args(Dialect)
        }
        """By dialect, the statement for all rows: revision, text for `record`, and uuid."""

    def text(self, dialect: Dialect) -> ColumnElement[Any]:
        """The column of the text that `record` reads."""
        return _fields_text(dialect, self._plain, self._json)

    def record(self, text: str) -> Record:
        """The record of a row. Raises one of UNDECODABLE if a column is damaged."""
        record: Record = _to_record(self._decode(text))
        return record


def _fields_text(dialect: Dialect, plain_names: Sequence[str], json_names: Sequence[str]) -> ColumnElement[Any]:
    """Fields of a row as one JSON array, so that driver and Python create a single text for all of them."""
    plain = cast(_JSON_ARRAY[dialect](*(instances.c[name] for name in plain_names)), Text)
    others = [func.coalesce(cast(instances.c[name], Text), _NULL) for name in json_names]
    # Removes only the bracket that ends the array: a text that ends with one has a quote after it.
    text: ColumnElement[Any] = func.rtrim(plain, _BRACKET)
    return reduce(lambda text, other: text.concat(_COMMA).concat(other), others, text).concat(_BRACKET)


def _field_text(name: str, dialect: Dialect) -> ColumnElement[Any]:
    """One field of a row as an array of JSON."""
    if name in _PLAIN_NAMES:
        return cast(_JSON_ARRAY[dialect](instances.c[name]), Text)
    stored: ColumnElement[Any] = func.coalesce(cast(instances.c[name], Text), _NULL)
    return literal_column("'['", Text).concat(stored).concat(_BRACKET)


fields_reader = lru_cache(maxsize=64)(FieldsReader)
_WHOLE = fields_reader(None)

# Made once: to make a statement costs as much as to carry it out.
_UUID = "wanted_uuid"
_ONE = {
    dialect: select(instances.c.revision, _WHOLE.text(dialect).label("fields")).where(
        instances.c.uuid == bindparam(_UUID)
    )
    for dialect in get_args(Dialect)
}
_ONE_LOCKED = {dialect: one.with_for_update() for dialect, one in _ONE.items()}
_ONE_LOCKED_IF_FREE = {dialect: one.with_for_update(skip_locked=True) for dialect, one in _ONE.items()}


def _reason_of_damage(error: Exception) -> str:
    # Leave out the value: logs must not contain what users have stored.
    return reason_of(getattr(error, "orig", error)).partition(" with text ")[0]


UNDECODABLE = (msgspec.DecodeError, RecursionError)
"""The errors of a FieldsReader for a damaged row."""


def is_damage(error: Exception) -> bool:
    """Whether an error in reading rows comes from the contents of one of them."""
    return isinstance(error, UNDECODABLE) or (isinstance(error, DBAPIError) and tells_of_damage(error))


# Made once: to make a statement costs as much as to carry it out.
_WANTED = "wanted"
_ADD_ROW = insert(instances)
_CHANGE_ROW = update(instances).where(instances.c.uuid == bindparam(_WANTED))


def dialect_of(engine: Engine) -> Dialect:
    """The dialect of a native cell's database."""
    return "sqlite" if engine.dialect.name == "sqlite" else "postgresql"


def read_damaged(connection: Connection, cell: str, uuid: str) -> DamagedRecord:
    """The readable fields of a damaged row, read one by one. cell: its name."""
    dialect = dialect_of(connection.engine)
    readable: dict[str, Any] = {"uuid": uuid}
    problems: list[str] = []
    for name, kind in _type_of.items():
        try:
            text = connection.scalar(select(_field_text(name, dialect)).where(instances.c.uuid == uuid))
            (value,) = msgspec.json.decode(text or "", type=tuple[Any])
            readable[name] = msgspec.convert(value, kind, strict=False)
        except Exception as error:
            if not is_damage(error):
                raise
            problems.append(f"{name}: {_reason_of_damage(error)}")
    return DamagedRecord(cell, readable, "; ".join(problems))


def read_row(connection: Connection, cell: Cell, uuid: str, *, locks: bool = False) -> InstanceRow | None:
    """The row of one instance, which may be deleted, or have a DamagedRecord; None if it does not exist.

    locks: lock the row until the transaction ends, after other transactions have released it.
    """
    return _read(connection, cell, uuid, _ONE_LOCKED if locks else _ONE)


def lock_row_if_free(connection: Connection, cell: Cell, uuid: str) -> InstanceRow | None:
    """As `read_row` with `locks`, but returns None if another transaction has locked the row."""
    return _read(connection, cell, uuid, _ONE_LOCKED_IF_FREE)


def _read(
    connection: Connection, cell: Cell, uuid: str, statements: Mapping[Dialect, Select[Any]]
) -> InstanceRow | None:
    try:
        one = statements[dialect_of(connection.engine)]
        row = connection.execute(one, {_UUID: uuid}).one_or_none()
        return None if row is None else InstanceRow(cell.uuid, row.revision, _WHOLE.record(row.fields))
    except Exception as error:
        if not is_damage(error):
            raise
    revision: int = connection.execute(select(instances.c.revision).where(instances.c.uuid == uuid)).scalar_one()
    return InstanceRow(cell.uuid, revision, read_damaged(connection, cell.name, uuid))


def add_rows(connection: Connection, rows: Sequence[InstanceRow]) -> None:
    """Insert the rows of new instances. Raises IntegrityError if one exists."""
    connection.execute(_ADD_ROW, [{**row.record, "revision": row.revision} for row in rows])


def change_row(connection: Connection, row: InstanceRow, changed: Mapping[str, Any]) -> None:
    """Update the `changed` fields of a row that the transaction has locked, so that it equals `row`."""
    connection.execute(_CHANGE_ROW, {**changed, "revision": row.revision, _WANTED: row.uuid})
