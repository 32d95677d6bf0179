"""Sets of the sequence numbers that a store gave to writes, kept as few ranges; pure.

A shard numbers its writes from 0 without holes, so the numbers of all writers together form one range, except for
writes under way.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, pairwise

Range = tuple[int, int]
"""A range of numbers: the first one, and the one after the last."""


class Numbers:
    """A set of numbers."""

    __slots__ = ("_ranges",)
    __hash__ = None  # type: ignore[assignment]  # the set is mutable

    def __init__(self, ranges: Iterable[Sequence[int]] = ()) -> None:
        self._ranges: list[Range] = _merged((begin, end) for begin, end in ranges)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Numbers) and self._ranges == other._ranges

    def __len__(self) -> int:
        return sum(end - begin for begin, end in self._ranges)

    def __iter__(self) -> Iterator[int]:
        return chain.from_iterable(range(begin, end) for begin, end in self._ranges)

    def __repr__(self) -> str:
        return f"Numbers({self._ranges})"

    @property
    def ranges(self) -> Sequence[Range]:
        """The ranges in order, with at least one number between neighbours."""
        return self._ranges

    def add(self, numbers: Iterable[int]) -> None:
        """Add numbers, most of which adjoin numbers in the set."""
        self._ranges = _merged(chain(self._ranges, _ranges_of(numbers)))

    def union(self, other: "Numbers") -> "Numbers":
        return Numbers(chain(self._ranges, other._ranges))

    def missing(self, begin: int, end: int) -> "Numbers":
        """The numbers from `begin` up to `end`, exclusive, that are not in this set."""
        inside = [each for each in self._ranges if each[1] > begin and each[0] < end]
        edges = [(begin, begin), *inside, (end, end)]
        return Numbers((before[1], after[0]) for before, after in pairwise(edges) if before[1] < after[0])

    def beyond(self, begin: int) -> "Numbers":
        """The numbers in this set from `begin` on."""
        return Numbers((max(begin, first), end) for first, end in self._ranges if end > begin)


def _ranges_of(numbers: Iterable[int]) -> Iterator[Range]:
    begin = end = -1
    for number in sorted(numbers):
        if number == end:
            end += 1
            continue
        if end > begin:
            yield begin, end
        begin, end = number, number + 1
    if end > begin:
        yield begin, end


def _merged(ranges: Iterable[Range]) -> list[Range]:
    merged: list[Range] = []
    for begin, end in sorted(each for each in ranges if each[1] > each[0]):
        if merged and begin <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((begin, end))
    return merged
