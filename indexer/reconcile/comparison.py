"""Where two stores differ: digests of ranges of uuids, drilled down only where they are not equal.

A range that differs is divided by the next hexadecimal digit of the uuid, until it has few enough rows to read their
revisions. So what is read grows with the differences, not with the fleet, and never more than a batch is in memory.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from cells.batched import batched
from cells.digests import RangeDigest

# A range of so few rows is read; dividing it would cost about as many digests.
_LEAF_ROWS = 16
# Ranges of one request: one statement of a database, and 16 times as many buckets of an Elasticsearch aggregation.
_RANGES_AT_ONCE = 64
_DASHES = (8, 13, 18, 23)
_EMPTY = RangeDigest(0, 0, 0)


class Comparable(Protocol):
    """A store of instances that can be compared (cells.model.ChangelogAdapter says what the methods return)."""

    def digests(self, prefixes: Sequence[str], length: int) -> Mapping[str, RangeDigest]: ...

    def revisions(self, prefixes: Sequence[str]) -> Mapping[str, int]: ...


@dataclass(slots=True)
class Comparison:
    """What was counted on the way; it grows while `differing` runs.

    rows, other_rows: of the whole stores. ranges: whose digests were compared. revisions_read: of both stores.
    """

    rows: int = 0
    other_rows: int = 0
    ranges: int = 0
    revisions_read: int = 0


def differing(one: Comparable, other: Comparable, seen: Comparison, on_step: Callable[[], None]) -> Iterator[list[str]]:
    """The uuids that are not in both stores with the same revision, in batches, each uuid once.

    seen: is counted up. on_step: called after each request to both stores.
    While the stores change, a uuid may be named that is equal a moment later.
    """
    return _divide([""], one, other, seen, on_step)


def _divide(
    prefixes: Sequence[str], one: Comparable, other: Comparable, seen: Comparison, on_step: Callable[[], None]
) -> Iterator[list[str]]:
    """As `differing`, for the ranges of `prefixes`, which are equally long."""
    length = _next_length(prefixes[0])
    ones, others = one.digests(prefixes, length), other.digests(prefixes, length)
    beginnings = sorted(ones.keys() | others.keys())
    seen.ranges += len(beginnings)
    if length == 1:
        seen.rows = sum(digest.count for digest in ones.values())
        seen.other_rows = sum(digest.count for digest in others.values())
    on_step()
    # A uuid that ends before the range does is no range: it is named without being read.
    found: list[str] = []
    small: list[str] = []
    large: list[str] = []
    for beginning in beginnings:
        mine, theirs = ones.get(beginning, _EMPTY), others.get(beginning, _EMPTY)
        if mine != theirs:
            is_small = max(mine.count, theirs.count) <= _LEAF_ROWS
            (found if len(beginning) < length else small if is_small else large).append(beginning)
    if found:
        yield found
    for batch in batched(small, _RANGES_AT_ONCE):
        mine_read, theirs_read = one.revisions(batch), other.revisions(batch)
        seen.revisions_read += len(mine_read) + len(theirs_read)
        on_step()
        uuids = sorted(mine_read.keys() | theirs_read.keys())
        if differ := [uuid for uuid in uuids if mine_read.get(uuid) != theirs_read.get(uuid)]:
            yield differ
    for batch in batched(large, _RANGES_AT_ONCE):
        yield from _divide(batch, one, other, seen, on_step)


def _next_length(prefix: str) -> int:
    """One more character, and a dash that every uuid has in that place."""
    return len(prefix) + (2 if len(prefix) in _DASHES else 1)
