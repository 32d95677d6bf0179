"""Two ways to find the differences between two stores, by ranges of uuids, with at most one batch in memory.

By digests, if both stores compute them: a range that differs is divided by the next hexadecimal digit of the uuid,
until it has few enough rows to read their revisions. So the reads grow with the differences, not with the fleet.
By rows, if equal revisions prove nothing (or rows have none): every row is read, and the uuids that the index has.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from fleetlight.cells.batched import batched
from fleetlight.cells.digests import RangeDigest
from fleetlight.cells.errors import UnreadableRowError
from fleetlight.cells.model import InstanceRow
from fleetlight.indexer.backends.base import IndexWriter
from fleetlight.query.filters import Filter
from fleetlight.query.page import PageRequest
from fleetlight.query.retention import remembered
from fleetlight.query.sort import INSTANCES_BY_UUID

# A range of so few rows is read row by row; dividing it would cost about as many digests.
_LEAF_ROWS = 16
# Ranges of one request: one statement of a database, and 16 times as many buckets of an Elasticsearch aggregation.
_RANGES_AT_ONCE = 64
_DASHES = (8, 13, 18, 23)
_UUID_LENGTH = 36
_EMPTY = RangeDigest(0, 0, 0)
# The uuids in the index are read by prefixes of this length, so that no cell is in memory whole.
_RANGE_LENGTH = 2
_DOCUMENTS_AT_ONCE = 5000


class Comparable(Protocol):
    """A store of instances that can be compared; its methods are those of fleetlight.cells.model.ChangelogAdapter."""

    def digests(self, prefixes: Sequence[str], length: int) -> Mapping[str, RangeDigest]: ...

    def revisions(self, prefixes: Sequence[str]) -> Mapping[str, int]: ...


@dataclass(frozen=True, slots=True)
class IndexRanges:
    """The documents of one cell in an index, as a Comparable (fleetlight.indexer.backends.base.IndexWriter)."""

    index: IndexWriter
    cell_uuid: str
    horizon: int
    external: bool

    def digests(self, prefixes: Sequence[str], length: int) -> Mapping[str, RangeDigest]:
        return self.index.digests(self.cell_uuid, prefixes, length, horizon=self.horizon, external=self.external)

    def revisions(self, prefixes: Sequence[str]) -> Mapping[str, int]:
        return self.index.revisions(self.cell_uuid, prefixes, horizon=self.horizon, external=self.external)


@dataclass(slots=True)
class ComparisonCounts:
    """Counters of a comparison, which grow while it runs.

    rows, other_rows: rows of the whole stores. deleted: number of deleted ones among `rows`, if every row is read.
    steps: ranges whose digests were compared, or rows if every row is read. rows_read: rows, documents and revisions
    that were read one by one. external: documents in the index that are no rows of the cell.
    """

    rows: int = 0
    other_rows: int = 0
    deleted: int = 0
    steps: int = 0
    rows_read: int = 0
    external: int = 0


def ignore(*_progress: int) -> None:
    """For callers that show no progress."""


def differing(
    one: Comparable, other: Comparable, seen: ComparisonCounts, on_step: Callable[[], None], prefix: str = ""
) -> Iterator[list[str]]:
    """Yield the uuids that do not have the same revision in both stores, in batches, each uuid once.

    seen: counters, which this increases. on_step: called after each request to both stores. prefix: only uuids that
    begin with it. While the stores change, a yielded uuid may be equal a moment later. If digests of a range differ
    although all revisions are equal, one store contradicts itself: then all uuids of the range are yielded.
    """
    return _divide([prefix], one, other, seen, on_step, is_whole=True)


def _divide(
    prefixes: Sequence[str],
    one: Comparable,
    other: Comparable,
    seen: ComparisonCounts,
    on_step: Callable[[], None],
    *,
    is_whole: bool = False,
) -> Iterator[list[str]]:
    """As `differing`, for ranges whose prefixes are equally long. is_whole: nothing else is compared."""
    length = _next_length(prefixes[0])
    ones, others = one.digests(prefixes, length), other.digests(prefixes, length)
    beginnings = sorted(ones.keys() | others.keys())
    seen.steps += len(beginnings)
    if is_whole:
        seen.rows = _count(ones)
        seen.other_rows = _count(others)
    on_step()
    # A uuid that is shorter than the prefix of a range is damaged: it is yielded without being read.
    found: list[str] = []
    small: list[str] = []
    large: list[str] = []
    for beginning in beginnings:
        mine, theirs = ones.get(beginning, _EMPTY), others.get(beginning, _EMPTY)
        if mine != theirs:
            # Another program may have made any number of copies of one uuid.
            is_small = max(mine.count, theirs.count) <= _LEAF_ROWS or len(beginning) >= _UUID_LENGTH
            (found if len(beginning) < length else small if is_small else large).append(beginning)
    if found:
        yield found
    for batch in batched(small, _RANGES_AT_ONCE):
        mine_read, theirs_read = one.revisions(batch), other.revisions(batch)
        seen.rows_read += len(mine_read) + len(theirs_read)
        on_step()
        uuids = sorted(mine_read.keys() | theirs_read.keys())
        differ = {uuid for uuid in uuids if mine_read.get(uuid) != theirs_read.get(uuid)}
        unexplained = tuple(beginning for beginning in batch if not any(uuid.startswith(beginning) for uuid in differ))
        if named := [uuid for uuid in uuids if uuid in differ or uuid.startswith(unexplained)]:
            yield named
    for batch in batched(large, _RANGES_AT_ONCE):
        yield from _divide(batch, one, other, seen, on_step)


def _count(digests: Mapping[str, RangeDigest]) -> int:
    return sum(digest.count for digest in digests.values())


def _next_length(prefix: str) -> int:
    """One character more than the prefix has, or two where a uuid has a dash."""
    return len(prefix) + (2 if len(prefix) in _DASHES else 1)


ReadsPage = Callable[[PageRequest], Sequence[InstanceRow]]


def pages_of_rows(
    read: ReadsPage, condition: Filter, batch_size: int, after: tuple[str, ...] | None = None
) -> Iterator[tuple[Sequence[InstanceRow], bool]]:
    """Yield the rows of a cell in pages, ordered by uuid, beginning after `after`; each with whether it is the last.

    The last page may be empty. Raises what `read` raises.
    """
    is_last = False
    while not is_last:
        rows = read(PageRequest(condition, INSTANCES_BY_UUID, batch_size, after))
        is_last = len(rows) < batch_size
        yield rows, is_last
        after = (rows[-1].uuid,) if rows else after


def beside_rows(
    read: ReadsPage,
    index: IndexRanges,
    batch_size: int,
    seen: ComparisonCounts,
    is_indexed: Callable[[InstanceRow], bool] = lambda _row: True,
) -> Iterator[tuple[Sequence[InstanceRow], Sequence[str]]]:
    """Yield all rows of a cell in pages, and after each range of uuids those that only the index has.

    A row that was added meanwhile may be among the latter. is_indexed: whether a row counts, since the index should
    have it. Raises what `read` and the index raise.
    """
    index.index.make_searchable()
    digests = index.digests([""], _RANGE_LENGTH)
    ranges = sorted((prefix, digest.count) for prefix, digest in digests.items())
    seen.other_rows = sum(count for _, count in ranges)
    read_last: set[str] = set()
    for rows, is_last in pages_of_rows(read, remembered(index.horizon), batch_size):
        counted = list(filter(is_indexed, rows))
        seen.rows += len(counted)
        seen.deleted += sum(map(_is_deleted, counted))
        seen.steps += len(rows)
        seen.rows_read += len(rows)
        read_last.update(row.uuid for row in rows)
        begun = None if is_last else rows[-1].uuid[:_RANGE_LENGTH]
        ended = []
        while ranges and (begun is None or ranges[0][0] < begun):
            ended.append(ranges.pop(0))
        yield rows, ()
        for prefixes in _some_at_once(ended):
            if only_in_index := sorted(index.revisions(prefixes).keys() - read_last):
                yield (), only_in_index
        if begun is not None:
            read_last = {uuid for uuid in read_last if uuid >= begun}


def _is_deleted(row: InstanceRow) -> bool:
    try:
        return bool(row.record["deleted"])
    except UnreadableRowError:
        return False


def _some_at_once(ranges: Sequence[tuple[str, int]]) -> Iterator[list[str]]:
    """ranges: prefix and number of documents."""
    prefixes: list[str] = []
    documents = 0
    for prefix, count in ranges:
        if prefixes and documents + count > _DOCUMENTS_AT_ONCE:
            yield prefixes
            prefixes, documents = [], 0
        prefixes.append(prefix)
        documents += count
    if prefixes:
        yield prefixes
