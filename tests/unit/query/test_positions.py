"""The rows behind a position, and those of them that come first and that an index has in one range."""

from typing import Any

import pytest

from fleetlight.query.filters import NOTHING, And, Eq, Filter, Le, any_of, fit
from fleetlight.query.sort import Direction, SortKey, SortOrder
from fleetlight.query.to_sql import beyond, next_beyond
from fleetlight.resources.fields import Field, ItemType, Kind
from tests.support.oracles.filter_oracle import is_behind, is_kept

FIELDS = ItemType(
    "thing",
    (
        Field("uuid", "UUID", Kind.TEXT, "Identifier"),
        Field("name", "Name", Kind.TEXT, "Some text"),
        Field("size", "Size", Kind.NUMBER, "Some number"),
    ),
)
RECORDS: list[dict[str, Any]] = [
    {"uuid": f"{size}-{name}-{number}", "name": name, "size": size}
    for size in (None, 4, 5, 6)
    for name in (None, "a", "b")
    for number in range(2)
]


def order(direction: Direction, *more: SortKey) -> SortOrder:
    return SortOrder.of(FIELDS, [SortKey("size", direction), *more])


LARGEST_FIRST = order(Direction.DESC, SortKey("name"))


def kept(node: Filter) -> list[str]:
    return [record["uuid"] for record in RECORDS if is_kept(node, record, FIELDS)]


@pytest.mark.parametrize("place", range(len(RECORDS)))
def test_rows_that_come_first_behind_a_value_are_those_that_have_one(place: int) -> None:
    position = LARGEST_FIRST.values(RECORDS[place])
    node = next_beyond(LARGEST_FIRST, position)
    if RECORDS[place]["size"] is None:
        assert node is None, "there is no row behind it that has one"
        return
    assert isinstance(node, And)
    assert Le("size", RECORDS[place]["size"]) in node.terms, "an index has them in one range"
    behind = [row for row in RECORDS if is_behind(row, LARGEST_FIRST, position) and row["size"] is not None]
    assert kept(node) == [row["uuid"] for row in behind]


def test_all_rows_are_in_one_range_from_low_to_high_and_by_the_unique_key_alone() -> None:
    assert next_beyond(order(Direction.ASC, SortKey("name", Direction.DESC)), (5, "a", "x")) is None
    assert next_beyond(SortOrder.of(FIELDS, [SortKey("uuid", Direction.DESC)]), ("x",)) is None
    assert next_beyond(order(Direction.DESC), (5, "x")) is not None


@pytest.mark.parametrize("position", [(5,), (5, "a"), (5, "a", "x", "y")])
def test_position_of_another_order_is_refused(position: tuple[object, ...]) -> None:
    with pytest.raises(ValueError, match="argument"):
        beyond(LARGEST_FIRST, position)


def test_what_a_store_can_never_hold_goes_from_every_place_of_the_tree() -> None:
    too_large, fits = Eq("size", 2**63), Eq("size", 5)
    assert fit(too_large, "postgresql") == NOTHING
    assert fit(any_of(fits, too_large), "postgresql") == fits
    assert fit(any_of(fits, Eq("name", "a\0")), "postgresql") == fits
    assert fit(any_of(fits, Eq("name", "a\0")), "sqlite") == any_of(fits, Eq("name", "a\0"))
