"""The one procedure that makes the index equal to a cell, or to another index, while changes and lists go on.

1. *Find* possible differences, by digests of ranges of uuids or by every row (fleetlight.indexer.reconcile.ranges).
2. *Confirm* them: the change may still be on its way. Compare again when changes in flight have had time to arrive.
3. *Repair*, by one rule: the cell is right. A document without a row is removed; marking it as deleted would invent a
   deletion. A document that the index would keep instead of the row is removed first: it is newer, since the database
   of the cell went back to an older copy, or it is another cell's and the mapping of the instance does not name that
   cell. No index replaces it in one step, so lists are warned before, and ask the cell until the repair has ended; the
   row is read again after the removal.
4. *Record* how far the index is then: the follower of the cell, or its sync, does this.

Kinds of cells differ in steps 1 and 2, and in the version of a row. Each has a Comparison:
fleetlight.indexer.reconcile.native_cell, external_cell and other_index.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace

from fleetlight.indexer.backends.base import REPAIRS, Document, IndexWriter
from fleetlight.indexer.reconcile.differences import Difference, DifferenceKind, Verification
from fleetlight.indexer.reconcile.ranges import ComparisonCounts, ignore
from fleetlight.indexer.reconcile.retention import LISTS_DELAY_S


@dataclass(frozen=True, slots=True)
class DifferenceBatch:
    """Instances that differ. documents: the ones to write for them, if the comparison already knows these."""

    differences: Sequence[Difference]
    documents: Sequence[Document] = ()


class Comparison(ABC):
    """Compares one cell with the index, and writes to the index. Calls raise what cell and index raise.

    lists: warned before documents are removed; None if no list relies on the index. seen: counters. has_caught_up:
    False if changes in flight did not arrive in time, so that differences may be lag.
    """

    def __init__(self, index: IndexWriter, lists: "WarnedLists | None" = None) -> None:
        self.index = index
        self.lists = lists
        self.seen = ComparisonCounts()
        self.has_caught_up = True

    @abstractmethod
    def found(self, on_step: Callable[[], None]) -> Iterator[DifferenceBatch]:
        """Yield confirmed differences in batches. on_step: called between two requests."""

    def count_deleted(self) -> int:
        """The number of deleted rows of the cell; known when `found` has ended."""
        return self.seen.deleted

    def living_elsewhere(self, _uuids: Collection[str]) -> Mapping[str, str]:
        """The instances whose mapping names another cell, with its uuid; their documents are not removed for a row."""
        return {}

    def remove(self, versions: Mapping[str, int]) -> None:
        """Remove documents, by uuid, unless one has become newer than its version here."""
        self.index.remove(versions)

    def write(self, found: DifferenceBatch, _own: Set[str]) -> Mapping[str, str]:
        """Write the documents of those instances that are in `own`; returns why an instance still differs, by uuid."""
        rejected = self.index.write(found.documents).rejected if found.documents else ()
        return {rejection.document.id: rejection.reason for rejection in rejected}


class WarnedLists:
    """Makes lists ask a cell instead of its index while the index differs, or while documents are removed for rows.

    pause: waits that many seconds, until every list that began before, or remembers the state of the index, has ended.
    If a repair is interrupted, lists ask the cell until a later repair succeeds.
    """

    def __init__(self, state: IndexWriter, cell_uuid: str, pause: Callable[[float], object]) -> None:
        self._state = state
        self._cell_uuid = cell_uuid
        self._pause = pause
        self._is_suspected = False
        self._are_warned = False

    def suspect(self) -> None:
        """Make lists that begin from now on ask the cell. Raises what the index raises."""
        if not self._is_suspected:
            self._state.save_state(REPAIRS, {self._cell_uuid: True})
            self._is_suspected = True

    def warn(self) -> None:
        """Call before documents are removed: returns when no list relies on them any more. Raises as `suspect`."""
        if self._are_warned:
            return
        self.suspect()
        self._pause(LISTS_DELAY_S)
        self._are_warned = True

    def end(self) -> None:
        """Let lists use the index again, also after an interrupted repair of another process. Raises as `suspect`."""
        if self._cell_uuid in self._state.load_state(REPAIRS):
            self._state.save_state(REPAIRS, {self._cell_uuid: None})
        self._is_suspected = False


def reconcile(
    comparison: Comparison, *, repair: bool, on_step: Callable[[], None], is_searched: bool = True
) -> Iterator[Sequence[Difference]]:
    """Yield the differences batch by batch, with `repair` after their repair.

    is_searched: make repairs searchable at the end. on_step: called between two requests; an error that it raises ends
    the work. Raises what the comparison raises; repairs until then stay and do no harm. With `repair`, lists ask the
    cell while some difference remains.
    """
    is_right = True
    for found in comparison.found(on_step):
        if not found.differences:
            continue
        if not repair:
            yield found.differences
            continue
        repaired = _repaired(comparison, found)
        is_right = is_right and not any(difference.is_wrong for difference in repaired)
        yield repaired
    if repair:
        if is_searched:
            comparison.index.make_searchable()
        if comparison.lists is not None and is_right:
            comparison.lists.end()


def verify(comparison: Comparison, *, repair: bool, on_progress: Callable[[int, int], None] = ignore) -> Verification:
    """As `reconcile`, but returns when it has ended, with all differences.

    on_progress: called often, with the number of ranges (or rows) compared so far, and of differences. Raises as
    `reconcile`.
    """
    differences: list[Difference] = []

    def on_step() -> None:
        on_progress(comparison.seen.steps, len(differences))

    for batch in reconcile(comparison, repair=repair, on_step=on_step):
        differences += batch
        on_step()
    return Verification(
        rows=comparison.seen.rows,
        documents=comparison.seen.other_rows,
        external=comparison.seen.external,
        differences=tuple(sorted(differences, key=lambda difference: difference.uuid)),
        rows_read=comparison.seen.rows_read,
        has_caught_up=comparison.has_caught_up,
    )


def _repaired(comparison: Comparison, found: DifferenceBatch) -> list[Difference]:
    """Repair a batch; returns its differences, each repaired or with the problem."""
    uuids = {difference.uuid for difference in found.differences}
    elsewhere = comparison.living_elsewhere(uuids)
    if comparison.lists is not None:
        comparison.lists.suspect()
    in_the_way: dict[str, int] = {}
    has_to_warn = False
    for difference in found.differences:
        version, is_only_there = difference.version_in_the_way, difference.kind is DifferenceKind.ONLY_IN_INDEX
        # A document of this cell without a row belongs to no cell.
        if version is not None and (is_only_there or difference.uuid not in elsewhere):
            in_the_way[difference.uuid] = version
            has_to_warn = has_to_warn or not is_only_there
    if has_to_warn and comparison.lists is not None:
        comparison.lists.warn()
    if in_the_way:
        comparison.remove(in_the_way)
    problems = comparison.write(found, uuids - elsewhere.keys())
    named = {uuid: f"the mapping of the instance names cell {cell}" for uuid, cell in elsewhere.items()}
    return [
        replace(
            difference,
            problem=named.get(difference.uuid, problems[difference.uuid]),
            mapped_to=elsewhere.get(difference.uuid),
        )
        if difference.uuid in problems
        else replace(difference, is_repaired=True, problem=None)
        for difference in found.differences
    ]
