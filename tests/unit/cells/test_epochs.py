"""Whether a change is part of a cell's past."""

import pytest

from fleetlight.cells.epochs import EpochHistory

LINEAGE = EpochHistory([("first", 0), ("second", 10), ("third", 25)])


@pytest.mark.parametrize(
    ("epoch", "sequence", "is_past"),
    [
        ("first", 10, True),
        ("first", 11, False),
        ("second", 3, True),
        ("second", 25, True),
        ("second", 26, False),
        ("third", 1_000, True),
        ("of another history", 1, False),
    ],
)
def test_epoch_ends_where_the_next_one_begins(epoch: str, sequence: int, is_past: bool) -> None:
    assert LINEAGE.contains(epoch, sequence) is is_past


def test_newest_epoch_is_the_current_one() -> None:
    assert LINEAGE.current == "third"
    assert EpochHistory([]).current is None
