"""Another index beside the index (fleetlight.indexer.reconcile.reconcile): for what no cell can give.

The stores compare digests, so copying costs what differs, and copying once more, while writing is paused, costs next to
nothing. What changes meanwhile is not waited for: it is copied the next time.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from fleetlight.cells.batched import batched
from fleetlight.indexer.backends.base import BareDocument, Document, IndexWriter, Rejection, is_time
from fleetlight.indexer.reconcile.differences import Difference, DifferenceKind
from fleetlight.indexer.reconcile.ranges import IndexRanges, differing
from fleetlight.indexer.reconcile.reconcile import Comparison, DifferenceBatch, reconcile
from fleetlight.indexer.transform.documents import remade

_BATCH = 500


def copy_differing(
    source: IndexWriter,
    target: IndexWriter,
    cell_uuid: str,
    *,
    horizon: int,
    external: bool,
    on_step: Callable[[], None],
) -> Mapping[str, str]:
    """Give `target` the searchable documents of the cell that `source` has, and take away those that it has not.

    horizon: those that are forgotten at it (fleetlight.query.retention) are left alone.
    external: those that come from notifications without a revision; else all others. A row that `target` has from the
    cell itself stays: the cell knows it better. on_step: called between two requests.
    Returns what `target` did not take, by uuid, and why; what it took is not searchable yet. Raises what the two
    writers raise.
    """
    comparison = CopyComparison(
        IndexRanges(source, cell_uuid, horizon, external), IndexRanges(target, cell_uuid, horizon, external)
    )
    batches = reconcile(comparison, repair=True, on_step=on_step, is_searched=False)
    return {each.uuid: each.problem for batch in batches for each in batch if each.problem is not None}


def copy_bare(
    batches: Iterable[Sequence[BareDocument]], target: IndexWriter, cell_uuid: str, on_step: Callable[[], None]
) -> Mapping[str, str]:
    """The same for an index that cannot be compared, all of it: documents are made anew from their fields."""
    rejected: list[Rejection] = []
    for batch in batches:
        documents = [remade(cell_uuid, bare) for bare in batch]
        known = target.read([document.id for document in documents])
        from_cells = {uuid for uuid, document in known.items() if not is_time(document.version)}
        rejected += target.write([document for document in documents if document.id not in from_cells]).rejected
        on_step()
    return {rejection.document.id: rejection.reason for rejection in rejected}


class CopyComparison(Comparison):
    """Of two indexes: `source` is right. The writers of both have checked which cell an instance lives in."""

    def __init__(self, source: IndexRanges, target: IndexRanges) -> None:
        super().__init__(target.index)
        self._source = source
        self._target = target

    def found(self, on_step: Callable[[], None]) -> Iterator[DifferenceBatch]:
        for uuids in differing(self._source, self._target, self.seen, on_step):
            for batch in batched(uuids, _BATCH):
                yield self._look(batch)
                on_step()

    def _look(self, uuids: Sequence[str]) -> DifferenceBatch:
        documents, known = self._source.index.read(uuids), self._target.index.read(uuids)
        found: list[tuple[Difference, Document | None]] = []
        for uuid in uuids:
            document, old = self._compared(documents.get(uuid)), self._compared(known.get(uuid))
            revision, version = (None if each is None else each.version for each in (document, old))
            # Another document than those that are compared is in its place, and stays.
            is_taken = old is None and uuid in known
            if revision != version and not is_taken:
                kind = DifferenceKind.MISSING if old is None else DifferenceKind.CHANGED
                kind = DifferenceKind.ONLY_IN_INDEX if document is None else kind
                found.append((Difference(uuid, kind, revision, version), document))
        return DifferenceBatch([each for each, _ in found], [document for _, document in found if document is not None])

    def _compared(self, document: Document | None) -> Document | None:
        """The document, if it is one of those that are compared."""
        if document is None or document.cell_uuid != self._source.cell_uuid:
            return None
        return document if is_time(document.version) is self._source.external else None
