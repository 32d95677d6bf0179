"""Documents of the rows of a cell that counts no revisions, as those of Nova; pure.

A row is as new as the moment before it was read, which its adapter gives it as revision. So a row that was read after a
notification had come says at least as much as the notification, however old what that shows may be; a notification by
itself is only believed while its cell cannot be read (fleetlight.indexer.transform.documents.merge). See
docs/decisions/0013.
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
    """The document of an instance whose row was looked for after `changes` had come; None: it stays as it is.

    A row that is hidden makes no document: while an instance moves between cells both have a row of it, and that of the
    other one is shown. Which of the two is read first says nothing then (fleetlight.indexer.reconcile.external_cell has
    the rest).
    existing: the document that was there before that. row: None if the cell has none. kept: see `kept_fields`.
    """
    own = existing if existing is not None and existing.cell_uuid == cell_uuid else None
    if row is None:
        # Another cell's, which shares the bus; or archived, and what is there says all that will ever be known. Its
        # end may still be news.
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
    """Of a row that is too damaged to say: no."""
    try:
        return bool(row.record["hidden"])
    except UnreadableRowError:
        return False


def _extra(own: Document | None, changes: Sequence[ExternalChange]) -> Extra | None:
    extra = own.extra if own is not None else None
    for change in sorted(changes, key=lambda change: change.version):
        extra = merged(extra, change.extra)
    return extra
