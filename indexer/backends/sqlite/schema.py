"""The SQLite file of the embedded index: its tables, version and errors, for writer and searchers.

This converts documents to rows and back, and opens nothing.
"""

import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec
from sqlalchemy import Column, ColumnElement, Index, Integer, LargeBinary, MetaData, Table, Text, literal_column
from sqlalchemy.dialects.sqlite import REAL, dialect
from sqlalchemy.schema import CreateIndex, CreateTable
from sqlalchemy.types import TypeEngine

from fleetlight.indexer.backends.base import MISSHAPEN, CellProgress, Document
from fleetlight.indexer.backends.examination import MAKE, IndexExamination, IndexProblem
from fleetlight.indexer.backends.settings import IndexSettings
from fleetlight.indexer.errors import (
    IndexAbsentError,
    IndexDamagedError,
    IndexDocumentError,
    IndexQueryError,
    IndexRequestError,
    IndexUnavailableError,
    IndexUnreadableError,
    IndexVersionError,
)
from fleetlight.indexer.extra_fields import Extra
from fleetlight.query.sort import nice_key
from fleetlight.resources.fields import Kind, Record
from fleetlight.resources.instance import INSTANCE_FIELDS
from fleetlight.views.compute.view import PIECE_NAMES, is_of

# Kept in the file as `user_version`; +1 whenever the tables below, or their contents, change.
SCHEMA_VERSION = 7
BUSY_TIMEOUT_S = 5.0
# Result codes after which the same call may succeed later. After any other an operator must look.
_PASSING = frozenset(
    {
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_PROTOCOL,
    }
)
# Result codes for a statement that is at fault itself, for example because it is nested too deeply.
_OF_QUERY = frozenset({sqlite3.SQLITE_ERROR, sqlite3.SQLITE_TOOBIG})
_DAMAGED = sqlite3.SQLITE_CORRUPT
# The code for a file of another kind, but also for an index with a destroyed first page; the file does not show which.
_UNREADABLE = sqlite3.SQLITE_NOTADB
_NOT_PREPARED = "no such table"
# Errors by which a document is refused: from the driver for a value that does not fit its column (too big, not
# Unicode, wrong type), from the decoder for a cell's value that is not JSON.
UNSTORABLE = (
    OverflowError,
    UnicodeEncodeError,
    msgspec.DecodeError,
    sqlite3.DataError,
    sqlite3.IntegrityError,
    sqlite3.ProgrammingError,
)


# The types of STRICT tables, which refuse a value of another type instead of storing it.
_TYPES: dict[Kind, type[TypeEngine[Any]]] = {
    Kind.TEXT: Text,
    Kind.BOOL: Integer,
    Kind.NUMBER: Integer,
    Kind.UNIT: Integer,
    Kind.FLOAT: REAL,
    Kind.TIMESTAMP: Integer,
}
_SCALARS = tuple(field.name for field in INSTANCE_FIELDS.values() if field.kind in _TYPES)
_BOOLS = tuple(field.name for field in INSTANCE_FIELDS.values() if field.kind is Kind.BOOL)
_LISTS = tuple(field.name for field in INSTANCE_FIELDS.values() if field.is_list)
_OTHERS = tuple(name for name in INSTANCE_FIELDS if name not in _SCALARS and name not in _LISTS)
NICE_NAME = "display_name_nice"
_SAME_AS_STORED = frozenset(_SCALARS) - frozenset(_BOOLS)

# Before the name of a piece of the view, since some pieces and fields have the same name.
_PIECE = "view_"

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


# The place of the uuid in a row.
_UUID = 3 + _SCALARS.index("uuid")


@lru_cache(maxsize=64)
def reader_of(names: tuple[str, ...]) -> Callable[[Sequence[Any]], Sequence[Any]] | None:
    """A function that converts the leading columns of a row, those of these fields, to stored values.

    None if all are stored as they are.
    """
    readers = [
        (place, bool if name in _BOOLS else _decode) for place, name in enumerate(names) if name not in _SAME_AS_STORED
    ]
    if not readers:
        return None

    def read(row: Sequence[Any]) -> Sequence[Any]:
        values = list(row)
        for place, reader in readers:
            if values[place] is not None:
                values[place] = reader(values[place])
        return values

    return read


def _define(suffix: str = "", index_suffix: str = "") -> tuple[Table, Table]:
    """The tables of one generation: documents and progress.

    NICE_NAME is the sort key for the nice order of names, in which whole lists come; computing it for each page would
    take longer than the page. `other` has the fields that are never compared, as one JSON object. It is last, since
    searches do not read it, and SQLite reads a row only up to the last column it needs. No updated column is NOT NULL:
    for a statement that may be aborted halfway and runs triggers (fleetlight.indexer.backends.sqlite.seal) SQLite
    copies each page that it writes, which made writing a quarter slower.
    """
    metadata = MetaData()
    documents = Table(
        f"documents{suffix}",
        metadata,
        Column("cell_uuid", Text),
        Column("version", Integer),
        Column(NICE_NAME, Text),
        *(Column(name, _TYPES[INSTANCE_FIELDS[name].kind], primary_key=name == "uuid") for name in _SCALARS),
        *(Column(name, Text) for name in _LISTS),
        *(Column(_PIECE + piece, LargeBinary) for piece in PIECE_NAMES),
        Column("other", Text),
        sqlite_strict=True,
    )
    progress = Table(
        f"progress{suffix}",
        metadata,
        Column("cell_uuid", Text, primary_key=True),
        Column("watermark", Integer, nullable=False),
        Column("fresh_as_of", Integer, nullable=False),
        Column("is_complete", Integer, nullable=False),
        sqlite_strict=True,
    )
    # The first two serve the default order of lists. All end with the cell, so that rows of unwanted cells are skipped
    # within the index.
    newest_first = (documents.c.created_at.desc(), documents.c.uuid, documents.c.cell_uuid)
    Index(f"documents_by_age{index_suffix}", documents.c.deleted, *newest_first)
    Index(f"documents_by_project_and_age{index_suffix}", documents.c.project_id, documents.c.deleted, *newest_first)
    in_nice_order = (documents.c[NICE_NAME], documents.c.uuid, documents.c.cell_uuid)
    Index(f"documents_by_name{index_suffix}", documents.c.deleted, *in_nice_order)
    return documents, progress


DOCUMENTS, _PROGRESS = _define()
FIELD_COLUMNS: Mapping[str, ColumnElement[Any]] = {
    name: DOCUMENTS.c.other.op("->")(literal_column(f"'$.{name}'")) if name in _OTHERS else DOCUMENTS.c[name]
    for name in INSTANCE_FIELDS
}
"""The column of each field, or an expression for the JSON of one that is never compared."""
PIECE_COLUMNS = {piece: DOCUMENTS.c[_PIECE + piece] for piece in PIECE_NAMES}
NEXT_SUFFIX, PREVIOUS_SUFFIX = "_next", "_previous"
NEXT_DOCUMENTS, _ = _define(NEXT_SUFFIX)


def schema_version(connection: sqlite3.Connection) -> int:
    """The version of the tables; 0 before they are created."""
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def creation_statements(suffix: str = "", index_suffix: str = "") -> list[str]:
    """SQL that creates the tables of one generation.

    index_suffix: makes the names of indexes unique, since indexes keep their names when tables are renamed.
    """
    sqlite = dialect()
    documents, progress = _define(suffix, index_suffix)
    tables = [str(CreateTable(table).compile(dialect=sqlite)) for table in (documents, progress)]
    indexes = [
        str(CreateIndex(index).compile(dialect=sqlite))
        for index in sorted(documents.indexes, key=lambda index: str(index.name))
    ]
    return [*tables, *indexes]


def upsert_statement(documents: Table = DOCUMENTS) -> str:
    """SQL that writes one row of `row_of`, only if it is newer than the one there."""
    names = [column.name for column in documents.columns]
    changes = ", ".join(f"{name} = excluded.{name}" for name in names if name != "uuid")
    return (
        f"INSERT OR FAIL INTO {documents.name} ({', '.join(names)}) VALUES ({', '.join('?' * len(names))}) "  # noqa: S608
        f"ON CONFLICT (uuid) DO UPDATE SET {changes} WHERE excluded.version > {documents.name}.version"
    )


def row_of(document: Document) -> tuple[Any, ...]:
    """The values of a document's row, in the order of the columns. Raises KeyError if the record is incomplete."""
    record = document.record
    others = {name: record[name] for name in _OTHERS}
    if (extra := document.extra) is not None:
        others["extra"] = {**msgspec.structs.asdict(extra), "terms": extra.terms, "fields": extra.fields}
    return (
        document.cell_uuid,
        document.version,
        _nice_name(record),
        *[record[name] for name in _SCALARS],
        *[_encode(record[name] or ()).decode() for name in _LISTS],
        *document.view,
        _encode(others).decode(),
    )


def document_of(row: Sequence[Any]) -> Document:
    """The inverse of `row_of`. Raises IndexDocumentError for a row that another program has written."""
    try:
        return _document_of(row)
    except MISSHAPEN as error:
        raise IndexDocumentError.caused_by(error, row[_UUID]) from error


def _document_of(row: Sequence[Any]) -> Document:
    cell_uuid, version, nice_name, *values = row
    lists = len(_SCALARS) + len(_LISTS)
    record = dict(zip(_SCALARS, values[: len(_SCALARS)], strict=True))
    if nice_name != _nice_name(record):
        raise ValueError(f"{NICE_NAME} is not what the name makes")
    # A copy that another program has stored under another id is otherwise as we wrote it.
    if not is_of(values[lists:-1], record["uuid"]):
        raise ValueError("its view is that of another instance")
    for name in _BOOLS:
        if record[name] is not None:
            record[name] = bool(record[name])
    record |= {name: _decode(text) for name, text in zip(_LISTS, values[len(_SCALARS) : lists], strict=True)}
    others = _decode(values[-1])
    extra = others.pop("extra", None)
    record |= others
    return Document(
        cell_uuid,
        version,
        {name: record[name] for name in INSTANCE_FIELDS},
        tuple(values[lists:-1]),
        None if extra is None else msgspec.convert(extra, Extra),
    )


def _nice_name(record: Mapping[str, Any]) -> str | None:
    name = record["display_name"]
    return None if name is None else nice_key(name)


def bare_record(row: Mapping[str, Any]) -> Record:
    """The fields of a row of another schema, by the names of its columns."""
    values = {**row, **_decode(row["other"])}
    return {name: _stored(name, values[name]) for name in INSTANCE_FIELDS if values.get(name) is not None}


def _stored(name: str, value: Any) -> Any:
    if name in _LISTS:
        return _decode(value)
    return bool(value) if name in _BOOLS else value


def read_progress(connection: sqlite3.Connection, table: str = "progress") -> dict[str, CellProgress]:
    """The progress of each cell by its uuid, from the table of some generation."""
    return {
        cell_uuid: CellProgress(cell_uuid, watermark, fresh_as_of, bool(is_complete))
        for cell_uuid, watermark, fresh_as_of, is_complete in connection.execute(
            f"SELECT cell_uuid, watermark, fresh_as_of, is_complete FROM {table}"  # noqa: S608
        )
    }


def require_known_schema(connection: sqlite3.Connection, path: Path) -> None:
    """Raises IndexUnavailableError if the file is not prepared yet, IndexVersionError if it has another version."""
    version = schema_version(connection)
    if version == 0:
        raise IndexUnavailableError(f"the index {path} has not been prepared yet: start the indexer")
    if version != SCHEMA_VERSION:
        raise IndexVersionError(str(path), version, SCHEMA_VERSION, SCHEMA_VERSION)


def file_of(path: Path) -> tuple[int, int] | None:
    """Identifies the file that is there now, uniquely while the file is open; None if there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


@contextmanager
def query_translated(path: Path) -> Iterator[None]:
    """Translate SQLite's errors that are due to the query to an IndexQueryError; all others pass."""
    try:
        yield
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", None)
        if code in _OF_QUERY and not str(error).startswith(_NOT_PREPARED):
            raise IndexQueryError(error.sqlite_errorname, f"{path}: {error}") from error
        raise


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """Translate SQLite's errors to ours, except those for values that do not fit, which `write` handles.

    Raises IndexUnavailableError or IndexRequestError.
    """
    try:
        yield
    except UNSTORABLE:
        raise
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", None)
        if str(error).startswith(_NOT_PREPARED) or not path.exists():
            raise IndexAbsentError(f"the index {path} is not there: {error}") from error
        if code is not None and code & 0xFF in _PASSING:
            raise IndexUnavailableError(f"the index {path} cannot be used now: {error}") from error
        if code is not None and code & 0xFF == _DAMAGED:
            raise IndexDamagedError(str(path), str(error)) from error
        if code is not None and code & 0xFF == _UNREADABLE:
            raise IndexUnreadableError(str(path), str(error)) from error
        raise IndexRequestError(f"the index {path} refused a request: {error}") from error
    except OSError as error:
        raise IndexUnavailableError(f"the index {path} cannot be used now: {error}") from error


def examine(settings: IndexSettings, _timeout_s: float) -> IndexExamination:
    """Check whether the index exists and is writable; the doctor checks the disk separately."""
    server = f"SQLite {sqlite3.sqlite_version}"
    path = settings.path
    if not path.exists():
        return IndexExamination(server, None, [MAKE])
    problems = []
    if not os.access(path, os.W_OK) or not os.access(path.parent, os.W_OK):
        remedy = "run this as the user that runs the indexer"
        problems.append(IndexProblem(f"{path} cannot be written by this account", remedy))
    return IndexExamination(server, str(path), problems)
