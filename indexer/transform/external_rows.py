"""Documents for rows of a cell without revisions, such as Nova's; pure.

The adapter gives a row the moment before it was read as its revision. So a row that was read after a notification
arrived is at least as new as the notification. A notification alone is believed only while its cell is down
(fleetlight.indexer.transform.documents.merge, docs/decisions/0013).
"""

from collections.abc import Collection, Sequence

from fleetlight.cells.errors import UnreadableRowError
from fleetlight.cells.model import InstanceRow
from fleetlight.indexer.backends.base import Document
from fleetlight.indexer.extra_fields import Extra, merged
from fleetlight.indexer.transform.documents import ExternalChange, merge, to_document
from fleetlight.notifications.event_types import INSTANCE_DELETE_END


def settle(
    cell_uuid: str,
    existing: Document | None,
    row: InstanceRow | None,
    changes: Sequence[ExternalChange] = (),
    *,
    kept: Collection[str] = (),
) -> Document | None:
    """The document of an instance whose row was read after `changes` arrived; None if the index keeps its document.

    A hidden row makes no document: while an instance moves between cells, both have a row of it, in any order of
    reading, and the one that is not hidden counts (fleetlight.indexer.reconcile.external_cell).
    existing: the document before the row was read. row: None if the cell has none. kept: fields that rows lack; they
    are taken from changes or the existing document.
    """
    own = existing if existing is not None and existing.cell_uuid == cell_uuid else None
    if row is None:
        # The instance is of another cell on the same bus, or archived: then its document is final, except for a
        # deletion that it does not show yet.
        ends = [change for change in changes if change.event_type == INSTANCE_DELETE_END]
        return merge(cell_uuid, own, ends) if own is not None and ends else None
    if is_hidden(row):
        return None
    record = dict(row.record)
    if existing is not None:
        record |= {name: existing.record[name] for name in kept}
    for change in sorted(changes, key=lambda change: change.version):
        record |= {name: change.carried[name] for name in kept if name in change.carried}
    extra = _extra(own, changes)
    if own is not None and own.record == record and own.extra == extra:
        return None
    version = row.revision if existing is None else max(row.revision, existing.version + 1)
    return to_document(cell_uuid, version, record, extra)


def is_hidden(row: InstanceRow) -> bool:
    """Whether the cell hides the row; False for a damaged one."""
    try:
        return bool(row.record["hidden"])
    except UnreadableRowError:
        return False


def _extra(own: Document | None, changes: Sequence[ExternalChange]) -> Extra | None:
    extra = own.extra if own is not None else None
    for change in sorted(changes, key=lambda change: change.version):
        extra = merged(extra, change.extra)
    return extra
