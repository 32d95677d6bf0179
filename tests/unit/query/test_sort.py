from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from sqlalchemy import column

from fleetlight.query.errors import NotExpressibleError
from fleetlight.query.sort import Collation, Direction, SortKey, SortOrder, nice_key
from fleetlight.query.to_dsl import search_after, sort
from fleetlight.query.to_sql import order_by
from fleetlight.resources.errors import UnknownFieldError
from fleetlight.resources.fields import Field, ItemType, Kind
from fleetlight.resources.instance import INSTANCE_FIELDS
from tests.support.oracles.nice_order import parts


def test_uuid_ends_every_order() -> None:
    order = SortOrder.of(INSTANCE_FIELDS, [SortKey("host", Direction.DESC)])
    assert order.keys == (SortKey("host", Direction.DESC), SortKey("uuid"))


def test_what_follows_uuid_or_repeats_a_key_is_dropped() -> None:
    keys = [SortKey("host"), SortKey("host", Direction.DESC), SortKey("uuid", Direction.DESC), SortKey("node")]
    assert SortOrder.of(INSTANCE_FIELDS, keys).keys == (SortKey("host"), SortKey("uuid", Direction.DESC))


@pytest.mark.parametrize("name", ["nope", "metadata", "tags"])
def test_field_without_an_order_is_refused(name: str) -> None:
    with pytest.raises(UnknownFieldError, match=f"'{name}' to sort by"):
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


NAMED = ItemType(
    "node",
    (Field("name", "Name", Kind.TEXT, "Name of the node"), Field("size", "Size", Kind.NUMBER, "Its size")),
    unique="name",
)
NICE = SortKey("name", collation=Collation.NICE)
# The example of Ganeti's own.
IN_NICE_ORDER = ["", "9b", "10", "A1", "a", "a1", "a1.2", "a1b9", "a1b10", "a2", "a10", "b"]


def test_numbers_in_names_compare_as_numbers_in_nice_order() -> None:
    assert sorted(sorted(IN_NICE_ORDER), key=nice_key) == IN_NICE_ORDER
    assert nice_key("a01") == nice_key("a1")
    assert nice_key("a" + "9" * 5000) < nice_key("a1" + "0" * 5000)


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("a010b", "a\1\x1210b"),
        ("0", "\1\x10"),
        ("\0\1\2", "\2\1\2\2\2\3"),
        ("9" * 0xD7EF, "\1\ud7ff" + "9" * 0xD7EF),
        # No character of UTF-8 says so many digits: the next ones are those behind the surrogates.
        ("9" * 0xD7F0, "\1\ue000" + "9" * 0xD7F0),
    ],
    ids=len,
)
def test_keys_of_nice_order_are_what_stores_have_kept(name: str, key: str) -> None:
    assert nice_key(name) == key
    assert nice_key(name).encode().decode() == key


@pytest.mark.parametrize("direction", list(Direction))
def test_nice_order_has_nulls_where_every_order_has_them(direction: Direction) -> None:
    order = SortOrder.of(INSTANCE_FIELDS, [SortKey("host", direction, Collation.NICE)])
    hosts = [None, *IN_NICE_ORDER]
    for before, behind in pairwise(hosts if direction is Direction.ASC else hosts[::-1]):
        assert order.comparable((before, "1")) < order.comparable((behind, "0"))
    assert order.comparable(("a01", "0")) < order.comparable(("a1", "1"))


def test_unique_key_is_that_of_the_item_type() -> None:
    assert SortOrder.of(NAMED, [SortKey("size")]).keys == (SortKey("size"), SortKey("name"))
    assert SortOrder.of(NAMED, [SortKey("name"), SortKey("size")]).keys == (SortKey("name"),)


def test_nice_order_of_the_unique_key_is_total_too() -> None:
    order = SortOrder.of(NAMED, [NICE, NICE, SortKey("size")])
    assert order.keys == (NICE, SortKey("size"), SortKey("name"))
    assert order.comparable(("a01", 1, "a01")) < order.comparable(("a1", 1, "a1"))


def test_what_is_no_text_has_one_order() -> None:
    asked = SortKey("size", Direction.DESC, Collation.NICE)
    assert SortOrder.of(NAMED, [asked]).keys == (SortKey("size", Direction.DESC), SortKey("name"))


def test_stores_without_a_nice_order_are_not_asked_for_it() -> None:
    order = SortOrder.of(NAMED, [NICE])
    with pytest.raises(NotExpressibleError, match="nice order of 'name'"):
        order_by(order, {"name": column("name")}, "mysql")
    with pytest.raises(NotExpressibleError, match="nice order of 'name'"):
        sort(order)


@given(st.lists(st.one_of(st.text("0019aB-\0\1\2\3é😀٣\n"), st.text(max_size=5)), min_size=2, max_size=2))
@example(["a" + "1" * 56_000, "a" + "2" * 55_000])
@example(["1", "\x01"])
def test_nice_order_compares_numbers_as_numbers_and_what_is_between_them_by_code_point(names: list[str]) -> None:
    one, other = names
    if max(map(len, names)) < 4000:  # digits that int() accepts
        assert (nice_key(one) < nice_key(other)) == (parts(one) < parts(other))
        assert (nice_key(one) == nice_key(other)) == (parts(one) == parts(other))
    else:
        assert nice_key(one) > nice_key(other)


def test_position_of_a_row_is_what_its_keys_have() -> None:
    order = SortOrder.of(NAMED, [SortKey("size", Direction.DESC)])
    assert order.values({"name": "a", "size": 7, "colour": "red"}) == (7, "a")


@pytest.mark.parametrize("values", [(7,), (7, "a", "b")])
def test_position_of_another_order_is_refused(values: tuple[object, ...]) -> None:
    with pytest.raises(ValueError, match="argument"):
        SortOrder.of(NAMED, [SortKey("size")]).comparable(values)


@pytest.mark.parametrize(("keys", "keeps"), [(["created_at"], True), ([], True), (["created_at", "host"], False)])
def test_rows_keep_their_places_where_no_key_changes_in_the_life_of_a_row(keys: list[str], keeps: bool) -> None:
    order = SortOrder.of(INSTANCE_FIELDS, [SortKey(key) for key in keys])
    assert order.keeps_places is keeps


def test_elasticsearch_sorts_names_by_the_keys_of_their_nice_order() -> None:
    keys = [SortKey("display_name", Direction.DESC, Collation.NICE), SortKey("node", collation=Collation.NICE)]
    order = SortOrder.of(INSTANCE_FIELDS, keys)
    assert sort(order)[:2] == [
        {"display_name_nice": {"order": "desc", "missing": "_last"}},
        {"node_nice": {"order": "asc", "missing": "_first"}},
    ]
    uuid = "7a1d5a0a-90b1-4f36-8f6e-000000000001"
    assert search_after(order, ("a10", None, uuid), INSTANCE_FIELDS)[:2] == [nice_key("a10"), None]


def test_elasticsearch_is_not_asked_for_one_field_in_two_orders() -> None:
    keys = [SortKey("display_name", collation=Collation.NICE), SortKey("display_name")]
    with pytest.raises(NotExpressibleError, match="in two ways"):
        sort(SortOrder.of(INSTANCE_FIELDS, keys))
