"""Sets of numbers that a store gave to writes, as few ranges; pure.

A shard numbers its writes from 0 without holes, so what all writers have got together is one range, but for what is
under way.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, pairwise

Range = tuple[int, int]
"""The numbers from the first on, up to the second, which is not one of them."""


class Numbers:
    """A set of numbers."""

    __slots__ = ("_ranges",)
    __hash__ = None  # type: ignore[assignment]  # it can be added to

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
        """In order, with at least one number between two of them."""
        return self._ranges

    def add(self, numbers: Iterable[int]) -> None:
        """Add some; most of them are next to those that are there."""
        self._ranges = _merged(chain(self._ranges, _ranges_of(numbers)))

    def union(self, other: "Numbers") -> "Numbers":
        return Numbers(chain(self._ranges, other._ranges))

    def missing(self, begin: int, end: int) -> "Numbers":
        """Which from `begin` on up to `end` are not in this set."""
        inside = [each for each in self._ranges if each[1] > begin and each[0] < end]
        edges = [(begin, begin), *inside, (end, end)]
        return Numbers((before[1], after[0]) for before, after in pairwise(edges) if before[1] < after[0])

    def beyond(self, begin: int) -> "Numbers":
        """Those from `begin` on."""
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
