"""Documents of a cell from one physical index into another one, where the two differ: for what no cell can be asked of.

The stores compare digests, so copying costs what differs, and copying once more, while nobody writes, costs next to
nothing.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from cells.batched import batched
from cells.digests import RangeDigest
from indexer.backends.base import BareDocument, Document, IndexWriter, Rejection, is_time
from indexer.reconcile.comparison import Comparison, differing
from indexer.transform.documents import remade

_BATCH = 500


@dataclass(frozen=True, slots=True)
class _Side:
    """One index as it is compared (indexer.reconcile.comparison.Comparable)."""

    writer: IndexWriter
    cell_uuid: str
    horizon: int
    external: bool

    def digests(self, prefixes: Sequence[str], length: int) -> Mapping[str, RangeDigest]:
        return self.writer.digests(self.cell_uuid, prefixes, length, horizon=self.horizon, external=self.external)

    def revisions(self, prefixes: Sequence[str]) -> Mapping[str, int]:
        return self.writer.revisions(self.cell_uuid, prefixes, horizon=self.horizon, external=self.external)

    def of(self, document: Document | None) -> Document | None:
        """The document, if it is one of those that are compared."""
        if document is None or document.cell_uuid != self.cell_uuid or is_time(document.version) is not self.external:
            return None
        return document


def copy_differing(
    source: IndexWriter,
    target: IndexWriter,
    cell_uuid: str,
    *,
    horizon: int,
    external: bool,
    on_step: Callable[[], None],
) -> list[Rejection]:
    """Give `target` the searchable documents of the cell that `source` has, and take away those that it has not.

    horizon: those that are forgotten at it (query.retention) are left alone.
    external: those that come from notifications without a revision; else all others. A row that `target` has from the
    cell itself stays: the cell knows it better. on_step: called between two requests.
    Returns what `target` did not take. Raises what the two writers raise.
    """
    rejected: list[Rejection] = []
    one, other = (_Side(writer, cell_uuid, horizon, external) for writer in (source, target))
    for uuids in differing(one, other, Comparison(), on_step):
        for batch in batched(uuids, _BATCH):
            rejected += _copy(batch, one, other)
            on_step()
    return rejected


def copy_bare(
    batches: Iterable[Sequence[BareDocument]], target: IndexWriter, cell_uuid: str, on_step: Callable[[], None]
) -> list[Rejection]:
    """The same for an index that cannot be compared, all of it: documents are made anew from their fields."""
    rejected: list[Rejection] = []
    for batch in batches:
        documents = [remade(cell_uuid, bare) for bare in batch]
        known = target.read([document.id for document in documents])
        from_cells = {uuid for uuid, document in known.items() if not is_time(document.version)}
        rejected += target.write([document for document in documents if document.id not in from_cells]).rejected
        on_step()
    return rejected


def _copy(uuids: Sequence[str], source: _Side, target: _Side) -> Sequence[Rejection]:
    documents, known = source.writer.read(uuids), target.writer.read(uuids)
    copies: list[Document] = []
    in_the_way: dict[str, int] = {}
    for uuid in uuids:
        document, old = source.of(documents.get(uuid)), target.of(known.get(uuid))
        if old is not None and (document is None or document.version < old.version):
            in_the_way[uuid] = old.version
        if document is not None and (old is not None or uuid not in known):
            copies.append(document)
    target.writer.remove(in_the_way)
    return target.writer.write(copies).rejected
