"""The versions of instances since a moment, from the changelog, whose changes have the values that they replaced."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

from sqlalchemy import Connection, Row, Select, select

from fleetlight.cells.model import NO_REVISION, InstanceRow
from fleetlight.cells.tables import changes
from fleetlight.cells.usage import COUNTED_FIELDS, FOR_EVER, Version


def versions_since(connection: Connection, rows: Sequence[InstanceRow], moment: int) -> Iterator[Iterator[Version]]:
    """For each row, its versions by COUNTED_FIELDS, newest first, back to `moment` (microseconds).

    The last version may have begun before that moment.
    """
    columns = changes.c
    statement: Select[Any] = (
        select(columns.instance_uuid, columns.revision, columns.committed_at, columns.previous)
        .where(
            columns.instance_uuid.in_([row.uuid for row in rows]),
            columns.revision != NO_REVISION,
            columns.committed_at > moment,
        )
        .order_by(columns.instance_uuid, columns.revision.desc())
    )
    found = connection.execute(statement).all()
    later = {uuid: list(changed) for uuid, changed in groupby(found, key=lambda change: change.instance_uuid)}
    return (_versions(row, later.get(row.uuid, ())) for row in rows)


def _versions(row: InstanceRow, later: Sequence[Row[Any]]) -> Iterator[Version]:
    """later: the changes since, the newest first."""
    record, revision, until = row.record, row.revision, FOR_EVER
    for change in later:
        if change.revision != revision:
            # The clock of another host gave a later change an earlier time: then all before it are earlier as well.
            break
        revision -= 1
        previous = change.previous or {}
        replaced = {name: previous[name] for name in COUNTED_FIELDS if name in previous}
        if replaced:
            since = min(change.committed_at, until)
            yield Version(since, until, record)
            record, until = {**record, **replaced}, since
    yield Version(0, until, record)
