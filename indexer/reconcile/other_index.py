"""Copies documents that no cell can give from another index (fleetlight.indexer.reconcile.reconcile).

The stores compare digests, so a copy costs as much as differs, and a second copy, while writing is paused, next to
nothing. A copy does not wait for changes that arrive meanwhile: the next one has them.
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
    """Copy the searchable documents of the cell from `source` to `target`, and remove those that `source` lacks.

    horizon: documents that are forgotten at it (fleetlight.query.retention) stay as they are.
    external: copy documents of notifications without a revision; False: all others. A row that `target` has from the
    cell itself stays, since the cell knows it better. on_step: called between two requests.
    Returns why `target` rejected a document, by uuid; the others are not searchable yet. Raises what the writers raise.
    """
    comparison = CopyComparison(
        IndexRanges(source, cell_uuid, horizon, external), IndexRanges(target, cell_uuid, horizon, external)
    )
    batches = reconcile(comparison, repair=True, on_step=on_step, is_searched=False)
    return {each.uuid: each.problem for batch in batches for each in batch if each.problem is not None}


def copy_bare(
    batches: Iterable[Sequence[BareDocument]], target: IndexWriter, cell_uuid: str, on_step: Callable[[], None]
) -> Mapping[str, str]:
    """Copy all documents of an index that cannot be compared; each is made anew from its fields. Returns and raises as
    `copy_differing`.
    """
    rejected: list[Rejection] = []
    for batch in batches:
        documents = [remade(cell_uuid, bare) for bare in batch]
        known = target.read([document.id for document in documents])
        from_cells = {uuid for uuid, document in known.items() if not is_time(document.version)}
        rejected += target.write([document for document in documents if document.id not in from_cells]).rejected
        on_step()
    return {rejection.document.id: rejection.reason for rejection in rejected}


class CopyComparison(Comparison):
    """Compares two indexes; `source` is right. Their writers have already checked the cell of each instance."""

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
            # A document of the other sort has this uuid in the target, and stays.
            is_taken = old is None and uuid in known
            if revision != version and not is_taken:
                kind = DifferenceKind.MISSING if old is None else DifferenceKind.CHANGED
                kind = DifferenceKind.ONLY_IN_INDEX if document is None else kind
                found.append((Difference(uuid, kind, revision, version), document))
        return DifferenceBatch([each for each, _ in found], [document for _, document in found if document is not None])

    def _compared(self, document: Document | None) -> Document | None:
        """The document, if it is of the cell and of the sort that is compared; None otherwise."""
        if document is None or document.cell_uuid != self._source.cell_uuid:
            return None
        return document if is_time(document.version) is self._source.external else None
