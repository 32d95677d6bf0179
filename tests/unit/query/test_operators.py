"""Every operator on values of every kind: in Python and on SQLite it keeps what the oracle of the tests keeps."""

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import Connection

from fleetlight.query.evaluate import evaluate, matcher, sorted_page
from fleetlight.query.filters import (
    Eq,
    Filter,
    Ge,
    Gt,
    Has,
    HasAddress,
    HasAny,
    HasName,
    In,
    IsNull,
    IsTrue,
    Le,
    Lt,
    Matches,
    check,
    negate,
)
from fleetlight.query.operators.anything import AtTime, Compares, Contains, Finds, PythonOnlyLeaf, Same, Says
from fleetlight.query.operators.comparison import (
    MAX_TERM_BYTES,
    can_hold,
    is_too_long,
    require_comparable,
    require_filterable,
)
from fleetlight.query.operators.lists import fixed_addresses
from fleetlight.query.page import PageRequest
from fleetlight.query.sort import Direction, SortKey, SortOrder
from fleetlight.query.to_dsl import to_dsl
from fleetlight.query.to_sql import can_express, to_sql
from fleetlight.query.tree import Store
from fleetlight.resources.errors import FilterValueError, UnknownFieldError
from fleetlight.resources.fields import Field, ItemType, Kind
from tests.property.query_strategies import ADDRESSES, EPOCH, FIELDS, FLOATS, NUMBERS, STATES, TAGS, TEXTS, TIMES
from tests.support.fleets.things import THINGS, connected_things
from tests.support.oracles.filter_oracle import expected_page, is_kept


def _uuid(number: int) -> str:
    return f"7a1d5a0a-90b1-4f36-8f6e-{number:012d}"


NOTHING_SET: dict[str, Any] = dict.fromkeys(FIELDS) | {"uuid": _uuid(0), "tags": []}
RECORDS: list[dict[str, Any]] = [
    NOTHING_SET,
    *(
        {
            "uuid": _uuid(number + 1),
            "name": text,
            "state": STATES[number % len(STATES)],
            "size": NUMBERS[number % len(NUMBERS)],
            "load": FLOATS[number % len(FLOATS)],
            "created_at": TIMES[number % len(TIMES)],
            "locked": number % 2 == 0,
            "tags": list(TAGS[: number % 4]),
            "addresses": ADDRESSES[number % len(ADDRESSES)],
        }
        for number, text in enumerate(TEXTS)
    ),
]
SECOND = EPOCH.replace(second=1)
OPERATORS: list[Filter] = [
    Eq("name", "a"),
    Eq("size", 2**63),
    Eq("created_at", EPOCH),
    In("name", ("a", "web-10", "nobody")),
    In("name", (*(f"name-{number}" for number in range(501)), "a\0", "b")),
    In("size", ()),
    Lt("name", "a"),
    Le("size", 1),
    Gt("load", 0.0),
    Ge("created_at", SECOND),
    Lt("size", 10**30),
    Ge("size", -(10**30)),
    IsNull("name"),
    IsNull("tags"),
    Matches("name", "^a"),
    Matches("size", "^1"),
    Matches("created_at", "^1970-01-01 00:00:0"),
    Has("tags", "A"),
    HasAny("tags"),
    HasName("name", "a"),
    HasName("name", "k"),
    HasName("name", "A.B"),
    HasAddress("addresses", "10.0.0.1"),
    HasAddress("addresses", "203"),
    HasAddress("addresses", ""),
    *(IsTrue(name) for name in ("name", "size", "load", "created_at", "locked", "tags")),
]


@pytest.fixture(scope="module")
def connection() -> Iterator[Connection]:
    with connected_things() as connection:
        connection.execute(THINGS.insert(), RECORDS)
        yield connection


@pytest.mark.parametrize("node", [each for node in OPERATORS for each in (node, negate(node))], ids=repr)
def test_operator_keeps_what_the_oracle_keeps(connection: Connection, node: Filter) -> None:
    check(node, FIELDS)
    kept = [record["uuid"] for record in RECORDS if is_kept(node, record, FIELDS)]
    assert [record["uuid"] for record in RECORDS if evaluate(node, record, FIELDS)] == kept
    statement = THINGS.select().where(to_sql(node, THINGS.c, FIELDS, "sqlite")).order_by(THINGS.c.uuid)
    assert [row.uuid for row in connection.execute(statement)] == kept
    assert negate(negate(node)) == node


@pytest.mark.parametrize("direction", list(Direction))
@pytest.mark.parametrize("after", [None, 4, 20])
def test_page_of_rows_in_memory_is_that_of_the_oracle(direction: Direction, after: int | None) -> None:
    order = SortOrder.of(FIELDS, [SortKey("size", direction), SortKey("state")])
    request = PageRequest(IsTrue("locked"), order, 5)
    if after is not None:
        request = replace(request, after=order.values(RECORDS[after]))
    assert sorted_page(RECORDS, request) == expected_page(RECORDS, request, FIELDS)


def test_fields_to_read_are_those_that_are_shown_sorted_by_and_tried() -> None:
    order = SortOrder.of(FIELDS, [SortKey("size")])
    request = PageRequest(Eq("name", "a"), order, 5, fields=("state",))
    assert request.fields_to_read() == ("uuid", "state", "size")
    assert request.fields_to_read(Eq("locked", True), Has("tags", "a")) == ("uuid", "state", "size", "locked", "tags")
    assert replace(request, fields=None).fields_to_read(Eq("locked", True)) is None


@pytest.mark.parametrize(
    ("node", "true_of", "false_of"),
    [
        (Same("f", [1, {"a": None}]), [[1, {"a": None}]], [[1], "x"]),
        (Contains("f", "b"), ["abc", ["b"]], ["ac", ["abc"], 5, {"b": 1}]),
        (Contains("f", 1), [[2, 1]], ["1", [None, "1"]]),
        (Contains("f", None), [], [[None], "None"]),
        (Finds("f", "^b"), ["bc"], ["cb", ["bc"], 5]),
        (Says("f"), [1, "a", [0]], [0, "", [], {}, False]),
        (Compares("f", "<", 2), [1, 1.5], [2, "1", True, [1]]),
        (Compares("f", "<=", 2), [2], [3]),
        (Compares("f", ">", "b"), ["c"], ["b", "a", 3]),
        (Compares("f", ">=", "b"), ["b"], ["a"]),
        (AtTime("f", "==", 3_000_005), [[3, 5]], [[3, 4], [3], 3_000_005, ["3", 5], [3, 5, 0]]),
        (AtTime("f", "==", 3_000_000, in_seconds=True), [[3, 5], [3, 0]], [[4, 0]]),
        (AtTime("f", "<", 3_000_005), [[3, 4]], [[3, 5]]),
    ],
    ids=repr,
)
def test_what_looks_into_a_value_is_left_to_python_and_open_of_a_null(
    node: PythonOnlyLeaf, true_of: list[Any], false_of: list[Any]
) -> None:
    fields = ItemType("thing", (Field("f", "F", Kind.OTHER, "Anything"),), unique="f")
    is_true, is_not = matcher(node, fields), matcher(negate(node), fields)
    assert [(is_true({"f": value}), is_not({"f": value})) for value in true_of] == [(True, False)] * len(true_of)
    assert [(is_true({"f": value}), is_not({"f": value})) for value in false_of] == [(False, True)] * len(false_of)
    assert (is_true({"f": None}), is_not({"f": None})) == (False, False)
    assert not can_express(node, "postgresql")


@pytest.mark.parametrize(
    ("value", "holders"),
    [
        (2**63 - 1, {"sqlite", "postgresql", "mysql", "elasticsearch"}),
        (-(2**63), {"sqlite", "postgresql", "mysql", "elasticsearch"}),
        (2**63, set()),
        (-(2**63) - 1, set()),
        ("a\0", {"sqlite", "mysql", "elasticsearch"}),
        ("x" * MAX_TERM_BYTES, {"sqlite", "postgresql", "mysql", "elasticsearch"}),
        ("x" * (MAX_TERM_BYTES + 1), {"sqlite", "postgresql", "mysql"}),
        ("é" * (MAX_TERM_BYTES // 2 + 1), {"sqlite", "postgresql", "mysql"}),
        (0.5, {"sqlite", "postgresql", "mysql", "elasticsearch"}),
    ],
    ids=lambda given: " ".join(sorted(given)) if isinstance(given, set) else repr(given)[:20],
)
def test_value_is_sent_only_to_stores_that_can_hold_it(value: Any, holders: set[Store]) -> None:
    stores: tuple[Store, ...] = ("sqlite", "postgresql", "mysql", "elasticsearch")
    assert {store for store in stores if can_hold(store, value)} == holders


def test_term_of_text_beyond_ascii_is_measured_in_bytes() -> None:
    assert not is_too_long("😀" * (MAX_TERM_BYTES // 4))
    assert is_too_long("😀" * (MAX_TERM_BYTES // 4 + 1))


def test_field_that_can_only_be_read_is_refused_by_its_name() -> None:
    for kind in (Kind.UNKNOWN, Kind.OTHER):
        with pytest.raises(UnknownFieldError, match="'f' to filter by"):
            require_filterable(Field("f", "F", kind, "Anything"))
    with pytest.raises(FilterValueError) as refused:
        require_comparable(FIELDS["tags"], "a")
    says = "cannot compare field 'tags' with 'a': expected an element that the list has or lacks"
    assert str(refused.value) == says


@pytest.mark.parametrize(
    ("node", "says"),
    [
        (HasAddress("name", "1"), "field 'name' with '1': expected no address: the field holds none"),
        (HasAddress("addresses", "\ud800"), "field 'addresses' with '\\ud800': expected text of valid Unicode"),
        (HasAny("size"), "field 'size' with '': expected no element: the field is not a list"),
        (negate(HasAny("size")), "field 'size' with '': expected no element: the field is not a list"),
    ],
)
def test_operator_of_lists_and_addresses_is_refused_where_there_are_none(node: Filter, says: str) -> None:
    with pytest.raises(FilterValueError) as refused:
        check(node, FIELDS)
    assert str(refused.value) == f"cannot compare {says}"


def test_addresses_that_are_fixed_are_those_that_are_not_said_to_be_of_another_type() -> None:
    entries = json.loads('[{"address": "a"}, {"address": "b", "type": "floating"}, {"address": "c", "type": "fixed"}]')
    assert list(fixed_addresses(entries)) == ["a", "c"]
    assert list(fixed_addresses(None)) == []


def test_filter_of_more_terms_than_a_query_may_have_is_cut_into_several() -> None:
    values = tuple(f"{number}" for number in range(65_537))
    first, second = to_dsl(In("name", values), FIELDS)["bool"]["should"]
    assert (first["terms"]["name"], second["terms"]["name"]) == (list(values[:-1]), ["65536"])
    assert to_dsl(In("name", values), FIELDS)["bool"]["minimum_should_match"] == 1
