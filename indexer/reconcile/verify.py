"""Whether the index has what a cell has, and making it so; safe while changes arrive.

A difference that is only lag is none. So what differs at first sight is looked at again when the index has caught up
with everything that the cell had announced by then, and only what still differs counts.

Repairing follows one rule: the cell is right. Rows are read again and written. A document of a row that the cell does
not have is removed, since an index that is not asked would not show it either; marking it deleted would invent a
deletion that nobody did. A document newer than its row comes from a database that went back to an older copy, or from
an external notification about an instance that the cell knows better: it makes place for the row. So does a document
that says it is another cell's, unless the mapping of the instance says so too. No index can do that in one step, so
nobody calls the cell complete meanwhile. Documents that only external notifications speak of are no rows of the cell;
they are counted apart and never touched.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from cells.batched import batched
from cells.digests import RangeDigest
from cells.model import ChangelogAdapter, InstanceRow
from indexer.backends.base import OLDEST_TIME_VERSION, REPAIRS, Document, IndexWriter
from indexer.reconcile.comparison import Comparison, differing
from indexer.reconcile.retention import LISTS_GRACE_S, load_horizons
from indexer.writing.kept_extras import ExtraFieldKeeper, ReadsDocuments
from indexer.writing.ownership import KnowsOwners
from indexer.writing.rereading import render_rows
from query.evaluate import matcher
from query.filters import In
from query.page import PageRequest
from query.retention import forgotten
from query.sort import SortOrder
from resources.fields import Record
from resources.instance import INSTANCE_FIELDS

_BY_UUID = SortOrder.of(INSTANCE_FIELDS, ())
_BATCH = 500
_PAUSE_S = 0.05


class DifferenceKind(StrEnum):
    """How the index differs from the cell in one instance; the words are in the output of `index verify`."""

    MISSING = "missing in the index"
    ONLY_IN_INDEX = "only in the index"
    OLDER = "older in the index"
    NEWER = "newer in the index"
    CHANGED = "different in the index"
    OTHER_CELL = "another cell's in the index"


_IN_THE_WAY = (DifferenceKind.NEWER, DifferenceKind.ONLY_IN_INDEX, DifferenceKind.OTHER_CELL)


@dataclass(frozen=True, slots=True)
class Difference:
    """revision: in the cell; version: in the index; None where the instance is not.

    is_repaired: the two agree now. problem: why they do not, if repairing was tried. owner: the cell that the document
    is of, if it is another one.
    """

    uuid: str
    kind: DifferenceKind
    revision: int | None
    version: int | None
    is_repaired: bool = False
    problem: str | None = None
    owner: str | None = None


@dataclass(frozen=True, slots=True)
class Verification:
    """What came of comparing one cell with the index.

    rows, documents: how many each has; both move while changes arrive. external: documents that come from notifications
    without a revision and are no rows of the cell. rows_read: rows, documents and revisions that were read one by one.
    has_caught_up: False if the index did not get as far as the cell in time, so that differences may be lag.
    """

    rows: int
    documents: int
    external: int
    differences: tuple[Difference, ...]
    rows_read: int
    has_caught_up: bool

    @property
    def remaining(self) -> tuple[Difference, ...]:
        return tuple(difference for difference in self.differences if not difference.is_repaired)


def _reason(remaining: Difference) -> str:
    """Why the index did not take a row that it does not reject."""
    if remaining.kind is DifferenceKind.MISSING and remaining.version is None:
        return "the index does not take it yet: it remembers what was deleted from it for a minute; repeat this then"
    return "the index has something else in its place"


def ignore_progress(_ranges: int, _differences: int) -> None:
    """For callers who do not want to see how far a verification is."""


def verify_cell(
    adapter: ChangelogAdapter,
    writer: IndexWriter,
    *,
    repair: bool,
    catch_up_timeout_s: float,
    on_progress: Callable[[int, int], None] = ignore_progress,
    extras: ReadsDocuments | None = None,
    pause: Callable[[float], object] | None = None,
    owners: KnowsOwners | None = None,
) -> Verification:
    """Compare the cell with its documents, and with `repair` repair what differs.

    catch_up_timeout_s: how long to wait for the index to get as far as the cell; waited in vain only once.
    on_progress: called often, with the number of ranges compared and of differences found so far.
    extras: who knows fields that no row has (indexer.writing.kept_extras); the writer, unless said otherwise.
    owners: where it is known which cell an instance lives in; None where all that the cell has is its own.
    pause: for lists that rely on a row which is to make place for an older one; None where no list relies on the cell.
    Raises CellUnreachableError, and what owners and writer raise; what was repaired until then stays and does no harm.
    If rows were taken away by then, lists do without the index of the cell until it is repaired another time.
    """
    known = extras or writer
    verifier = _Verifier(adapter, writer, known, catch_up_timeout_s, on_progress, pause=pause, owners=owners)
    return verifier.run(repair)


@dataclass(frozen=True, slots=True)
class _RowsOfCell:
    """The cell as it is compared (indexer.reconcile.comparison.Comparable), without what the index need not have."""

    adapter: ChangelogAdapter
    horizon: int

    def digests(self, prefixes: Sequence[str], length: int) -> Mapping[str, RangeDigest]:
        return self.adapter.digests(prefixes, length, horizon=self.horizon)

    def revisions(self, prefixes: Sequence[str]) -> Mapping[str, int]:
        return self.adapter.revisions(prefixes, horizon=self.horizon)


@dataclass(frozen=True, slots=True)
class _IndexOfCell:
    """The index as it is compared with one cell (a Comparable), without what it may still have."""

    writer: IndexWriter
    cell_uuid: str
    horizon: int

    def digests(self, prefixes: Sequence[str], length: int) -> Mapping[str, RangeDigest]:
        return self.writer.digests(self.cell_uuid, prefixes, length, horizon=self.horizon)

    def revisions(self, prefixes: Sequence[str]) -> Mapping[str, int]:
        return self.writer.revisions(self.cell_uuid, prefixes, horizon=self.horizon)


class _Verifier:
    def __init__(
        self,
        adapter: ChangelogAdapter,
        writer: IndexWriter,
        extras: ReadsDocuments,
        catch_up_timeout_s: float,
        on_progress: Callable[[int, int], None],
        *,
        pause: Callable[[float], object] | None,
        owners: KnowsOwners | None,
    ) -> None:
        self._adapter = adapter
        self._writer = writer
        self._extras = extras
        self._cell_uuid = adapter.cell.uuid
        self._catch_up_timeout_s = catch_up_timeout_s
        self._on_progress = on_progress
        self._pause = pause
        self._owners = owners
        self._has_told_lists = False
        self._seen = Comparison()
        self._differences: list[Difference] = []
        self._rows_read = 0
        self._has_caught_up = True
        self._is_forgotten: Callable[[Record], bool] = lambda _: False

    def run(self, repair: bool) -> Verification:
        # It does not move meanwhile, as far as removals are concerned: those wait for the lease that our caller has.
        horizon = load_horizons(self._writer).get(self._cell_uuid, 0)
        self._is_forgotten = matcher(forgotten(horizon), INSTANCE_FIELDS)
        rows = _RowsOfCell(self._adapter, horizon)
        index = _IndexOfCell(self._writer, self._cell_uuid, horizon)
        for uuids in differing(rows, index, self._seen, self._report):
            for batch in batched(uuids, _BATCH):
                found = self._confirmed(batch)
                self._differences += self._reconciled(found) if repair and found else found
                self._report()
        if repair and self._pause is not None and self._cell_uuid in self._writer.load_state(REPAIRS):
            self._writer.save_state(REPAIRS, {self._cell_uuid: None})
        return Verification(
            rows=self._seen.rows,
            documents=self._seen.other_rows,
            external=self._writer.count_external(self._cell_uuid),
            differences=tuple(self._differences),
            rows_read=self._rows_read + self._seen.revisions_read,
            has_caught_up=self._has_caught_up,
        )

    def _report(self) -> None:
        self._on_progress(self._seen.ranges, len(self._differences))

    def _confirmed(self, uuids: Sequence[str]) -> list[Difference]:
        """What differs among `uuids` although the index has caught up."""
        found: list[Difference] = []
        deadline_s = time.monotonic() + self._catch_up_timeout_s
        waiting = set(uuids)
        while waiting:
            rows = self._rows(waiting)
            # Asked for after the rows: what they show and is numbered now has at most this sequence.
            unnumbered = set(self._adapter.unnumbered(waiting))
            self._wait_for(self._adapter.published_sequence(), deadline_s)
            if unnumbered and self._has_caught_up:
                self._has_caught_up = time.monotonic() < deadline_s
            decidable = waiting - unnumbered if self._has_caught_up else waiting
            found += self._differing_now(decidable, rows)
            waiting -= decidable
            if waiting:
                time.sleep(_PAUSE_S)
        return sorted(found, key=lambda difference: difference.uuid)

    def _wait_for(self, sequence: int, deadline_s: float) -> None:
        """Return when every change up to `sequence` is in the index, or it is clear that this takes too long."""
        while self._has_caught_up:
            progress = self._writer.load_progress().get(self._cell_uuid)
            if (progress.watermark if progress else 0) >= sequence:
                return
            if time.monotonic() >= deadline_s:
                self._has_caught_up = False
                return
            time.sleep(_PAUSE_S)

    def _differing_now(self, uuids: set[str], rows: Mapping[str, InstanceRow]) -> list[Difference]:
        """rows: as the cell had them before the index got at least as far."""
        documents = self._documents(uuids)
        suspects = {uuid for uuid in uuids if self._difference(uuid, rows.get(uuid), documents.get(uuid)) is not None}
        # Meanwhile the index may have got further than those rows: it is too new only if it is newer than the row now.
        rows_now = self._rows(suspects)
        found = []
        for uuid in suspects:
            row, row_now, document = rows.get(uuid), rows_now.get(uuid), documents.get(uuid)
            difference = self._difference(uuid, row, document)
            if difference is not None and difference.kind in (DifferenceKind.NEWER, DifferenceKind.ONLY_IN_INDEX):
                difference = self._difference(uuid, row_now, document)
                if difference is not None and difference.kind is DifferenceKind.OLDER:
                    # The index is newer than the row was, and older than it is: both go on.
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
            is_stray = is_own and version is not None and version < OLDEST_TIME_VERSION
            kind = DifferenceKind.ONLY_IN_INDEX if is_stray else None
        elif version is None or not is_own:
            missing = DifferenceKind.MISSING if version is None else DifferenceKind.OTHER_CELL
            kind = None if row is not None and self._is_forgotten(row.record) else missing
        elif version < revision:
            kind = DifferenceKind.OLDER
        else:
            kind = DifferenceKind.NEWER if version > revision else None
        owner = document.cell_uuid if document is not None and not is_own else None
        return None if kind is None else Difference(uuid, kind, revision, version, owner=owner)

    def _reconciled(self, found: Sequence[Difference]) -> list[Difference]:
        """The same differences, and what became of them."""
        uuids = {difference.uuid for difference in found}
        elsewhere = self._owners.living_elsewhere(self._cell_uuid, uuids) if self._owners is not None else {}
        own = uuids - elsewhere.keys()
        in_the_way = {
            difference.uuid: difference.version
            for difference in found
            if difference.kind in _IN_THE_WAY
            and difference.version
            # A document of ours without a row is nobody's.
            and (difference.uuid in own or difference.kind is DifferenceKind.ONLY_IN_INDEX)
        }
        if any(each.uuid in in_the_way and each.kind is not DifferenceKind.ONLY_IN_INDEX for each in found):
            self._let_lists_know()
        if in_the_way:
            self._writer.remove(in_the_way)
        rows = self._rows(uuids)
        documents, rejected = render_rows([row for uuid, row in rows.items() if uuid in own])
        rejected += ExtraFieldKeeper(self._writer, self._extras).write(documents).rejected
        self._writer.make_searchable()
        problems = {rejection.document.id: rejection.reason for rejection in rejected}
        problems |= {uuid: f"the mapping of the instance names cell {cell}" for uuid, cell in elsewhere.items()}
        remaining = {difference.uuid: difference for difference in self._differing_now(uuids, rows)}
        return [
            replace(difference, problem=problems.get(difference.uuid) or _reason(remaining[difference.uuid]))
            if difference.uuid in remaining
            else replace(difference, is_repaired=True)
            for difference in found
        ]

    def _let_lists_know(self) -> None:
        """A list that has begun, or remembers what the index said before, must not find rows gone and miss none."""
        if self._pause is None or self._has_told_lists:
            return
        self._writer.save_state(REPAIRS, {self._cell_uuid: True})
        try:
            self._pause(LISTS_GRACE_S)
        except BaseException:
            # Nothing was taken away yet.
            self._writer.save_state(REPAIRS, {self._cell_uuid: None})
            raise
        self._has_told_lists = True

    def _rows(self, uuids: set[str]) -> dict[str, InstanceRow]:
        if not uuids:
            return {}
        rows = self._adapter.read_page(PageRequest(In("uuid", tuple(sorted(uuids))), _BY_UUID, len(uuids)))
        self._rows_read += len(rows)
        return {row.uuid: row for row in rows}

    def _documents(self, uuids: set[str]) -> Mapping[str, Document]:
        documents = self._writer.read(uuids)
        self._rows_read += len(documents)
        return documents
