"""The jobs of a native cell, from any of its faces, as records with Ganeti's fields.

An operation of Ganeti is shown with its name and parameters. An action of the compute API gets a similar name:
`confirmResize` is OP_SERVER_CONFIRM_RESIZE. Its parameters may be secrets of the server's owner, and are not shown.
"""

import re
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from sqlalchemy import Column, ColumnElement, Connection, Row, Select, Text, case, cast, false, select

from fleetlight.cells.job_numbers import job_number, number_in_cell
from fleetlight.cells.job_words import ENDED, OPCODE
from fleetlight.cells.kinds.native.instance_rows import dialect_of
from fleetlight.cells.kinds.native.items.json_columns import as_text, decoded, decoded_or, is_number
from fleetlight.cells.model import Cell
from fleetlight.cells.tables import instances, job_log, job_operations, jobs
from fleetlight.query.filters import In
from fleetlight.query.sql import SqlColumn, SqlDialect
from fleetlight.resources.fields import Kind, Record
from fleetlight.resources.query_fields.definitions import ResultStatus
from fleetlight.resources.units import MICROSECONDS_PER_SECOND

_PARAMETERS = "parameters"
_HUMP = re.compile(r"(?<=[a-z])(?=[A-Z])|[^A-Za-z]+")
_OF_JOBS = ("id", "status", "priority", "received_at", "started_at", "ended_at")
# Parameters of operating systems whose values are never shown.
_FOR_GUESTS = frozenset({"osparams_private", "osparams_secret"})
_HIDDEN = "<redacted>"


def read_jobs(
    connection: Connection, cell: Cell, fields: Collection[str], keys: Collection[Any] | None
) -> Sequence[Record]:
    """The jobs with these numbers in the fleet, or all kept ones; logs are read only if `fields` has them."""
    keys, dialect = None if keys is None else _numbers(cell, keys), dialect_of(connection.engine)
    of_jobs: dict[int, list[Row[Any]]] = defaultdict(list)
    for row in connection.execute(_operations().where(*_is_one_of(job_operations.c.job_id, keys, dialect))):
        of_jobs[row.job_id].append(row)
    logs = _logs(connection, keys) if "oplog" in fields else {}
    columns: list[Column[Any]] = [jobs.c[name] for name in _OF_JOBS]
    found = connection.execute(select(*columns).where(*_is_one_of(jobs.c.id, keys, dialect))).all()
    return [_record(cell, row, of_jobs[row.id], logs) for row in found if row.id in of_jobs]


def operation_id(operation: str) -> str:
    """The name of an operation in the form of Ganeti's."""
    if operation.startswith(OPCODE):
        return operation
    return f"{OPCODE}SERVER_{_HUMP.sub('_', operation.removeprefix('os-')).upper()}"


def _numbers(cell: Cell, keys: Collection[Any]) -> Collection[int]:
    """The numbers in the cell of its own jobs among these keys."""
    found = (number_in_cell(cell, key) for key in keys if isinstance(key, int))
    return [number for number in found if number is not None]


def _is_one_of(
    column: Column[int], numbers: Collection[int] | None, dialect: SqlDialect
) -> Sequence[ColumnElement[bool]]:
    """The condition on a column, compiled as a filter since it may have many numbers; empty for None."""
    if numbers is None:
        return []
    return [In(column.name, tuple(numbers)).sql(SqlColumn(column, dialect, Kind.NUMBER)) if numbers else false()]


def _operations() -> Select[Any]:
    columns = job_operations.c
    return (
        select(
            columns.job_id,
            columns.operation,
            columns.summary,
            # Parameters of other operations may be long, and are not shown.
            case((columns.operation.startswith(OPCODE, autoescape=True), cast(columns.parameters, Text))).label(
                _PARAMETERS
            ),
            columns.status,
            columns.instance_uuid,
            columns.started_at,
            columns.ended_at,
            as_text(columns.result),
            instances.c.display_name,
        )
        .join_from(job_operations, instances, instances.c.uuid == columns.instance_uuid, isouter=True)
        .order_by(columns.job_id, columns.position)
    )


def _logs(connection: Connection, keys: Collection[int] | None) -> Mapping[tuple[int, int], Sequence[Any]]:
    """The entries of each operation, by the number of its job and its position."""
    columns = job_log.c
    statement = select(
        columns.job_id, columns.position, columns.serial, columns.logged_at, columns.type, as_text(columns.data)
    )
    statement = statement.where(*_is_one_of(columns.job_id, keys, dialect_of(connection.engine))).order_by(
        columns.job_id, columns.serial
    )
    found: dict[tuple[int, int], list[Any]] = defaultdict(list)
    for row in connection.execute(statement):
        entry = [row.serial, _split(row.logged_at), row.type, decoded_or(row.data, "")]
        found[row.job_id, row.position].append(entry)
    return found


def _record(
    cell: Cell, job: Row[Any], operations: Sequence[Row[Any]], logs: Mapping[tuple[int, int], Sequence[Any]]
) -> Record:
    return {
        "id": job_number(cell, job.id),
        "status": job.status,
        "priority": 0 if job.status in ENDED else job.priority,
        # An ended job is kept for a while, then removed; there is no archive.
        "archived": False,
        "ops": [_operation(row) for row in operations],
        "opresult": _results(operations),
        "opstatus": [row.status for row in operations],
        "oplog": [logs.get((job.id, position), []) for position in range(len(operations))],
        "opstart": [_split(row.started_at) for row in operations],
        # An operation begins when it has its locks.
        "opexec": [_split(row.started_at) for row in operations],
        "opend": [_split(row.ended_at) for row in operations],
        "oppriority": [job.priority for _ in operations],
        "summary": [_summary(row) for row in operations],
        "instance": next((row.instance_uuid for row in operations if row.instance_uuid is not None), None),
        "received_ts": _split_or_missing(job.received_at),
        "start_ts": _split_or_missing(job.started_at),
        "end_ts": _split_or_missing(job.ended_at),
    }


def _results(operations: Sequence[Row[Any]]) -> Any:
    results = [decoded(row.result) for row in operations]
    return ResultStatus.NO_DATA if any(isinstance(result, ResultStatus) for result in results) else results


def _operation(row: Row[Any]) -> Record:
    if row.operation.startswith(OPCODE):
        parameters = decoded_or(row._mapping[_PARAMETERS], {})
        return {"OP_ID": row.operation, **{name: _told(name, value) for name, value in parameters.items()}}
    named = {} if row.instance_uuid is None else {"instance_uuid": row.instance_uuid, "instance_name": row.display_name}
    return {"OP_ID": operation_id(row.operation), **named}


def _told(name: str, value: Any) -> Any:
    """The value of a parameter to show; of parameters for the guest alone only the names."""
    return dict.fromkeys(value, _HIDDEN) if name in _FOR_GUESTS and isinstance(value, dict) else value


def _summary(row: Row[Any]) -> str:
    if row.summary is not None:
        return str(row.summary)
    name = operation_id(row.operation).removeprefix(OPCODE)
    about = row.display_name or row.instance_uuid
    return name if about is None else f"{name}({about})"


def _split(moment: int | None) -> list[int] | None:
    """[seconds, microseconds] of a time in microseconds; None as well if a damaged row has no number."""
    return list(divmod(moment, MICROSECONDS_PER_SECOND)) if moment is not None and is_number(moment) else None


def _split_or_missing(moment: int | None) -> list[int] | ResultStatus | None:
    split = _split(moment)
    return ResultStatus.NO_DATA if split is None and moment is not None else split
