"""Making the index equal to a cell, or to another index, while changes arrive and lists are answered: once, for all.

1. *Find* what may differ: by digests of ranges of uuids, or by looking at every row
(fleetlight.indexer.reconcile.ranges). 2. *Confirm*: what differs at first sight may be on its way. It is looked at
again when what was in flight has had its
   time, and only what still differs counts.
3. *Repair*, by one rule: the cell is right. A document of a row that the cell does not have is removed, since an index
   that is not asked would not show it either; marking it deleted would invent a deletion. A document that the index
   would keep rather than take the row makes place for it: it is newer, since the database of the cell went back to an
   older copy, or another cell's, unless the mapping of the instance says so too. No index can do that in one step, so
   lists are warned first, and ask the cell until the repair has ended. Rows that make place are read again after that.
4. *Record* how far the index is then: that belongs to the follower of a cell, or its sync.

What differs between kinds of cells is how 1 and 2 go, and which version a row gets. That is a Comparison:
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
    """Instances that differ. documents: what the index is to have of them, where finding them has shown that."""

    differences: Sequence[Difference]
    documents: Sequence[Document] = ()


class Comparison(ABC):
    """What is right of one cell, beside the index. Calls raise what the two sides raise.

    lists: which rely on the index; None where none does. seen: what was counted on the way. has_caught_up: False if
    what was in flight did not arrive in time, so that differences may be lag.
    """

    def __init__(self, index: IndexWriter, lists: "WarnedLists | None" = None) -> None:
        self.index = index
        self.lists = lists
        self.seen = ComparisonCounts()
        self.has_caught_up = True

    @abstractmethod
    def found(self, on_step: Callable[[], None]) -> Iterator[DifferenceBatch]:
        """What differs, confirmed, in batches. on_step: called between two requests."""

    def count_deleted(self) -> int:
        """How many rows of the cell are deleted, when all have been looked at."""
        return self.seen.deleted

    def living_elsewhere(self, _uuids: Collection[str]) -> Mapping[str, str]:
        """The instances of other cells, each with its cell: nothing of them makes place."""
        return {}

    def remove(self, versions: Mapping[str, int]) -> None:
        """Remove documents, each only if it is not newer than its version here."""
        self.index.remove(versions)

    def write(self, found: DifferenceBatch, _own: Set[str]) -> Mapping[str, str]:
        """Write what the index is to have of the instances, those of `own` alone; by uuid why one still differs."""
        rejected = self.index.write(found.documents).rejected if found.documents else ()
        return {rejection.document.id: rejection.reason for rejection in rejected}


class WarnedLists:
    """Warns the lists that rely on the index of a cell: that it differs, and while rows of it make place for others.

    pause: waits that many seconds, until every list that has begun before, or remembers what the index said, has ended.
    If a repair ends early, lists do without the index of the cell until it is repaired another time.
    """

    def __init__(self, state: IndexWriter, cell_uuid: str, pause: Callable[[float], object]) -> None:
        self._state = state
        self._cell_uuid = cell_uuid
        self._pause = pause
        self._do_without = False
        self._are_warned = False

    def suspect(self) -> None:
        """The index of the cell is not right: lists that begin now do without it."""
        if not self._do_without:
            self._state.save_state(REPAIRS, {self._cell_uuid: True})
            self._do_without = True

    def warn(self) -> None:
        """Rows are going to make place: returns when no list relies on them any more."""
        if self._are_warned:
            return
        self.suspect()
        self._pause(LISTS_DELAY_S)
        self._are_warned = True

    def end(self) -> None:
        """Ends also the warning of an earlier repair that was cut off."""
        if self._cell_uuid in self._state.load_state(REPAIRS):
            self._state.save_state(REPAIRS, {self._cell_uuid: None})
        self._do_without = False


def reconcile(
    comparison: Comparison, *, repair: bool, on_step: Callable[[], None], is_searched: bool = True
) -> Iterator[Sequence[Difference]]:
    """What differs, and with `repair` what became of it, batch by batch.

    is_searched: whether what was repaired is made searchable at the end. on_step: called between two requests; what it
    raises ends this. Raises what the comparison raises; what was repaired until then stays and does no harm. Lists do
    without the index of the cell for as long as some of it stays wrong.
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
    """As `reconcile`, all of it at once.

    on_progress: called often, with the numbers of ranges (or rows) compared and of differences found so far.
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
    """The same differences, and what became of them."""
    uuids = {difference.uuid for difference in found.differences}
    elsewhere = comparison.living_elsewhere(uuids)
    if comparison.lists is not None:
        comparison.lists.suspect()
    in_the_way: dict[str, int] = {}
    has_to_warn = False
    for difference in found.differences:
        version, is_only_there = difference.version_in_the_way, difference.kind is DifferenceKind.ONLY_IN_INDEX
        # A document of ours without a row belongs to no cell.
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
