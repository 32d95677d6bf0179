"""Expressions of Query2 against an evaluation of the tests' own, which follows the contract's tables row by row."""

import math
import re
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from fleetlight.query.errors import ExpressionError
from fleetlight.query.evaluate import matcher
from fleetlight.query.expressions import MAX_LEVELS, at_moment, to_filter
from fleetlight.resources.fields import ItemType, Kind
from fleetlight.resources.query_fields.catalog import ITEM_TYPES
from fleetlight.resources.query_fields.definitions import FieldFlag, QueryField, QueryFields
from tests.support.examples import examples

FIELDS = QueryFields(
    "thing",
    (
        QueryField("uuid", "UUID", Kind.TEXT, "Identifier"),
        QueryField("name", "Name", Kind.TEXT, "Name", flags=FieldFlag.HOSTNAME),
        QueryField("text", "Text", Kind.TEXT, "Text"),
        QueryField("flag", "Flag", Kind.BOOL, "Flag"),
        QueryField("number", "Number", Kind.NUMBER, "Number"),
        QueryField("size", "Size", Kind.UNIT, "Size"),
        QueryField("float", "Float", Kind.FLOAT, "Float"),
        QueryField("time", "Time", Kind.TIMESTAMP, "Time"),
        QueryField("other", "Other", Kind.OTHER, "Other"),
        QueryField("list", "List", Kind.OTHER, "List", is_list=True),
        QueryField("id", "ID", Kind.NUMBER, "Number of the job", flags=FieldFlag.JOB_ID),
        QueryField("began", "Began", Kind.OTHER, "Split time", flags=FieldFlag.SPLIT_TIMESTAMP),
    ),
    {},
)
ITEM: dict[str, Any] = {
    "uuid": "u",
    "name": "node1.example.com",
    "text": "web-01",
    "flag": True,
    "number": 5,
    "size": 2048,
    "float": 1.5,
    "time": 1_700_000_000_250_000,
    "other": {"a": [1]},
    "list": ["x", "y"],
    "id": 12,
    "began": [1_700_000_000, 5],
}


def is_kept(expression: object, item: Mapping[str, Any] = ITEM, fields: ItemType = FIELDS) -> bool:
    return matcher(to_filter(expression, fields), fields)(item)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (None, True),
        (["|"], False),
        (["&"], True),
        (["?", "flag"], True),
        (["?", "number"], True),
        (["?", "other"], True),
        (["?", "list"], True),
        (["==", "flag", True], True),
        (["=", "flag", False], False),
        (["==", "name", "node1"], True),
        (["==", "name", "NODE1.example"], True),
        (["==", "name", "node1.exam"], False),
        (["!=", "name", "node1"], False),
        (["<", "name", "node1.f"], True),
        (["==", "text", "web"], False),
        (["=[]", "text", "b-0"], True),
        (["=[]", "text", "."], False),
        (["=~", "text", "^WEB"], False),
        (["=~", "text", "(?i)^WEB"], True),
        (["=~", "text", "[0-9]$"], True),
        (["<", "text", "web-010"], True),
        ([">=", "number", 5], True),
        ([">", "number", 5], False),
        (["=[]", "number", 5], False),
        (["<=", "size", 2048], True),
        (["==", "float", 1.5], True),
        ([">", "float", 1], True),
        (["==", "float", 1], False),
        (["!", ["==", "float", 2]], True),
        (["|", ["==", "float", 1], ["==", "float", 3]], False),
        ([">", "time", 1_700_000_000], True),
        (["==", "time", 1_700_000_000.25], True),
        (["==", "other", {"a": [1]}], True),
        (["==", "other", [1]], False),
        (["<", "other", "z"], False),
        (["=~", "other", "a"], False),
        (["=[]", "other", "a"], False),
        (["=[]", "list", "x"], True),
        (["!", ["=[]", "list", "x"]], False),
        (["=[]", "list", 1], False),
        (["==", "list", ["x", "y"]], True),
        (["<", "id", "13"], True),
        (["==", "id", 12], True),
        (["==", "began", [1_700_000_000, 5]], True),
        (["==", "began", 1_700_000_000], True),
        ([">", "began", 1_700_000_000], False),
        ([">", "began", 1_700_000_000.0], True),
        (["<", "began", 1_700_000_000.5], True),
        ([">", "time", "2023-11-14T22:13:20Z"], True),
        (["==", "time", "2023-11-15 00:13:20.250+02:00"], True),
        (["<=", "time", "2023-11-14T22:13:20"], False),
        (["<", "time", "2023-11-15"], True),
        (["==", "time", "2023-11-14T22:13:20Z"], False),
        (["<", "began", "2023-11-14T22:13:20.5Z"], True),
        (["!", ["|", ["?", "flag"], ["==", "number", 1]]], False),
    ],
)
def test_condition_means_what_the_contract_says(expression: object, expected: bool) -> None:
    assert is_kept(expression) is expected


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ([">", "time", "10m ago"], True),
        ([">", "time", "599s ago"], False),
        (["&", [">=", "began", "1h ago"], ["!", ["<", "time", "2 h ago"]]], True),
        (["|", ["<", "time", "1w ago"], ["<", "began", "1d ago"]], False),
        ([">", "time", "999999999w ago"], True),
        (["==", "text", "10m ago"], False),
    ],
)
def test_time_that_is_said_to_be_ago_is_before_the_moment_of_the_list(expression: object, expected: bool) -> None:
    ten_minutes_later = ITEM["time"] + 600_000_000 - 1
    assert is_kept(at_moment(ten_minutes_later, expression, FIELDS)) is expected


@pytest.mark.parametrize("text", ["10m ago", "10 minutes ago", "ago", "-1m ago", "1y ago", "in 10m"])
def test_what_is_no_moment_is_refused_and_shown_what_is_one(text: str) -> None:
    for expression in ([">", "time", text], at_moment(0, [">", "began", text.replace("10m ago", "10M ago")], FIELDS)):
        with pytest.raises(ExpressionError, match=r"a time such as '2026-11-28T18:00Z' \(or, in a list, '10m ago'\)"):
            to_filter(expression, FIELDS)


CONDITIONS = (
    ["?", "text"],
    ["?", "other"],
    ["==", "text", "no"],
    ["==", "name", "no"],
    ["<", "number", 0],
    ["=~", "text", "no"],
    ["=~", "other", "no"],
    ["=[]", "text", "no"],
    ["=[]", "other", "no"],
    [">", "time", 9_000_000_000],
    ["<", "began", 0],
)


@pytest.mark.parametrize("condition", CONDITIONS, ids=str)
def test_item_without_the_value_is_kept_and_the_negation_drops_it(condition: list[object]) -> None:
    item = {**ITEM, str(condition[1]): None}
    assert is_kept(condition, item)
    assert not is_kept(["!", condition], item)
    assert is_kept(["!", ["!", condition]], item)


def test_not_equal_drops_an_item_without_the_value() -> None:
    assert not is_kept(["!=", "text", "no"], {**ITEM, "text": None})


@pytest.mark.parametrize(
    ("expression", "says"),
    [
        ([], "Invalid filter on level 0"),
        ("name", "Invalid filter on level 0"),
        ({"name": 1}, "Invalid filter on level 0"),
        (["&", []], "Invalid filter on level 1"),
        (["~", "name", "x"], "Unknown operator '~'"),
        ([["=="], "name"], "Unknown operator a list"),
        (["!"], "Unary operator '!' expects exactly one operand"),
        (["?", "flag", "flag"], "Unary operator '?' expects exactly one operand"),
        (["==", "name"], "Invalid binary operator, expected exactly two operands"),
        (["==", "missing", 1], "Unknown field 'missing'"),
        (["?", ["flag"]], "Unknown field a list"),
        (["==", "number", "5"], "field 'number' (type 'number') by '==' with '5', expected a whole number"),
        (["==", "number", True], "field 'number' (type 'number') by '==' with True"),
        (["==", "number", None], "field 'number' (type 'number') by '==' with None"),
        (["==", "text", 5], "field 'text' (type 'text') by '==' with 5"),
        (["==", "float", 2**60], "field 'float' (type 'float') by '==' with 1152921504606846976"),
        (["==", "float", True], "field 'float' (type 'float') by '==' with True"),
        (["|", ["==", "float", 1], ["==", "float", "1"]], "field 'float' (type 'float') by '==' with '1'"),
        (["<", "flag", 1], "field 'flag' (type 'bool') by '<' with 1"),
        (["==", "flag", "True"], "field 'flag' (type 'bool') by '==' with 'True'"),
        (["==", "id", "12"], "field 'id' (type 'number') by '==' with '12'"),
        ([">", "time", "now"], "field 'time' (type 'timestamp') by '>' with 'now'"),
        ([">", "time", 1e300], "field 'time' (type 'timestamp')"),
        ([">", "time", math.nan], "field 'time' (type 'timestamp')"),
        (["<", "began", [1, "2"]], "field 'began' (type 'other')"),
        (["<", "other", [1]], "field 'other' (type 'other') by '<' with a list"),
        (["=~", "number", "5"], "field 'number' (type 'number') by '=~'"),
        (["=~", "text", 5], "field 'text' (type 'text') by '=~' with 5"),
        (["=~", "list", "x"], "field 'list' (type 'other') by '=~' with 'x', expected an element"),
        (["<", "id", "9" * 5000], "field 'id' (type 'number') by '<'"),
        (["=~", "text", "("], "Invalid regex pattern"),
        (["=~", "other", "(a)\\1"], "Invalid regex pattern"),
        (["=[]", "text", 1], "field 'text' (type 'text') by '=[]' with 1"),
    ],
    ids=str,
)
def test_refusal_names_operator_field_and_value(expression: object, says: str) -> None:
    with pytest.raises(ExpressionError) as refused:
        to_filter(expression, FIELDS)
    assert says in str(refused.value)


@pytest.mark.parametrize("value", ["x", [1], [1, "2"], [1, 2, 3], {}])
def test_damaged_split_time_is_at_no_time(value: object) -> None:
    for operator in ("==", "<", ">="):
        assert not is_kept([operator, "began", 1], {**ITEM, "began": value})


def _nested(wrappers: int) -> list[object]:
    expression: list[object] = ["?", "flag"]
    for _ in range(wrappers):
        expression = ["!", expression]
    return expression


def test_condition_may_be_inside_nine_lists_and_not_inside_ten() -> None:
    assert MAX_LEVELS == 10
    assert is_kept(_nested(9)) is False
    for wrappers in (10, 5000):
        with pytest.raises(ExpressionError, match="Only up to 10 levels"):
            to_filter(_nested(wrappers), FIELDS)


def test_boolean_fields_take_true_and_no_number() -> None:
    instances = ITEM_TYPES["instance"]
    to_filter(["==", "admin_up", True], instances)
    for value in (1, "True"):
        with pytest.raises(ExpressionError, match="admin_up"):
            to_filter(["==", "admin_up", value], instances)


TEXTS = ("", "a", "A", "ab", "a.b", "é")
NUMBERS = (-1, 0, 1, 2**63)
FLOATS = (-0.5, 0.0, 1.5)
ANYTHING = st.sampled_from(["", "ab", 0, 3, 1.5, True, [], ["ab", None], [3], {}])

_items = st.fixed_dictionaries(
    {
        "uuid": st.just("u"),
        "name": st.sampled_from((*TEXTS, None)),
        "text": st.sampled_from((*TEXTS, None)),
        "flag": st.sampled_from((True, False, None)),
        "number": st.sampled_from((*NUMBERS, None)),
        "size": st.sampled_from((0, 128, None)),
        "float": st.sampled_from((*FLOATS, None)),
        "time": st.sampled_from((0, 1_500_000, None)),
        "other": st.one_of(st.none(), ANYTHING),
        "list": st.lists(st.sampled_from(TEXTS), max_size=2),
        "id": st.sampled_from((1, 12)),
        "began": st.sampled_from(([1, 500_000], None)),
    }
)
_ORDER = st.sampled_from(("<", "<=", ">", ">=", "==", "=", "!="))
_conditions = st.one_of(
    st.tuples(st.just("?"), st.sampled_from(sorted(set(FIELDS) - {"began"}))),
    st.tuples(_ORDER, st.sampled_from(("name", "text")), st.sampled_from(TEXTS)),
    st.tuples(_ORDER, st.just("number"), st.sampled_from(NUMBERS)),
    st.tuples(_ORDER, st.just("float"), st.sampled_from(FLOATS)),
    st.tuples(_ORDER, st.just("flag"), st.booleans()),
    st.tuples(_ORDER, st.just("time"), st.sampled_from((0, 1, 1.5))),
    st.tuples(_ORDER, st.just("began"), st.sampled_from((1, 1.5, [1, 500_000]))),
    st.tuples(st.sampled_from(("==", "!=")), st.just("other"), ANYTHING),
    st.tuples(st.just("=[]"), st.sampled_from(("text", "other", "list")), st.sampled_from(TEXTS)),
    st.tuples(st.just("=~"), st.sampled_from(("text", "other", "name")), st.sampled_from(("a", "^$", "(?i)A"))),
)
_expressions = st.recursive(
    _conditions.map(list),
    lambda inner: st.one_of(
        inner.map(lambda term: ["!", term]),
        st.lists(inner, max_size=3).map(lambda terms: ["&", *terms]),
        st.lists(inner, max_size=3).map(lambda terms: ["|", *terms]),
    ),
    max_leaves=6,
)


def oracle(expression: list[Any], item: Mapping[str, Any]) -> bool:
    """What the contract says of an item, in two values: a condition on what is missing is true."""
    operator, *operands = expression
    match operator:
        case "&":
            return all(oracle(term, item) for term in operands)
        case "|":
            return any(oracle(term, item) for term in operands)
        case "!":
            return not oracle(operands[0], item)
        case "!=":
            return not oracle(["==", *operands], item)
    name = operands[0]
    value = item[name]
    if value is None:
        return True
    if operator == "?":
        return bool(value)
    literal = operands[1]
    if name == "time":
        value /= 1e6
    if name == "began":
        value = value[0] if type(literal) is int else value[0] + value[1] / 1e6
        literal = literal[0] + literal[1] / 1e6 if isinstance(literal, list) else literal
    return _oracle_of_value(operator, name, value, literal)


def _oracle_of_value(operator: str, name: str, value: Any, literal: Any) -> bool:
    match operator:
        case "==" | "=":
            if name == "name":
                return bool(re.fullmatch(re.escape(literal) + r"(\..*)?", value, re.IGNORECASE | re.ASCII))
            return bool(value == literal)
        case "=[]":
            return isinstance(value, str | list) and literal in value
        case "=~":
            return isinstance(value, str) and re.search(literal, value) is not None
    return bool({"<": value < literal, "<=": value <= literal, ">": value > literal, ">=": value >= literal}[operator])


@settings(max_examples=examples(400))
@given(_expressions, _items)
def test_expressions_keep_what_the_contract_keeps(expression: list[Any], item: dict[str, Any]) -> None:
    kept = oracle(expression, item)
    event(f"kept: {kept}, missing: {None in item.values()}")
    assert is_kept(expression, item) is kept
