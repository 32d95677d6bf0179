"""Sets of numbers are what Python's own sets are."""

from collections.abc import Sequence
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from fleetlight.indexer.backends.accounts import Numbers

NUMBER = st.integers(0, 25)
RANGES = st.lists(st.tuples(NUMBER, NUMBER))
Ranges = Sequence[tuple[int, int]]


def members(ranges: Ranges) -> set[int]:
    return {number for begin, end in ranges for number in range(begin, end)}


def is_set(numbers: Numbers, wanted: set[int]) -> bool:
    """Whether they are that set, in as few ranges as it has."""
    apart = all(before[1] < after[0] for before, after in pairwise(numbers.ranges))
    return list(numbers) == sorted(wanted) and len(numbers) == len(wanted) and apart


@given(RANGES)
def test_numbers_of_ranges(ranges: Ranges) -> None:
    assert is_set(Numbers(ranges), members(ranges))


@given(RANGES, st.lists(NUMBER))
def test_numbers_are_added(ranges: Ranges, added: list[int]) -> None:
    numbers = Numbers(ranges)
    numbers.add(added)
    assert is_set(numbers, members(ranges) | set(added))


@given(RANGES, RANGES)
def test_union_has_what_either_has(one: Ranges, other: Ranges) -> None:
    assert is_set(Numbers(one).union(Numbers(other)), members(one) | members(other))


@given(RANGES, NUMBER, NUMBER)
def test_what_is_missing(ranges: Ranges, begin: int, end: int) -> None:
    assert is_set(Numbers(ranges).missing(begin, end), set(range(begin, end)) - members(ranges))


@given(RANGES, NUMBER)
def test_what_is_beyond(ranges: Ranges, begin: int) -> None:
    assert is_set(Numbers(ranges).beyond(begin), {number for number in members(ranges) if number >= begin})


@given(RANGES, RANGES)
def test_sets_are_equal_by_what_they_have(one: Ranges, other: Ranges) -> None:
    assert (Numbers(one) == Numbers(other)) == (members(one) == members(other))
