"""The rows of instances: how they are read as text, and how they are written.

Each has beside it the text that the index wants of it (views.compute.kept), written in the same transaction. A text
names the revision that it is of, so one that a program from before, which knows nothing of texts, has left behind is
not taken for what the row is now.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, Literal, get_args

import msgspec
from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    Engine,
    ScalarSelect,
    Select,
    Text,
    bindparam,
    cast,
    delete,
    func,
    insert,
    literal_column,
    select,
    update,
)
from sqlalchemy.exc import DBAPIError

from cells.database.engines import reason_of, tells_of_damage, writing
from cells.model import Cell, DamagedRecord, InstanceRow
from cells.tables import instances, kept_texts
from resources.fields import Kind, Record
from resources.instance import INSTANCE_FIELDS
from views.compute.kept import FORM, to_text

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
_Fields = msgspec.defstruct(
    "_Fields",
    [(name, _type_of[name]) for name in (*_PLAIN_NAMES, *_JSON_NAMES)],
    array_like=True,
    forbid_unknown_fields=True,
    gc=False,
)
# Not strict, since SQLite's booleans are numbers.
_decode = msgspec.json.Decoder(_Fields, strict=False).decode
_to_record = msgspec.structs.asdict


def _fields_text(dialect: Dialect) -> ColumnElement[Any]:
    """All fields of a row as an array of JSON: the driver, and Python, have one text to make for all of them."""
    plain = cast(_JSON_ARRAY[dialect](*(instances.c[name] for name in _PLAIN_NAMES)), Text)
    others = [func.coalesce(cast(instances.c[name], Text), _NULL) for name in _JSON_NAMES]
    # The bracket that ends the plain ones: a text that ends with one has a quote behind it.
    text: ColumnElement[Any] = func.rtrim(plain, _BRACKET)
    return reduce(lambda text, other: text.concat(_COMMA).concat(other), others, text).concat(_BRACKET)


def _field_text(name: str, dialect: Dialect) -> ColumnElement[Any]:
    """One field of a row as an array of JSON."""
    if name in _PLAIN_NAMES:
        return cast(_JSON_ARRAY[dialect](instances.c[name]), Text)
    stored: ColumnElement[Any] = func.coalesce(cast(instances.c[name], Text), _NULL)
    return literal_column("'['", Text).concat(stored).concat(_BRACKET)


FIELDS_TEXT = {dialect: _fields_text(dialect) for dialect in get_args(Dialect)}
"""What `read_fields` reads."""


# Made once: to make a statement costs as much as to carry it out.
_UUID = "wanted_uuid"
_ONE = {
    dialect: select(instances.c.revision, text.label("fields")).where(instances.c.uuid == bindparam(_UUID))
    for dialect, text in FIELDS_TEXT.items()
}
_ONE_LOCKED = {dialect: one.with_for_update() for dialect, one in _ONE.items()}


def _reason_of_damage(error: Exception) -> str:
    # Without the value: logs are no place for what users have stored.
    return reason_of(getattr(error, "orig", error)).partition(" with text ")[0]


UNDECODABLE = (msgspec.DecodeError, RecursionError)
"""What `read_fields` raises for what no column should have."""


def is_damage(error: Exception) -> bool:
    """Whether what went wrong with the reading of rows is about what one of them holds."""
    return isinstance(error, UNDECODABLE) or (isinstance(error, DBAPIError) and tells_of_damage(error))


def _of_its_text(column: Column[Any]) -> ScalarSelect[Any]:
    """What the text of a row of `instances` has in a column of `kept_texts`; null without a text of what the row is."""
    # Not joined: each row looks up its own, however many there are.
    return (
        select(column)
        .where(
            kept_texts.c.instance_uuid == instances.c.uuid,
            kept_texts.c.revision == instances.c.revision,
            kept_texts.c.form == FORM,
        )
        .correlate(instances)
        .scalar_subquery()
    )


KEPT_TEXT = _of_its_text(kept_texts.c.text)
"""The text that `to_text` makes of a row, or null."""

# Made once: to make a statement costs as much as to carry it out.
_WANTED, _AFTER, _AT_ONCE = "wanted", "after", "at_once"
_ADD_ROW, _ADD_TEXT = insert(instances), insert(kept_texts)
_CHANGE_ROW = update(instances).where(instances.c.uuid == bindparam(_WANTED))
_CHANGE_TEXT = update(kept_texts).where(kept_texts.c.instance_uuid == bindparam(_WANTED))
_FILLED_AT_ONCE = 500
# Writers of SQLite look for their turn, the longer they wait the more seldom, at last each 0.1 s.
_TURN_FOR_OTHERS_S = {"sqlite": 0.15, "postgresql": 0.0}
_HAS_NO_TEXT = _of_its_text(kept_texts.c.revision).is_(None)
# All rows, and not those without a text: PostgreSQL thinks that hardly any is, and would read and sort the whole table.
_PAGE = (
    select(instances.c.uuid, _HAS_NO_TEXT.label("lacks"))
    .where(instances.c.uuid > bindparam(_AFTER))
    .order_by(instances.c.uuid)
    .limit(bindparam(_AT_ONCE))
)
# Rows are locked, so that none changes before it has the text of what it was. One that somebody else has locked is not
# waited for: those before it would be locked as long.
_LOCKED: Mapping[Dialect, Select[Any]] = {
    dialect: select(instances.c.uuid, instances.c.revision, FIELDS_TEXT[dialect].label("fields"))
    .where(_HAS_NO_TEXT, instances.c.uuid.in_(bindparam(_WANTED, expanding=True)))
    .order_by(instances.c.uuid)
    .with_for_update(of=instances, skip_locked=True)
    for dialect in get_args(Dialect)
}


@dataclass(frozen=True, slots=True)
class Filled:
    """made: how many texts. unrenderable: by uuid, why there is none of a row that lacks it all the same."""

    made: int
    unrenderable: Mapping[str, str]


def dialect_of(engine: Engine) -> Dialect:
    return "sqlite" if engine.dialect.name == "sqlite" else "postgresql"


def read_fields(text: str) -> Record:
    """The record of a row, from FIELDS_TEXT. Raises UNDECODABLE for what no column should have."""
    record: Record = _to_record(_decode(text))
    return record


def read_damaged(connection: Connection, cell: str, uuid: str) -> DamagedRecord:
    """What can be read of the row of an instance, field by field. cell: its name."""
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
    """The row of one instance, also of a deleted one; of a damaged one what can be read of it.

    locks: waits until no other transaction has the row locked, and locks it until this one ends.
    """
    try:
        one = (_ONE_LOCKED if locks else _ONE)[dialect_of(connection.engine)]
        row = connection.execute(one, {_UUID: uuid}).one_or_none()
        return None if row is None else InstanceRow(cell.uuid, row.revision, read_fields(row.fields))
    except Exception as error:
        if not is_damage(error):
            raise
    revision: int = connection.execute(select(instances.c.revision).where(instances.c.uuid == uuid)).scalar_one()
    return InstanceRow(cell.uuid, revision, read_damaged(connection, cell.name, uuid))


def add_rows(connection: Connection, rows: Sequence[InstanceRow]) -> None:
    """Write the rows of new instances. Raises IntegrityError when there is one already."""
    connection.execute(_ADD_ROW, [{**row.record, "revision": row.revision} for row in rows])
    _add_texts(connection, list(_texts_of(rows)))


def change_row(connection: Connection, row: InstanceRow, changed: Mapping[str, Any]) -> None:
    """Write what has `changed` of the row of an instance that the transaction has locked, so that it is `row` now."""
    connection.execute(_CHANGE_ROW, {**changed, "revision": row.revision, _WANTED: row.uuid})
    for text in _texts_of([row]):
        if not connection.execute(_CHANGE_TEXT, {**text, _WANTED: row.uuid}).rowcount:
            connection.execute(_ADD_TEXT, text)


def ignore_filled(_texts: int) -> None:
    """For callers who do not want to see how far it is."""


def count_rows(engine: Engine) -> int:
    """How many rows `fill_texts` goes through."""
    with engine.connect() as connection:
        return int(connection.execute(select(func.count()).select_from(instances)).scalar_one())


def fill_texts(engine: Engine, on_batch: Callable[[int], None] = ignore_filled) -> Filled:
    """Make the texts that rows lack: those of rows that were last written by a program without texts of this form.

    Can be repeated, and done while rows change: who changes one gives it its text, and has it locked meanwhile, so such
    rows are passed over.
    on_batch: called now and then with how many rows it has gone through.
    """
    passed, made, after = 0, 0, ""
    unrenderable: dict[str, str] = {}
    while True:
        # Looked for without a lock: to go through all rows takes seconds when few lack a text, or none.
        with engine.connect() as connection:
            page = connection.execute(_PAGE, {_AFTER: after, _AT_ONCE: _FILLED_AT_ONCE}).all()
        if not page:
            return Filled(made, unrenderable)
        if lacking := [row.uuid for row in page if row.lacks]:
            filled = _fill(engine, lacking)
            made += filled.made
            unrenderable |= filled.unrenderable
            time.sleep(_TURN_FOR_OTHERS_S[dialect_of(engine)])
        passed += len(page)
        on_batch(passed)
        after = page[-1].uuid


def _fill(engine: Engine, uuids: Sequence[str]) -> Filled:
    """Make the texts of those rows that still lack theirs; halved until those that cannot be read stand alone."""
    try:
        return _fill_at_once(engine, uuids)
    except DBAPIError as error:
        if not is_damage(error):
            raise
        if len(uuids) == 1:
            return Filled(0, {uuids[0]: _reason_of_damage(error)})
    middle = len(uuids) // 2
    first, second = _fill(engine, uuids[:middle]), _fill(engine, uuids[middle:])
    return Filled(first.made + second.made, {**first.unrenderable, **second.unrenderable})


def _fill_at_once(engine: Engine, uuids: Sequence[str]) -> Filled:
    texts: list[dict[str, Any]] = []
    unrenderable: dict[str, str] = {}
    with writing(engine) as connection:
        for row in connection.execute(_LOCKED[dialect_of(engine)], {_WANTED: uuids}).all():
            try:
                texts.append(_text_of(InstanceRow("", row.revision, read_fields(row.fields))))
            except Exception as error:  # noqa: BLE001  # it is about this row
                unrenderable[row.uuid] = f"{type(error).__name__}: {error}"
        older = kept_texts.c.instance_uuid.in_([text["instance_uuid"] for text in texts])
        connection.execute(delete(kept_texts).where(older))
        _add_texts(connection, texts)
    return Filled(len(texts), unrenderable)


def _add_texts(connection: Connection, texts: Sequence[Mapping[str, Any]]) -> None:
    if texts:
        connection.execute(_ADD_TEXT, texts)


def _texts_of(rows: Iterable[InstanceRow]) -> Iterator[dict[str, Any]]:
    for row in rows:
        try:
            text = _text_of(row)
        except Exception:  # noqa: BLE001, S112  # who goes through the rows meets it again, and reports it
            continue
        yield text


def _text_of(row: InstanceRow) -> dict[str, Any]:
    """What `kept_texts` has of a row. Raises whatever the rendering of a broken one raises."""
    return {"instance_uuid": row.uuid, "revision": row.revision, "form": FORM, "text": to_text(row.record)}
