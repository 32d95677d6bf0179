"""Ranges that differ are found exactly, and reading grows with the differences."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from uuid import UUID

import pytest

from fleetlight.cells.digests import RangeDigest, digests_of
from fleetlight.indexer.reconcile.ranges import ComparisonCounts, differing
from tests.support.fleets.documents import make_uuid


@dataclass
class Store:
    """A Comparable in memory; remembers the most prefixes and revisions that it was asked for at once."""

    versions: Mapping[str, int]
    most_prefixes: int = 0
    most_read: int = 0
    lengths: list[int] = field(default_factory=list)

    def digests(self, prefixes: Sequence[str], length: int) -> Mapping[str, RangeDigest]:
        assert len({len(prefix) for prefix in prefixes}) == 1
        self.most_prefixes = max(self.most_prefixes, len(prefixes))
        self.lengths.append(length)
        return digests_of(self.versions, prefixes, length)

    def revisions(self, prefixes: Sequence[str]) -> Mapping[str, int]:
        found = {uuid: version for uuid, version in self.versions.items() if uuid.startswith(tuple(prefixes))}
        self.most_read = max(self.most_read, len(found))
        return found


def compare(one: Store, other: Store) -> tuple[list[str], ComparisonCounts]:
    seen = ComparisonCounts()
    found = [uuid for batch in differing(one, other, seen, lambda: None) for uuid in batch]
    return found, seen


def make_versions(count: int, seed: int = 1) -> dict[str, int]:
    random = Random(seed)
    return {str(UUID(int=random.getrandbits(128), version=4)): random.randrange(1, 5) for _ in range(count)}


def test_equal_stores_are_compared_without_reading() -> None:
    versions = make_versions(2000)
    one = Store(versions)
    found, seen = compare(one, Store(dict(versions)))
    assert found == []
    assert (seen.rows, seen.other_rows, seen.rows_read) == (2000, 2000, 0)
    assert one.lengths == [1]


def test_empty_stores_are_equal() -> None:
    assert compare(Store({}), Store({}))[0] == []


@pytest.mark.parametrize("differences", [1, 10, 100])
def test_what_is_read_grows_with_the_differences(differences: int) -> None:
    versions = make_versions(5000)
    changed = Random(2).sample(sorted(versions), differences)
    one, other = Store(versions), Store({**versions, **dict.fromkeys(changed, 9)})
    found, seen = compare(one, other)
    assert sorted(found) == sorted(changed)
    assert seen.rows_read <= 2 * 16 * differences


def test_store_that_lost_everything_is_compared_a_batch_at_a_time() -> None:
    versions = make_versions(5000)
    full = Store(versions)
    found, seen = compare(Store({}), full)
    assert sorted(found) == sorted(versions)
    assert (seen.rows, seen.other_rows) == (0, 5000)
    assert full.most_prefixes <= 64
    assert full.most_read <= 64 * 16


def test_uuids_that_share_a_long_beginning_are_divided_at_its_end() -> None:
    versions = {make_uuid(number): 1 for number in range(300)}
    found, seen = compare(Store(versions), Store({**versions, make_uuid(7): 2}))
    assert found == [make_uuid(7)]
    assert seen.rows_read <= 32


def test_uuid_that_another_one_begins_with_is_a_range_of_its_own() -> None:
    versions = {"a" * 9: 1, **{"a" * 9 + str(number): 1 for number in range(100)}}
    assert compare(Store(versions), Store({**versions, "a" * 9: 2}))[0] == ["a" * 9]
    assert compare(Store(versions), Store({**versions, "a" * 10: 2}))[0] == ["a" * 10]


def test_range_of_which_a_store_says_two_things_is_named_whole() -> None:
    """Its digest is another one although all revisions are the same: what it says of itself is not true."""

    class Liar(Store):
        def digests(self, prefixes: Sequence[str], length: int) -> Mapping[str, RangeDigest]:
            found = super().digests(prefixes, length)
            return {
                beginning: replace(digest, low=digest.low + beginning.startswith("0"))
                for beginning, digest in found.items()
            }

    versions = {make_uuid(number): 1 for number in range(3)} | {f"f{make_uuid(9)[1:]}": 1}
    found, _ = compare(Store(versions), Liar(versions))
    assert found == [uuid for uuid in sorted(versions) if uuid.startswith("0")]
