from itertools import pairwise

import pytest

from query.sort import Direction, SortKey, SortOrder
from resources.errors import UnknownFieldError
from resources.instance import INSTANCE_FIELDS


def test_uuid_ends_every_order() -> None:
    order = SortOrder.of(INSTANCE_FIELDS, [SortKey("host", Direction.DESC)])
    assert order.keys == (SortKey("host", Direction.DESC), SortKey("uuid"))


def test_what_follows_uuid_or_repeats_a_key_is_dropped() -> None:
    keys = [SortKey("host"), SortKey("host", Direction.DESC), SortKey("uuid", Direction.DESC), SortKey("node")]
    assert SortOrder.of(INSTANCE_FIELDS, keys).keys == (SortKey("host"), SortKey("uuid", Direction.DESC))


@pytest.mark.parametrize("name", ["nope", "metadata", "tags"])
def test_field_without_an_order_is_refused(name: str) -> None:
    with pytest.raises(UnknownFieldError, match=name):
        SortOrder.of(INSTANCE_FIELDS, [SortKey(name)])


@pytest.mark.parametrize("direction", list(Direction))
def test_null_is_lower_than_every_value(direction: Direction) -> None:
    order = SortOrder.of(INSTANCE_FIELDS, [SortKey("host", direction)])
    ascending = [None, "", "A", "a", "\uffff", "😀"]
    hosts = ascending if direction is Direction.ASC else ascending[::-1]
    for before, behind in pairwise(hosts):
        assert order.comparable((before, "1")) < order.comparable((behind, "0"))


def test_ties_are_broken_by_uuid_ascending() -> None:
    order = SortOrder.of(INSTANCE_FIELDS, [SortKey("host", Direction.DESC)])
    assert order.comparable((None, "0")) < order.comparable((None, "1"))
