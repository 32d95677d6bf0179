"""Compares a cell without revisions with the index (fleetlight.indexer.reconcile.reconcile), by reading all its rows.

The version of a row is the moment before it was read. This is higher than its document's version, so the repair never
waits for a row, and removes nothing to make room. Counting cannot prove that the index of such a cell is complete; it
is complete as of the moment before the last comparison began (docs/decisions/0013). A document marked as deleted stays
when its row is gone, since Nova archives deleted rows, and `index.deleted_retention` is about them.
"""

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace

import structlog

from fleetlight.cells.batched import batched
from fleetlight.cells.errors import CellUnreachableError
from fleetlight.cells.model import CellAdapter, InstanceRow, PartialRows
from fleetlight.indexer.backends.base import Document, IndexWriter, Rejection
from fleetlight.indexer.reconcile.differences import Difference, DifferenceKind
from fleetlight.indexer.reconcile.ranges import IndexRanges, beside_rows, ignore
from fleetlight.indexer.reconcile.reconcile import Comparison, DifferenceBatch, reconcile
from fleetlight.indexer.reconcile.retention import load_horizons
from fleetlight.indexer.transform.external_rows import is_hidden, settle
from fleetlight.indexer.writing.journaling import CellJournal, JournalingWriter
from fleetlight.indexer.writing.ownership import KnowsOwners, OwnWriter, deployment_of, followed_homes
from fleetlight.indexer.writing.rereading import rows_of
from fleetlight.indexer.writing.retrying_writer import WritesAndReads
from fleetlight.query.page import PageRequest
from fleetlight.resources.clock import Clock, system_clock

_log = structlog.get_logger(__name__)

_BATCH = 500
_PAUSE_S = 0.2


@dataclass(frozen=True, slots=True)
class ExternalComparisonResult:
    """The result of a comparison. began_at: in microseconds; the index has everything that the cell had by then.

    deleted: number of deleted rows. written: number of rows that differed. removed: number of documents without a row.
    rejected: why the index refuses a row, by uuid. homeless: hidden rows of instances without a document in the index.
    """

    began_at: int
    rows: int
    deleted: int
    written: int
    removed: int
    rejected: Mapping[str, str]
    homeless: Mapping[str, InstanceRow]


def compare_cell(
    adapter: CellAdapter,
    index: IndexWriter,
    *,
    batch_size: int,
    owners: KnowsOwners | None = None,
    journal: CellJournal | None = None,
    only: Collection[str] | None = None,
    on_progress: Callable[[int], None] = ignore,
    clock: Clock = system_clock,
) -> ExternalComparisonResult:
    """Make the index equal to the cell; this is also how such a cell is synced.

    owners, journal, only: as for ExternalComparison; with `only` the writes are not made searchable.
    on_progress: receives the number of rows so far after each page; an error that it raises ends the comparison.
    Raises CellUnreachableError, and what the index raises; repairs until then stay and do no harm.
    """
    began_at = clock()
    comparison = ExternalComparison(adapter, index, batch_size=batch_size, owners=owners, journal=journal, only=only)
    rejected: dict[str, str] = {}
    written = removed = 0

    def on_step() -> None:
        on_progress(comparison.seen.rows)

    for batch in reconcile(comparison, repair=True, on_step=on_step, is_searched=only is None):
        rejected |= {each.uuid: each.problem for each in batch if each.problem is not None}
        gone = sum(each.kind is DifferenceKind.ONLY_IN_INDEX for each in batch)
        removed += gone
        written += sum(each.is_repaired for each in batch) - gone
    seen = comparison.seen
    return ExternalComparisonResult(began_at, seen.rows, seen.deleted, written, removed, rejected, comparison.homeless)


class UnindexedMoves:
    """Hidden rows of instances without a document in the index, until it is known whether there must be one.

    Cells of a deployment are read one after the other. An instance that moves between two of them meanwhile may be
    hidden in both, so the index may lack it until its home cell was read after its row was seen here. seen_at: when
    each row was first seen, by uuid, in microseconds; it is added to. Calls raise CellUnreachableError, and what the
    index raises.
    """

    def __init__(self, adapter: CellAdapter, index: IndexWriter, owners: KnowsOwners, seen_at: dict[str, int]) -> None:
        self._adapter = adapter
        self._index = index
        self._owners = owners
        self._seen_at = seen_at
        # Instances that lived here at the last look.
        self._arrived: set[str] = set()

    def unsettled(self, rows: Collection[InstanceRow]) -> Mapping[str, str]:
        """Why the index may lack an instance, by uuid. rows: hidden ones of instances without a document."""
        if not rows:
            return {}
        deployment, uuids = deployment_of(self._adapter), [row.uuid for row in rows]
        homes = followed_homes(deployment, self._owners, uuids)
        here = set(deployment.confirm_here(uuids)) if deployment is not None else set()
        # If it moved here between the reading of its row and of its mapping, it is visible at the next reading.
        arrived, self._arrived = here - self._arrived, here
        progress = self._index.load_progress()
        reasons: dict[str, str] = {}
        for row in rows:
            seen_at = self._seen_at.setdefault(row.uuid, row.revision)
            home = homes.get(row.uuid)
            known = None if home is None else progress.get(home)
            is_read = known is not None and known.is_complete and known.fresh_as_of > seen_at
            if row.uuid in arrived:
                reasons[row.uuid] = "it was hidden, and lives here by now"
            elif home is not None and not is_read:
                reasons[row.uuid] = f"it is hidden, and cell {home}, where it lives, was not read since"
        return reasons


class ExternalRows:
    """Makes documents of the rows of a cell without revisions; raises what adapter, writer and `moves` raise."""

    def __init__(self, adapter: CellAdapter, writer: WritesAndReads, moves: UnindexedMoves | None = None) -> None:
        """moves: says which hidden rows cannot be left out yet; None if the caller checks that."""
        self._moves = moves
        self._adapter = adapter
        self._writer = writer
        self._cell_uuid = adapter.cell.uuid
        self._kept = adapter.cell.can.unknown_fields

    def documents(self, rows: Collection[InstanceRow]) -> tuple[list[Document], list[Rejection]]:
        """The documents to write; a row on which this program fails is a rejection."""
        return self.beside(rows, self._writer.read([row.uuid for row in rows]))

    def beside(
        self, rows: Collection[InstanceRow], existing: Mapping[str, Document]
    ) -> tuple[list[Document], list[Rejection]]:
        """As `documents`, with the existing documents already read."""
        overtaken = [row.uuid for row in rows if row.uuid in existing and existing[row.uuid].version >= row.revision]
        # Another process has written them since the rows were read, or the clock of a host is ahead.
        again = rows_of(self._adapter, overtaken)
        documents: list[Document] = []
        rejected: list[Rejection] = []
        if self._moves is not None:
            homeless = {row.uuid: row for row in rows if row.uuid not in existing and is_hidden(row)}
            unsettled = self._moves.unsettled(homeless.values())
            rejected += [Rejection(_without_view(homeless[uuid]), reason) for uuid, reason in unsettled.items()]
        for row in rows:
            newest = again.get(row.uuid, row)
            try:
                document = settle(self._cell_uuid, existing.get(row.uuid), newest, kept=self._kept)
            except Exception as error:  # noqa: BLE001  # the fault is in this row
                rejected.append(Rejection(_without_view(row), f"{type(error).__name__}: {error}"))
            else:
                if document is not None:
                    documents.append(document)
        return documents, rejected


class ExternalComparison(Comparison):
    """Compares a cell without revisions; calls raise CellUnreachableError, and what the index raises.

    confirm_timeout_s: how long a difference may be due to changes under way; None repairs each difference when it is
    found, which does not harm changes that arrive meanwhile. owners: knows the cell of each instance; None if all rows
    are the cell's own. journal: of the cell; receives the repairs; None for no journal. only: instances that may
    differ; None for all. homeless: hidden rows of instances without a document, if differences are repaired
    (UnindexedMoves).
    """

    def __init__(
        self,
        adapter: CellAdapter,
        index: IndexWriter,
        *,
        batch_size: int,
        owners: KnowsOwners | None = None,
        journal: CellJournal | None = None,
        only: Collection[str] | None = None,
        confirm_timeout_s: float | None = None,
    ) -> None:
        super().__init__(index)
        self._only = only
        self._adapter = adapter
        self._cell_uuid = adapter.cell.uuid
        self._writer: WritesAndReads = index if journal is None else JournalingWriter(index, journal)
        if owners is not None:
            self._writer = OwnWriter(self._writer, self._cell_uuid, owners, deployment_of(adapter), has_rows=True)
        self._journal = journal
        self._owners = owners
        self.homeless: dict[str, InstanceRow] = {}
        self._rows = ExternalRows(adapter, self._writer)
        horizon = load_horizons(index).get(self._cell_uuid, 0)
        self._ranges = IndexRanges(index, self._cell_uuid, horizon, external=True)
        self._batch_size = batch_size
        self._confirm_timeout_s = confirm_timeout_s

    def found(self, on_step: Callable[[], None]) -> Iterator[DifferenceBatch]:
        """Yield differences page by page, or, with a timeout to confirm them, when all rows have been read."""
        if self._only is not None:
            return self._among(self._only, on_step)
        if self._confirm_timeout_s is None:
            return self._at_first_sight(on_step)
        uuids = [each.uuid for found in self._at_first_sight(on_step) for each in found.differences]
        return self._still_differing(uuids, time.monotonic() + self._confirm_timeout_s, on_step)

    def differing_among(self, uuids: Collection[str]) -> Sequence[Difference]:
        """The differences among these instances, by content, without repairing them."""
        return self._look_for(uuids).differences

    def remove(self, versions: Mapping[str, int]) -> None:
        """Remove documents, and record the removals in the journal."""
        if self._journal is not None:
            self._journal.record_deleted(self.index.read(versions).values())
        self.index.remove(versions)

    def write(self, found: DifferenceBatch, _own: Set[str]) -> Mapping[str, str]:
        """Write documents. The writer refuses those of other cells (fleetlight.indexer.writing.ownership), and nothing
        is removed to make room.
        """
        problems = {each.uuid: each.problem for each in found.differences if each.problem is not None}
        rejected = self._writer.write(found.documents).rejected if found.documents else ()
        return problems | {rejection.document.id: rejection.reason for rejection in rejected}

    def _at_first_sight(self, on_step: Callable[[], None]) -> Iterator[DifferenceBatch]:
        hidden: list[str] = []
        for rows, only_in_index in beside_rows(self._read_page, self._ranges, self._batch_size, self.seen, _is_shown):
            by_uuid = {row.uuid: row for row in rows if _is_shown(row)}
            hidden += [row.uuid for row in rows if row.uuid not in by_uuid]
            yield self._look(by_uuid, self._writer.read(by_uuid.keys()) if by_uuid else {})
            for batch in batched(only_in_index, _BATCH):
                documents = self._writer.read(batch)
                is_surplus = {uuid: self._is_surplus(document, None) for uuid, document in documents.items()}
                yield self._look_for([uuid for uuid in batch if is_surplus.get(uuid, True)])
            on_step()
        # Hidden rows come last, since an instance that moved may have been hidden in both cells when they were read.
        yield from self._among(hidden, on_step)

    def _among(self, uuids: Collection[str], on_step: Callable[[], None]) -> Iterator[DifferenceBatch]:
        for batch in batched(uuids, _BATCH):
            yield self._look_for(batch)
            on_step()

    def _read_page(self, request: PageRequest) -> Sequence[InstanceRow]:
        """Read a page. Raises CellUnreachableError if rows may be missing, since the index could not be complete."""
        rows = self._adapter.read_page(request)
        if isinstance(rows, PartialRows):
            raise CellUnreachableError(self._adapter.cell.name, rows.lacks)
        return rows

    def _still_differing(
        self, uuids: Sequence[str], deadline_s: float, on_step: Callable[[], None]
    ) -> Iterator[DifferenceBatch]:
        for batch in batched(sorted(uuids), _BATCH):
            found = self._look_for(batch)
            while found.differences and time.monotonic() < deadline_s:
                on_step()
                time.sleep(_PAUSE_S)
                found = self._look_for([difference.uuid for difference in found.differences])
            yield found

    def _is_surplus(self, document: Document, row: InstanceRow | None) -> bool:
        """Whether the index has this document although the cell has no visible row for it."""
        # A document that has moved to another cell meanwhile belongs there.
        if document.cell_uuid != self._cell_uuid:
            return False
        return not document.record["deleted"] if row is None else is_hidden(row)

    def _look_for(self, uuids: Collection[str]) -> DifferenceBatch:
        """The differences among these instances, whether they have rows or not."""
        # Read documents first: what is written after that has a higher version, and is not removed.
        documents = self._writer.read(uuids) if uuids else {}
        rows = rows_of(self._adapter, uuids)
        found = self._look(rows, documents)
        surplus = {uuid: each for uuid, each in documents.items() if self._is_surplus(each, rows.get(uuid))}
        if self._confirm_timeout_s is None:
            self.homeless |= {uuid: row for uuid, row in rows.items() if uuid not in documents and is_hidden(row)}
            homes = followed_homes(deployment_of(self._adapter), self._owners, surplus)
            surplus = {uuid: each for uuid, each in surplus.items() if uuid not in homes or each.record["hidden"]}
        only_there = [
            Difference(uuid, DifferenceKind.ONLY_IN_INDEX, None, each.version) for uuid, each in surplus.items()
        ]
        only_there += [
            Difference(uuid, DifferenceKind.ONLY_IN_INDEX, None, version)
            for uuid, version in self._unreadable(set(uuids) - documents.keys() - rows.keys()).items()
        ]
        return DifferenceBatch([*found.differences, *only_there], found.documents)

    def _unreadable(self, uuids: Collection[str]) -> Mapping[str, int]:
        """Versions of unreadable documents of the cell among these: another program wrote them, for no row."""
        found = dict(self.index.versions(uuids))
        return found and {uuid: found[uuid] for uuid in self._ranges.revisions(sorted(found)) if uuid in found}

    def _look(self, rows: Mapping[str, InstanceRow], existing: Mapping[str, Document]) -> DifferenceBatch:
        wanted, rejected = self._rows.beside(rows.values(), existing)
        differences = [_difference(document, existing.get(document.id)) for document in wanted]
        differences += [
            replace(_difference(rejection.document, None), problem=rejection.reason) for rejection in rejected
        ]
        return DifferenceBatch(differences, wanted)


def _without_view(row: InstanceRow) -> Document:
    return Document(row.cell_uuid, row.revision, row.record, ())


def _is_shown(row: InstanceRow) -> bool:
    return not is_hidden(row)


def _difference(wanted: Document, existing: Document | None) -> Difference:
    """existing: the document in the index for the instance, if any."""
    if existing is None:
        return Difference(wanted.id, DifferenceKind.MISSING, wanted.version, None)
    if existing.cell_uuid != wanted.cell_uuid:
        kind = DifferenceKind.OTHER_CELL
        return Difference(wanted.id, kind, wanted.version, existing.version, owner=existing.cell_uuid)
    return Difference(wanted.id, DifferenceKind.CHANGED, wanted.version, existing.version)
