"""Whether the index has what a cell has that counts no revisions, and making it so; safe while changes arrive.

It is the comparison that follows such a cell (indexer.reconcile.external_comparison); it writes nothing unless asked
to. What differs at first sight may be on its way, so it is looked at again, and only what still differs counts.
"""

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from cells.batched import batched
from cells.digests import RangeDigest
from cells.model import CellAdapter
from indexer.backends.base import Document, IndexWriter, WriteResult
from indexer.reconcile.external_comparison import ExternalRows, compare_cell
from indexer.reconcile.retention import load_horizons
from indexer.reconcile.verify import Difference, DifferenceKind, Verification, ignore_progress
from indexer.writing.compared_index import ComparedIndex
from indexer.writing.journaling import CellJournal, JournalingIndex
from indexer.writing.ownership import KnowsOwners, OwnIndex, confirms_of
from indexer.writing.rereading import rows_of
from resources.clock import Clock, system_clock

_CONFIRMED_AT_ONCE = 500
_PAUSE_S = 0.2


def verify_external_cell(
    adapter: CellAdapter,
    writer: IndexWriter,
    journal: CellJournal,
    owners: KnowsOwners,
    *,
    repair: bool,
    catch_up_timeout_s: float,
    batch_size: int,
    on_progress: Callable[[int, int], None] = ignore_progress,
    clock: Clock = system_clock,
) -> Verification:
    """Compare the cell with its documents, and with `repair` repair what differs.

    journal: of the cell, which is told of what is repaired. owners: where it is known which cell an instance lives in.
    catch_up_timeout_s: how long to wait for what differs to be indexed; waited in vain only once. on_progress: called
    often, with the numbers of rows compared and of differences found so far. clock: of the fleet, as the adapter's is.
    Raises CellUnreachableError, and what the writer raises; what was repaired until then stays and does no harm.
    """
    own = OwnIndex(JournalingIndex(writer, journal), adapter.cell.uuid, owners, confirms_of(adapter))
    index = _WatchedIndex(own, repair=repair)
    horizon = load_horizons(writer).get(adapter.cell.uuid, 0)
    compared = compare_cell(
        adapter,
        index,
        batch_size=batch_size,
        horizon=horizon,
        on_progress=lambda rows: on_progress(rows, len(index.found)),
        clock=clock,
    )
    found = {uuid: Difference(uuid, DifferenceKind.MISSING, None, None) for uuid in compared.rejected} | index.found
    if repair:
        problems = compared.rejected
        differences = [
            replace(each, is_repaired=each.uuid not in problems, problem=problems.get(each.uuid))
            for each in found.values()
        ]
    else:
        differences = _still_differing(adapter, writer, found, catch_up_timeout_s)
    digests = writer.digests(adapter.cell.uuid, [""], 1, horizon=horizon, external=True)
    return Verification(
        rows=compared.rows,
        documents=sum(digest.count for digest in digests.values()),
        external=0,
        differences=tuple(sorted(differences, key=lambda difference: difference.uuid)),
        rows_read=compared.rows,
        has_caught_up=True,
    )


class _WatchedIndex:
    """An index of which it is noted what a comparison wants changed; it is, if that is asked for.

    found: by uuid.
    """

    def __init__(self, writer: ComparedIndex, *, repair: bool) -> None:
        self._writer = writer
        self._repair = repair
        self.found: dict[str, Difference] = {}

    def write(self, documents: Iterable[Document]) -> WriteResult:
        documents = list(documents)
        existing = self._writer.read([document.id for document in documents])
        for document in documents:
            self.found[document.id] = difference_of(document, existing.get(document.id))
        return self._writer.write(documents) if self._repair else WriteResult(0, 0)

    def remove(self, versions: Mapping[str, int]) -> None:
        for uuid, version in versions.items():
            self.found[uuid] = Difference(uuid, DifferenceKind.ONLY_IN_INDEX, None, version)
        if self._repair:
            self._writer.remove(versions)

    def read(self, ids: Collection[str]) -> Mapping[str, Document]:
        return self._writer.read(ids)

    def digests(
        self, cell_uuid: str, prefixes: Sequence[str], length: int, *, horizon: int = 0, external: bool = False
    ) -> Mapping[str, RangeDigest]:
        return self._writer.digests(cell_uuid, prefixes, length, horizon=horizon, external=external)

    def revisions(
        self, cell_uuid: str, prefixes: Sequence[str], *, horizon: int = 0, external: bool = False
    ) -> Mapping[str, int]:
        return self._writer.revisions(cell_uuid, prefixes, horizon=horizon, external=external)

    def make_searchable(self) -> None:
        self._writer.make_searchable()


def difference_of(wanted: Document, existing: Document | None) -> Difference:
    """existing: what the index has in the place of the document that the row makes."""
    if existing is None:
        return Difference(wanted.id, DifferenceKind.MISSING, wanted.version, None)
    if existing.cell_uuid != wanted.cell_uuid:
        kind = DifferenceKind.OTHER_CELL
        return Difference(wanted.id, kind, wanted.version, existing.version, owner=existing.cell_uuid)
    return Difference(wanted.id, DifferenceKind.CHANGED, wanted.version, existing.version)


def _still_differing(
    adapter: CellAdapter, writer: IndexWriter, found: Mapping[str, Difference], timeout_s: float
) -> list[Difference]:
    deadline_s = time.monotonic() + timeout_s
    remaining: list[Difference] = []
    for batch in batched(sorted(found), _CONFIRMED_AT_ONCE):
        differing = _differing_now(adapter, writer, batch)
        while differing and time.monotonic() < deadline_s:
            time.sleep(_PAUSE_S)
            differing = _differing_now(adapter, writer, [difference.uuid for difference in differing])
        remaining += differing
    return remaining


def _differing_now(adapter: CellAdapter, writer: IndexWriter, uuids: Sequence[str]) -> list[Difference]:
    rows = rows_of(adapter, uuids)
    wanted, rejected = ExternalRows(adapter, writer).documents(list(rows.values()))
    existing = writer.read(uuids)
    differing = [difference_of(document, existing.get(document.id)) for document in wanted]
    for rejection in rejected:
        differing.append(replace(difference_of(rejection.document, None), problem=rejection.reason))
    for uuid, document in existing.items():
        is_own = document.cell_uuid == adapter.cell.uuid
        if uuid not in rows and is_own and not document.record["deleted"]:
            differing.append(Difference(uuid, DifferenceKind.ONLY_IN_INDEX, None, document.version))
    return differing
