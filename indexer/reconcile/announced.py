"""Makes an index and the journal of a cell agree on instances that only notifications from outside announce: the newer
state wins.

A lost or older index gets back what the journal has; a journal that was lost with the fleet database, or never had an
instance, gets what the index has. An instance with a row in the cell, or that belongs to another cell in the index, is
not covered.
"""

from collections.abc import Callable, Collection, Mapping

from fleetlight.cells.batched import batched
from fleetlight.cells.model import InstanceRow
from fleetlight.indexer.backends.base import IndexWriter, is_time
from fleetlight.indexer.reconcile.ranges import IndexRanges
from fleetlight.indexer.writing.announced import AnnouncedStore, of_announced, to_announced
from fleetlight.indexer.writing.retrying_writer import WritesAndReads

_AT_ONCE = 500
_RANGE_LENGTH = 2


def reconcile_announced(
    cell_uuid: str,
    index: IndexWriter,
    writer: WritesAndReads,
    store: AnnouncedStore,
    read_rows: Callable[[Collection[str]], Mapping[str, InstanceRow]],
    *,
    horizon: int,
    on_step: Callable[[], None],
) -> int:
    """Make index and journal agree; returns how many documents the index got back.

    writer: of the cell; it refuses documents of other cells. read_rows: of the cell. horizon: of its index.
    Raises CellUnreachableError, FleetUnreachableError, and what the index raises.
    """
    store.prune(cell_uuid, horizon)
    kept = dict(store.versions(cell_uuid))
    indexed: dict[str, int] = {}
    ranges = IndexRanges(index, cell_uuid, horizon, external=True)
    for prefix in sorted(ranges.digests([""], _RANGE_LENGTH)):
        indexed |= ranges.revisions([prefix])
        on_step()
    for uuids in batched([uuid for uuid, version in indexed.items() if version > kept.get(uuid, 0)], _AT_ONCE):
        documents = index.read(uuids)
        store.keep(cell_uuid, [to_announced(each) for each in documents.values() if is_time(each.version)])
        # These belong to another program, such as a copy under another id.
        unreadable = index.versions([uuid for uuid in uuids if uuid not in documents])
        index.remove(unreadable)
        for uuid in unreadable:
            del indexed[uuid]
        on_step()
    restored = 0
    for uuids in batched([uuid for uuid, version in kept.items() if version > indexed.get(uuid, 0)], _AT_ONCE):
        there = index.read(uuids)
        known_better = {
            uuid for uuid, each in there.items() if not is_time(each.version) or each.cell_uuid != cell_uuid
        }
        known_better |= read_rows(uuids).keys()
        store.forget(cell_uuid, known_better)
        missing = [uuid for uuid in uuids if uuid not in known_better]
        if missing:
            result = writer.write([of_announced(cell_uuid, each) for each in store.read(cell_uuid, missing)])
            restored += result.applied
        on_step()
    return restored


def altered_announced(
    cell_uuid: str, index: IndexWriter, store: AnnouncedStore, uuids: Collection[str]
) -> Mapping[str, int]:
    """Versions by uuid of documents of announced instances that differ from the journal, or are missing there. Raises
    as `reconcile_announced`.
    """
    kept = {each.instance_uuid: of_announced(cell_uuid, each) for each in store.read(cell_uuid, uuids)}
    return {
        uuid: document.version
        for uuid, document in index.read(uuids).items()
        if document.cell_uuid == cell_uuid and is_time(document.version) and kept.get(uuid) != document
    }


def remove_altered(cell_uuid: str, index: IndexWriter, store: AnnouncedStore, uuids: Collection[str] | None) -> None:
    """Remove documents of announced instances that another program has written; the journal restores them.

    uuids: those that were written; None if it may be any: documents that the journal does not know are then kept.
    """
    for batch in batched(sorted(store.versions(cell_uuid) if uuids is None else uuids), _AT_ONCE):
        index.remove(altered_announced(cell_uuid, index, store, batch))
