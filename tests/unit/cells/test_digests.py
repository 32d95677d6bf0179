"""Digests of ranges do not depend on an order, and tell any two sets of revisions apart."""

from hypothesis import given
from hypothesis import strategies as st

from fleetlight.cells.digests import RangeDigest, digests_of, row_digest

UUID = "6f70656e-7374-4163-8b21-6d656e756d31"
REVISIONS = st.dictionaries(st.uuids().map(str), st.integers(1, 10**15), max_size=20)


def test_numbers_of_a_row_never_change() -> None:
    """Elasticsearch keeps them: another digest needs another mapping version."""
    assert row_digest(UUID, 7) == (248446166, 186405071)


def test_numbers_are_small_enough_for_exact_sums_of_doubles() -> None:
    highest = max(max(row_digest(UUID, revision)) for revision in range(2000))
    assert 2**27 < highest < 2**28
    assert 33_000_000 * 2**28 < 2**53


@given(REVISIONS, REVISIONS)
def test_equal_digests_mean_equal_revisions(one: dict[str, int], other: dict[str, int]) -> None:
    assert (digests_of(one, [""], 1) == digests_of(other, [""], 1)) == (one == other)


@given(REVISIONS)
def test_longer_ranges_add_up_to_the_shorter_ones(revisions: dict[str, int]) -> None:
    for beginning, whole in digests_of(revisions, [""], 1).items():
        parts = digests_of(revisions, [beginning], 2).values()
        sums = (sum(part.count for part in parts), sum(part.high for part in parts), sum(part.low for part in parts))
        assert RangeDigest(*sums) == whole
