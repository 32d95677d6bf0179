"""Compares the items of one type in a cell that numbers its changes with the index
(fleetlight.indexer.reconcile.reconcile).

A cell has some thousand items at most, so each is compared by content, which also suffices for a restored cell.
Documents are read before rows: an item that the index alone has, or has newer, was then removed from the cell. Deleted
items stay in the index as tombstones, so that no late message brings one back; they are no difference.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence, Set

from fleetlight.cells.model import ChangelogAdapter, ItemRow
from fleetlight.indexer.backends.base import Document, IndexWriter
from fleetlight.indexer.reconcile.differences import Difference, DifferenceKind, Verification
from fleetlight.indexer.reconcile.ranges import ignore
from fleetlight.indexer.reconcile.reconcile import Comparison, DifferenceBatch, verify
from fleetlight.indexer.transform.other_items import OtherItemChange, other_item_document

_PAUSE_S = 0.05
_REMEMBERED = "the index has it otherwise, and does not take what the cell has"


class OtherItemComparison(Comparison):
    """Compares items; calls raise CellUnreachableError, and what the writer raises.

    catch_up_timeout_s: how long to wait for the index to get as far as the cell; 0: differences count at first sight.
    """

    def __init__(
        self, adapter: ChangelogAdapter, writer: IndexWriter, item_type: str, *, catch_up_timeout_s: float = 0
    ) -> None:
        super().__init__(writer)
        self._adapter = adapter
        self._cell_uuid = adapter.cell.uuid
        self._item_type = item_type
        self._catch_up_timeout_s = catch_up_timeout_s
        self._rows: Mapping[str, ItemRow] = {}

    def found(self, on_step: Callable[[], None]) -> Iterator[DifferenceBatch]:
        deadline_s = time.monotonic() + self._catch_up_timeout_s
        differences = self._differences()
        while differences and self._catch_up_timeout_s:
            on_step()
            has_caught_up, before = self._wait(deadline_s), set(differences)
            differences = self._differences()
            # Changes under way have arrived, and nothing differs now that did not before.
            if (has_caught_up and before.issuperset(differences)) or time.monotonic() >= deadline_s:
                self.has_caught_up = has_caught_up
                break
        if differences:
            yield DifferenceBatch(sorted(differences, key=lambda difference: difference.uuid))
        on_step()

    def differing(self) -> Sequence[str]:
        """Items that differ at first sight; none while the cell has a change without a sequence."""
        if self._adapter.item_rows(self._item_type).has_unnumbered:
            return ()
        return [each.uuid for each in self._differences()]

    def remove(self, versions: Mapping[str, int]) -> None:
        """Remove documents of items. Lists ask the cell for items of this type until the index has all again."""
        self.index.mark_items(self._item_type, self._cell_uuid, are_whole=False)
        self.index.remove_items(self._item_type, self._cell_uuid, versions)

    def write(self, found: DifferenceBatch, _own: Set[str]) -> Mapping[str, str]:
        rows = [self._rows[each.uuid] for each in found.differences if each.uuid in self._rows]
        rejected = self.index.write([document for row in rows if (document := self._document(row))]).rejected
        reasons = {rejection.document.id: rejection.reason for rejection in rejected}
        remaining = {each.uuid: each for each in self._differences()}
        return {
            each.uuid: reasons.get(each.uuid) or remaining[each.uuid].problem or _REMEMBERED
            for each in found.differences
            if each.uuid in remaining
        }

    def _differences(self) -> list[Difference]:
        self.index.make_searchable()
        documents = self.index.items(self._item_type, self._cell_uuid)
        rows = self._adapter.item_rows(self._item_type).rows
        self._rows = {row.uuid: row for row in rows}
        living = {uuid: document for uuid, document in documents.items() if not document.record["deleted"]}
        self.seen.rows, self.seen.other_rows = len(rows), len(living)
        self.seen.steps += len(rows)
        found = [each for row in rows if (each := self._difference(row, documents.get(row.uuid))) is not None]
        found += [
            Difference(uuid, DifferenceKind.ONLY_IN_INDEX, None, document.version)
            for uuid, document in living.items()
            if uuid not in self._rows
        ]
        return found

    def _difference(self, row: ItemRow, document: Document | None) -> Difference | None:
        version = None if document is None else document.version
        if document is None:
            kind = DifferenceKind.MISSING
        elif document.version != row.revision:
            kind = DifferenceKind.OLDER if document.version < row.revision else DifferenceKind.NEWER
        elif document.record != row.record:
            kind = DifferenceKind.CHANGED
        else:
            return None
        return Difference(row.uuid, kind, row.revision, version, problem=row.problem)

    def _document(self, row: ItemRow) -> Document | None:
        if row.record is None:
            return None
        return other_item_document(self._cell_uuid, OtherItemChange(self._item_type, row.revision, row.record))

    def _wait(self, deadline_s: float) -> bool:
        """Wait until the index has every change that the cell has committed; False if the deadline comes first."""
        while True:
            # Read this before the sequence: changes that have numbers by then have at most that one.
            has_unnumbered = self._adapter.item_rows(self._item_type).has_unnumbered
            progress = self.index.load_progress().get(self._cell_uuid)
            reached = progress.watermark if progress else 0
            if not has_unnumbered and reached >= self._adapter.published_sequence():
                return True
            if time.monotonic() >= deadline_s:
                return False
            time.sleep(_PAUSE_S)


def verify_other_items(
    adapter: ChangelogAdapter,
    writer: IndexWriter,
    item_type: str,
    catch_up_timeout_s: float,
    on_progress: Callable[[int, int], None] = ignore,
    *,
    repair: bool,
) -> Verification:
    """Compare the index with the items of a cell. With `repair`, make them equal, and record whether they are.

    on_progress, repair: as for `verify`. Raises CellUnreachableError, and what the writer raises.
    """
    comparison = OtherItemComparison(adapter, writer, item_type, catch_up_timeout_s=catch_up_timeout_s)
    verification = verify(comparison, repair=repair, on_progress=on_progress)
    if repair:
        writer.mark_items(item_type, adapter.cell.uuid, are_whole=not verification.remaining)
    return verification


def reconcile_other_items(
    adapter: ChangelogAdapter, writer: IndexWriter, item_type: str, on_step: Callable[[], None] = lambda: None
) -> Verification:
    """As `verify_other_items` with repair and without a wait. on_step: as for `reconcile`."""
    return verify_other_items(adapter, writer, item_type, 0, lambda _steps, _differences: on_step(), repair=True)
