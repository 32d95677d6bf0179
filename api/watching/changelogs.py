"""What one cell's changelog says has changed. Everything here blocks, and raises CellUnreachableError."""

from collections.abc import Sequence
from dataclasses import dataclass

from cells.errors import CellUnreachableError
from cells.lineage import Position
from cells.model import NO_REVISION, CellAdapter, Change, ChangelogAdapter, InstanceRow
from indexer.transform.native_messages import read_record

_BATCH_SIZE = 500


@dataclass(frozen=True, slots=True)
class ChangedInstance:
    """What a cell's changelog says up to `position`. row: the instance after it; None when it is about none."""

    cell_uuid: str
    position: Position
    row: InstanceRow | None


@dataclass(frozen=True, slots=True)
class Reading:
    """changes: in order. reached: up to where they go. has_more: whether there were more when it was read."""

    changes: Sequence[ChangedInstance]
    reached: Position
    has_more: bool


def newest_position(adapter: CellAdapter) -> Position:
    """Up to where the cell has numbered its changes."""
    return _changelog_of(adapter).position()


def read_on(adapter: CellAdapter, after: Position) -> Reading | None:
    """The changes that follow `after`, a batch.

    None when nobody can tell what happened since: the changelog was pruned, or the cell was restored from a backup and
    `after` is in a future that it does not have any more.
    """
    log = _changelog_of(adapter)
    now = log.position()
    if now == after:
        return Reading((), after, has_more=False)
    if now.sequence < after.sequence or not _is_past_of(log, after, now):
        return None
    # What is numbered from now on may be of a later incarnation, and is read the next time.
    changes = [change for change in log.changes_after(after.sequence, _BATCH_SIZE) if change.sequence <= now.sequence]
    if [change.sequence for change in changes[:1]] != [after.sequence + 1][: now.sequence - after.sequence]:
        return None
    changed = [_changed(log, change, Position(now.incarnation, change.sequence)) for change in changes]
    reached = changed[-1].position if changed else now
    return Reading(changed, reached, has_more=reached != now)


def _is_past_of(log: ChangelogAdapter, after: Position, now: Position) -> bool:
    """Whether the change that `after` names is part of what happened before `now`."""
    # Before the first incarnation nothing had a number: everything comes after that.
    is_same = after.incarnation in {None, now.incarnation}
    return is_same or log.lineage().contains(str(after.incarnation), after.sequence)


def _changelog_of(adapter: CellAdapter) -> ChangelogAdapter:
    if isinstance(adapter, ChangelogAdapter):
        return adapter
    raise CellUnreachableError(adapter.cell.name, f"nothing numbers the changes of cells of kind '{adapter.cell.kind}'")


def _changed(log: ChangelogAdapter, change: Change, position: Position) -> ChangedInstance:
    row: InstanceRow | None = None
    if change.revision != NO_REVISION and change.instance_uuid:
        record = read_record(change.message)
        # What a newer version of us has written, the cell itself can tell.
        row = log.find(change.instance_uuid) if record is None else InstanceRow(log.cell.uuid, change.revision, record)
    return ChangedInstance(log.cell.uuid, position, row)
