"""Writes exports in each format, from the lines of JSON that `GET /fleetlight/query/export` sends.

Parquet needs pyarrow, which only `fleetlight[export]` installs.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import msgspec

from fleetlight.api.query.export import FORMS, Form
from fleetlight.cli.errors import CommandError, ConfigurationError
from fleetlight.resources.fields import Field, Kind
from fleetlight.resources.query_fields.definitions import QueryFields
from fleetlight.resources.units import MICROSECONDS_PER_SECOND
from fleetlight.views.query2.projection import cells_of

STATUSES = "_statuses"
"""A column of Parquet files: for each row the status of every field without a value
(fleetlight.resources.query_fields.definitions.ResultStatus)."""

_ROW_GROUP = 20_000
_encode = msgspec.json.Encoder().encode


class ExportFile(Protocol):
    """A file being written. head, end: the first and the last line of an export."""

    def begin(self, head: Mapping[str, Any]) -> None: ...

    def add(self, lines: Sequence[bytes]) -> None: ...

    def end(self, end: Mapping[str, Any]) -> None: ...

    def close(self) -> None:
        """Close the file, whether `end` was called or not."""
        ...


class LinesFile:
    """A file in a format that the API offers too. known: the fields of its items."""

    def __init__(self, form: Form, known: QueryFields, path: Path) -> None:
        self._form = form
        self._known = known
        self._file = path.open("wb")
        self._fields: Sequence[Field] = ()
        self._covers: Mapping[str, Any] = {}

    def begin(self, head: Mapping[str, Any]) -> None:
        self._covers = {name: value for name, value in head.items() if name != "fields"}
        self._fields = [self._known[name] for name in head["fields"]]
        self._file.write(self._form.head(self._covers, self._fields))

    def add(self, lines: Sequence[bytes]) -> None:
        self._file.write(self._form.rows([((), msgspec.Raw(line)) for line in lines], self._fields))

    def end(self, end: Mapping[str, Any]) -> None:
        self._file.write(self._form.end(self._covers, end))

    def close(self) -> None:
        self._file.close()


class ParquetFile:
    """A Parquet file, written in row groups. known: the fields of its items; their kinds decide the column types."""

    def __init__(self, known: QueryFields, path: Path) -> None:
        self._arrow = _pyarrow()
        self._known = known
        self._path = path
        self._fields: Sequence[Field] = ()
        self._head: Mapping[str, Any] = {}
        self._rows: list[Sequence[tuple[int, Any]]] = []
        self._writer: Any = None

    def begin(self, head: Mapping[str, Any]) -> None:
        self._head, self._fields = head, [self._known[name] for name in head["fields"]]
        arrow = self._arrow
        columns = [arrow.field(field.name, self._type_of(field)) for field in self._fields]
        schema = arrow.schema([*columns, arrow.field(STATUSES, arrow.map_(arrow.string(), arrow.int8()))])
        self._writer = arrow.parquet.ParquetWriter(self._path, schema, compression="zstd")

    def add(self, lines: Sequence[bytes]) -> None:
        self._rows += (cells_of(msgspec.Raw(line)) for line in lines)
        while len(self._rows) >= _ROW_GROUP:
            self._write(self._rows[:_ROW_GROUP])
            del self._rows[:_ROW_GROUP]

    def end(self, end: Mapping[str, Any]) -> None:
        if self._rows:
            self._write(self._rows)
        self._writer.add_key_value_metadata({"fleetlight": _encode({**self._head, **end}).decode()})

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()

    def _type_of(self, field: Field) -> Any:
        arrow = self._arrow
        match field.kind:
            case Kind.BOOL:
                return arrow.bool_()
            case Kind.NUMBER | Kind.UNIT:
                return arrow.int64()
            case Kind.FLOAT:
                return arrow.float64()
            case Kind.TIMESTAMP:
                return arrow.timestamp("us", tz="UTC")
        return arrow.list_(arrow.string()) if field.is_list else arrow.string()

    def _write(self, rows: Sequence[Sequence[tuple[int, Any]]]) -> None:
        schema, names = self._writer.schema, [field.name for field in self._fields]
        columns = [self._column(field, [row[place][1] for row in rows]) for place, field in enumerate(self._fields)]
        statuses = [[(name, status) for name, (status, _) in zip(names, row, strict=True) if status] for row in rows]
        arrays = [*columns, self._arrow.array(statuses, schema.field(STATUSES).type)]
        self._writer.write_batch(self._arrow.record_batch(arrays, schema=schema), row_group_size=_ROW_GROUP)

    def _column(self, field: Field, values: Sequence[Any]) -> Any:
        """Convert values to a column. Raises CommandError for a value that does not fit the kind of its field."""
        if field.kind is Kind.TIMESTAMP:
            values = [None if value is None else round(value * MICROSECONDS_PER_SECOND) for value in values]
        elif field.kind is Kind.OTHER and not field.is_list:
            values = [None if value is None else _encode(value).decode() for value in values]
        try:
            return self._arrow.array(values, self._type_of(field))
        except (self._arrow.ArrowException, OverflowError, TypeError, ValueError) as error:
            raise CommandError(f"{field.name}: a value is none of kind {field.kind}: {error}") from error


def _pyarrow() -> Any:
    """Import pyarrow. Raises ConfigurationError if it is not installed."""
    try:
        import pyarrow  # noqa: PLC0415 -- an extra
        import pyarrow.parquet  # noqa: PLC0415 -- an extra
    except ImportError as error:
        raise ConfigurationError("--format parquet needs pyarrow: install 'fleetlight[export]'") from error
    return pyarrow


def file_of(form: str, known: QueryFields) -> Callable[[Path], ExportFile]:
    """A function that opens a file in a format. known: fields of the items. Raises ConfigurationError."""
    if form != "parquet":
        return partial(LinesFile, FORMS[form], known)
    _pyarrow()
    return partial(ParquetFile, known)
