"""Compares a cell that numbers its changes with the index (fleetlight.indexer.reconcile.reconcile), by revisions.

Lag does not count as a difference: the comparison reads rows, waits until the index has every change that the cell had
announced by then, and only then reads documents. Documents of external notifications are no rows of the cell: the
comparison counts them separately, and removes one only if it prevents the index from taking a row.
"""

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass

from fleetlight.cells.batched import batched
from fleetlight.cells.counting import count_rows
from fleetlight.cells.digests import RangeDigest
from fleetlight.cells.errors import UnreadableRowError
from fleetlight.cells.model import ChangelogAdapter, InstanceRow
from fleetlight.indexer.backends.base import Document, IndexWriter, is_time
from fleetlight.indexer.reconcile.differences import Difference, DifferenceKind
from fleetlight.indexer.reconcile.ranges import IndexRanges, beside_rows, differing, pages_of_rows
from fleetlight.indexer.reconcile.reconcile import Comparison, DifferenceBatch, WarnedLists
from fleetlight.indexer.reconcile.retention import load_horizons
from fleetlight.indexer.writing.kept_extras import ExtraFieldKeeper
from fleetlight.indexer.writing.ownership import KnowsOwners
from fleetlight.indexer.writing.rereading import render_rows, rows_of
from fleetlight.indexer.writing.retrying_writer import WritesAndReads
from fleetlight.query.counts import CountRequest
from fleetlight.query.evaluate import matcher
from fleetlight.query.filters import And, Eq
from fleetlight.query.retention import forgotten, remembered
from fleetlight.resources.instance import INSTANCE_FIELDS

_BATCH = 500
_PREFIXES_AT_ONCE = 100
_SOMETHING_ELSE = "the index has something else in its place"
_PAUSE_S = 0.05


class NativeComparison(Comparison):
    """Compares a native cell; calls raise CellUnreachableError, and what owners and writer raise.

    catch_up_timeout_s: how long to wait for the index to get as far as the cell; after one timeout it waits no more.
    extras: knows fields that no row has (fleetlight.indexer.writing.kept_extras); the writer by default.
    owners: knows the cell of each instance; None if all rows are the cell's own.
    contents_at_once: compare every row by content, in pages of this size, since equal revisions may not mean equal
        rows; None: compare digests of revisions, and by content only instances that differ in them.
    first: instances known to differ, compared by content before all others.
    pause: as for WarnedLists; None if no list relies on the cell.
    """

    def __init__(
        self,
        adapter: ChangelogAdapter,
        writer: IndexWriter,
        *,
        catch_up_timeout_s: float,
        extras: WritesAndReads | None = None,
        owners: KnowsOwners | None = None,
        contents_at_once: int | None = None,
        first: Collection[str] = (),
        pause: Callable[[float], object] | None = None,
    ) -> None:
        super().__init__(writer, None if pause is None else WarnedLists(writer, adapter.cell.uuid, pause))
        self._adapter = adapter
        self._writer = writer
        self._keeper = ExtraFieldKeeper(writer, extras or writer)
        self._cell_uuid = adapter.cell.uuid
        self._catch_up_timeout_s = catch_up_timeout_s
        self._owners = owners
        self._contents_at_once = contents_at_once
        self._first = frozenset(first)
        # Nothing is purged by a later horizon meanwhile: a purge waits for the lease that the caller holds.
        self._horizon = load_horizons(writer).get(self._cell_uuid, 0)
        self._index = IndexRanges(writer, self._cell_uuid, self._horizon, external=False)
        self._is_forgotten = matcher(forgotten(self._horizon), INSTANCE_FIELDS)

    def found(self, on_step: Callable[[], None]) -> Iterator[DifferenceBatch]:
        for suspects in self._suspects(on_step):
            for batch in batched(suspects, _BATCH):
                if confirmed := self._confirmed(batch):
                    yield DifferenceBatch(confirmed)
                on_step()
        self.seen.external = self._writer.count_external(self._cell_uuid)

    def differing_among(self, uuids: Collection[str]) -> Sequence[Difference]:
        """The differences among these instances, by content, without repairing them."""
        return self._confirmed(sorted(uuids))

    def count_deleted(self) -> int:
        """The number of deleted rows, by a count in the cell, since digests do not show it."""
        is_deleted = And((Eq("deleted", True), remembered(self._horizon)))
        return sum(count_rows(self._adapter, CountRequest(is_deleted, INSTANCE_FIELDS)).groups.values())

    def living_elsewhere(self, uuids: Collection[str]) -> Mapping[str, str]:
        return {} if self._owners is None else self._owners.living_elsewhere(self._cell_uuid, uuids)

    def write(self, found: DifferenceBatch, own: Set[str]) -> Mapping[str, str]:
        uuids = {difference.uuid for difference in found.differences}
        reasons, remaining = self._write_rows(uuids, own)
        # The index keeps the version of a removed document for a while, and refuses a row that is not newer.
        gone = {each.uuid: each.revision for each in remaining if each.kind is DifferenceKind.MISSING}
        forgettable = {uuid: revision for uuid, revision in gone.items() if revision and uuid in own - reasons.keys()}
        if forgettable:
            self.index.remove(forgettable)
            again, still = self._write_rows(forgettable.keys(), own)
            reasons |= again
            remaining = [each for each in remaining if each.uuid not in forgettable] + list(still)
        return {each.uuid: reasons.get(each.uuid) or _SOMETHING_ELSE for each in remaining}

    def _write_rows(self, uuids: Collection[str], own: Collection[str]) -> tuple[dict[str, str], Sequence[Difference]]:
        """Returns why rows of `own` are rejected, by uuid, and the differences that remain."""
        # Read them again: the index refused changes that arrived while the old document was still there.
        rows = self._rows(uuids)
        documents, rejected = render_rows([row for uuid, row in rows.items() if uuid in own])
        rejected += self._keeper.write(documents).rejected
        self._writer.make_searchable()
        return {each.document.id: each.reason for each in rejected}, self._differing_now(uuids, rows)

    def _suspects(self, on_step: Callable[[], None]) -> Iterator[Sequence[str]]:
        if self._first:
            yield sorted(self._first)
        for suspects in self._suspects_of_all(on_step):
            yield [uuid for uuid in suspects if uuid not in self._first]

    def _suspects_of_all(self, on_step: Callable[[], None]) -> Iterator[Sequence[str]]:
        index = self._index
        if self._contents_at_once is None:
            yield from differing(_RowsOfCell(self._adapter, self._horizon), index, self.seen, on_step)
            return
        for rows, only_in_index in beside_rows(self._adapter.read_page, index, self._contents_at_once, self.seen):
            yield [*self._differing_in(rows), *only_in_index]
            on_step()

    def differing_in_range(self, prefix: str, on_step: Callable[[], None]) -> Iterator[Sequence[str]]:
        """Yield the instances whose uuid begins with `prefix` that differ at first sight, by digests."""
        yield from differing(_RowsOfCell(self._adapter, self._horizon), self._index, self.seen, on_step, prefix)

    def differing_in_page(self, after: str | None, size: int) -> tuple[Sequence[str], str | None]:
        """Returns which of the next `size` rows after the uuid `after` differ at first sight, by content, and the last
        uuid; None if no row follows. Documents without a row are left to digests.
        """
        position = None if after is None else (after,)
        rows, is_last = next(pages_of_rows(self._adapter.read_page, remembered(self._horizon), size, position))
        return self._differing_in(rows), None if is_last else rows[-1].uuid

    def look(self, uuids: Collection[str]) -> "Suspects":
        """Read suspected instances in the cell, and the sequence that the index must reach before they count."""
        rows = self._rows(uuids)
        # Read the sequence after the rows: each numbered change that they contain has at most this one.
        unnumbered = frozenset(self._adapter.unnumbered(uuids))
        return Suspects(frozenset(uuids) - unnumbered, unnumbered, rows, self._adapter.published_sequence())

    def differing_of(self, suspects: "Suspects") -> Sequence[Difference]:
        """The suspects that differ. Call it when the index has reached their sequence; instances whose mapping names
        another cell count only if the cell has no row of them.
        """
        found = self._differing_now(suspects.uuids, suspects.rows)
        elsewhere = self.living_elsewhere([each.uuid for each in found]) if found else {}
        return [each for each in found if each.kind is DifferenceKind.ONLY_IN_INDEX or each.uuid not in elsewhere]

    def _differing_in(self, rows: Sequence[InstanceRow]) -> list[str]:
        by_uuid = {row.uuid: row for row in rows}
        documents = self._documents(by_uuid.keys())
        return [uuid for uuid, row in by_uuid.items() if self._difference(uuid, row, documents.get(uuid))]

    def _confirmed(self, uuids: Sequence[str]) -> list[Difference]:
        """The differences among `uuids` that remain after the index has caught up, or the timeout has passed."""
        found: list[Difference] = []
        deadline_s = time.monotonic() + self._catch_up_timeout_s
        waiting = set(uuids)
        while waiting:
            suspects = self.look(waiting)
            self._wait_for(suspects.sequence, deadline_s)
            if suspects.unnumbered and self.has_caught_up:
                self.has_caught_up = time.monotonic() < deadline_s
            decidable = suspects.uuids if self.has_caught_up else waiting
            found += self._differing_now(decidable, suspects.rows)
            waiting -= decidable
            if waiting:
                time.sleep(_PAUSE_S)
        return sorted(found, key=lambda difference: difference.uuid)

    def _wait_for(self, sequence: int, deadline_s: float) -> None:
        """Wait until every change up to `sequence` is in the index, or until the deadline."""
        while self.has_caught_up:
            progress = self._writer.load_progress().get(self._cell_uuid)
            if (progress.watermark if progress else 0) >= sequence:
                return
            if time.monotonic() >= deadline_s:
                self.has_caught_up = False
                return
            time.sleep(_PAUSE_S)

    def _differing_now(self, uuids: Collection[str], rows: Mapping[str, InstanceRow]) -> list[Difference]:
        """rows: read before the index had caught up with them."""
        documents = self._documents(uuids)
        suspects = {uuid for uuid in uuids if self._difference(uuid, rows.get(uuid), documents.get(uuid)) is not None}
        # The index may have overtaken those rows; a document is too new only if it is newer than the row is now.
        rows_now = self._rows(suspects)
        found = []
        for uuid in suspects:
            row, row_now, document = rows.get(uuid), rows_now.get(uuid), documents.get(uuid)
            difference = self._difference(uuid, row, document)
            if difference is not None and difference.kind in (DifferenceKind.NEWER, DifferenceKind.ONLY_IN_INDEX):
                difference = self._difference(uuid, row_now, document)
                if difference is not None and difference.kind is DifferenceKind.OLDER:
                    # Newer than the row was, and older than it is now: changes are still arriving.
                    difference = None
            if difference is not None:
                found.append(difference)
        return found

    def _difference(self, uuid: str, row: InstanceRow | None, document: Document | None) -> Difference | None:
        is_own = document is not None and document.cell_uuid == self._cell_uuid
        version = None if document is None else document.version
        revision = None if row is None else row.revision
        kind: DifferenceKind | None
        if revision is None:
            is_stray = is_own and version is not None and not is_time(version)
            kind = DifferenceKind.ONLY_IN_INDEX if is_stray else None
        elif version is None or not is_own:
            missing = DifferenceKind.MISSING if version is None else DifferenceKind.OTHER_CELL
            kind = None if row is not None and self._may_be_missing(row) else missing
        elif version == revision:
            kind = DifferenceKind.CHANGED if self._says_something_else(row, document) else None
        else:
            kind = DifferenceKind.OLDER if version < revision else DifferenceKind.NEWER
        owner = document.cell_uuid if document is not None and not is_own else None
        return None if kind is None else Difference(uuid, kind, revision, version, owner=owner)

    def _may_be_missing(self, row: InstanceRow) -> bool:
        try:
            return bool(self._is_forgotten(row.record))
        except UnreadableRowError:
            # The index cannot hold an unreadable row, so lists do miss it.
            return False

    def _says_something_else(self, row: InstanceRow | None, document: Document | None) -> bool:
        if row is None or document is None:
            return False
        wanted, _ = render_rows([row])
        return bool(wanted) and (wanted[0].record, wanted[0].view) != (document.record, document.view)

    def _rows(self, uuids: Collection[str]) -> dict[str, InstanceRow]:
        rows = rows_of(self._adapter, uuids)
        self.seen.rows_read += len(rows)
        return rows

    def _documents(self, uuids: Collection[str]) -> Mapping[str, Document]:
        """Documents by uuid; for an unreadable one, a document with nothing but its uuid and version."""
        documents = self._writer.read(uuids) if uuids else {}
        self.seen.rows_read += len(documents)
        missing = sorted(set(uuids) - documents.keys())
        # A document of another program may name any cell.
        versions = self._writer.versions(missing)
        damaged = {uuid: Document("", version, {"uuid": uuid}, ()) for uuid, version in versions.items()}
        for batch in batched(missing, _PREFIXES_AT_ONCE):
            for uuid, version in self._index.revisions(batch).items():
                damaged[uuid] = Document(self._cell_uuid, version, {"uuid": uuid}, ())
        return {**documents, **damaged}


@dataclass(frozen=True, slots=True)
class Suspects:
    """Instances that differ at first sight.

    uuids: those whose changes have a sequence, at most `sequence`. unnumbered: all others. rows: as the cell had them.
    """

    uuids: frozenset[str]
    unnumbered: frozenset[str]
    rows: Mapping[str, InstanceRow]
    sequence: int


@dataclass(frozen=True, slots=True)
class _RowsOfCell:
    """A cell as a fleetlight.indexer.reconcile.ranges.Comparable, without the rows that are forgotten at `horizon`."""

    adapter: ChangelogAdapter
    horizon: int

    def digests(self, prefixes: Sequence[str], length: int) -> Mapping[str, RangeDigest]:
        return self.adapter.digests(prefixes, length, horizon=self.horizon)

    def revisions(self, prefixes: Sequence[str]) -> Mapping[str, int]:
        return self.adapter.revisions(prefixes, horizon=self.horizon)
