"""Each kind of leaf in all the languages, side by side."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from sqlalchemy import JSON, BigInteger, Boolean, Column, Integer, MetaData, String, Table, Text
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.sql import ClauseElement

from fleetlight.query.errors import NotExpressibleError
from fleetlight.query.filters import (
    And,
    Eq,
    Filter,
    Ge,
    Gt,
    Has,
    HasAny,
    HasName,
    HasNone,
    In,
    IsFalse,
    IsNotNull,
    IsNull,
    IsTrue,
    Lacks,
    Le,
    Lt,
    Matches,
    Ne,
    NotIn,
    NotMatches,
    Or,
)
from fleetlight.query.regex import LUCENE_OPTIONS
from fleetlight.query.sort import Direction, SortKey, SortOrder
from fleetlight.query.sql import SqlDialect
from fleetlight.query.to_dsl import search_after, sort, to_dsl, uuid_of, uuid_parts
from fleetlight.query.to_sql import after, order_by, to_sql
from fleetlight.resources.fields import Field, ItemType, Kind

FIELDS = ItemType(
    "thing",
    (
        Field("uuid", "UUID", Kind.TEXT, "Identifier"),
        Field("name", "Name", Kind.TEXT, "Text"),
        Field("size", "Size", Kind.NUMBER, "Number"),
        Field("at", "At", Kind.TIMESTAMP, "Time"),
        Field("locked", "Locked", Kind.BOOL, "Yes or no"),
        Field("load", "Load", Kind.FLOAT, "Number with a point"),
        Field("tags", "Tags", Kind.OTHER, "Texts", is_list=True),
    ),
)
TABLE = Table(
    "t",
    MetaData(),
    Column("uuid", String(36), primary_key=True),
    Column("name", Text),
    Column("size", Integer),
    Column("at", BigInteger),
    Column("locked", Boolean),
    Column("tags", JSON),
)
UUID = "178b0921-8f85-4257-88b6-2e743b5a975c"
EXISTS = {"exists": {"field": "name"}}
COUNTED = "coalesce(json_array_length(t.tags), 0)"
NOT_EMPTY = "coalesce((t.tags NOT IN (CAST('[]' AS JSONB), CAST('null' AS JSONB))), false)"


def _text(clause: ClauseElement, dialect: SqlDialect) -> str:
    implementation = sqlite.dialect() if dialect == "sqlite" else postgresql.dialect(paramstyle="named")  # type: ignore[no-untyped-call]
    return str(clause.compile(dialect=implementation, compile_kwargs={"literal_binds": True}))


@pytest.mark.parametrize(
    ("node", "on_sqlite", "on_postgresql", "dsl"),
    [
        (And(()), "1", "true", {"match_all": {}}),
        (Or(()), "0", "false", {"match_none": {}}),
        (Eq("name", "a"), "t.name = 'a'", "t.name = 'a'", {"term": {"name": "a"}}),
        (
            Ne("name", "a"),
            "t.name != 'a'",
            "t.name != 'a'",
            {"bool": {"filter": [EXISTS], "must_not": [{"term": {"name": "a"}}]}},
        ),
        (In("name", ("a", "b")), "t.name IN ('a', 'b')", "t.name IN ('a', 'b')", {"terms": {"name": ["a", "b"]}}),
        (
            NotIn("name", ("a",)),
            "(t.name NOT IN ('a'))",
            "(t.name NOT IN ('a'))",
            {"bool": {"filter": [EXISTS], "must_not": [{"terms": {"name": ["a"]}}]}},
        ),
        (In("name", ()), "0", "false", {"match_none": {}}),
        (NotIn("name", ()), "1", "true", {"match_all": {}}),
        (Lt("name", "a"), "t.name < 'a'", "(t.name COLLATE \"C\") < 'a'", {"range": {"name": {"lt": "a"}}}),
        (Le("size", 1), "t.size <= 1", "t.size <= 1", {"range": {"size": {"lte": 1}}}),
        (
            Gt("at", datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)),
            "t.at > 1000000",
            "t.at > 1000000",
            {"range": {"at": {"gt": 1_000_000}}},
        ),
        (Ge("locked", False), "t.locked >= 0", "t.locked >= false", {"range": {"locked": {"gte": False}}}),
        (IsNull("name"), "t.name IS NULL", "t.name IS NULL", {"bool": {"must_not": [EXISTS]}}),
        (IsNotNull("name"), "t.name IS NOT NULL", "t.name IS NOT NULL", EXISTS),
        (IsNull("tags"), "0", "false", {"match_none": {}}),
        (
            Matches("name", "^a-"),
            "re2_search('^a-', t.name)",
            r"""t.name COLLATE "C" ~ '^a\-'""",
            {"regexp": {"name": {"value": r"a\-.*", **LUCENE_OPTIONS}}},
        ),
        (
            NotMatches("name", "^a"),
            "re2_search('^a', t.name) = 0",
            """NOT (t.name COLLATE "C" ~ '^a')""",
            {"bool": {"filter": [EXISTS], "must_not": [{"regexp": {"name": {"value": "a.*", **LUCENE_OPTIONS}}}]}},
        ),
        (
            Has("tags", "x"),
            "list_has(t.tags, 'x')",
            "coalesce(t.tags ? 'x', false)",
            {"term": {"tags": "x"}},
        ),
        (
            Lacks("tags", "x"),
            "list_has(t.tags, 'x') = 0",
            "NOT coalesce(t.tags ? 'x', false)",
            {"bool": {"must_not": [{"term": {"tags": "x"}}]}},
        ),
        (HasAny("tags"), f"{COUNTED} > 0", NOT_EMPTY, {"exists": {"field": "tags"}}),
        (
            HasNone("tags"),
            f"{COUNTED} <= 0",
            f"NOT {NOT_EMPTY}",
            {"bool": {"must_not": [{"exists": {"field": "tags"}}]}},
        ),
        (IsTrue("tags"), f"{COUNTED} > 0", NOT_EMPTY, {"exists": {"field": "tags"}}),
        (
            IsTrue("name"),
            "t.name != ''",
            "t.name != ''",
            {"bool": {"filter": [EXISTS], "must_not": [{"term": {"name": ""}}]}},
        ),
        (IsFalse("size"), "t.size = 0", "t.size = 0", {"term": {"size": 0}}),
        (IsFalse("locked"), "t.locked = 0", "t.locked = false", {"term": {"locked": False}}),
        (
            HasName("name", "A.b"),
            "is_name(t.name, 'A.b')",
            """lower(t.name COLLATE "C") = 'a.b' OR starts_with(lower(t.name COLLATE "C"), 'a.b.')""",
            {
                "bool": {
                    "should": [
                        {"term": {"name": {"value": "A.b", "case_insensitive": True}}},
                        {"prefix": {"name": {"value": "A.b.", "case_insensitive": True}}},
                    ],
                    "minimum_should_match": 1,
                }
            },
        ),
        (
            And((Eq("size", 1), Or((Eq("size", 2), Eq("size", 3))))),
            "t.size = 1 AND (t.size = 2 OR t.size = 3)",
            "t.size = 1 AND (t.size = 2 OR t.size = 3)",
            {
                "bool": {
                    "filter": [
                        {"term": {"size": 1}},
                        {"bool": {"should": [{"term": {"size": 2}}, {"term": {"size": 3}}], "minimum_should_match": 1}},
                    ]
                }
            },
        ),
        (Eq("size", 2**63), "0", "false", {"match_none": {}}),
        (Lt("size", 2**63), "t.size IS NOT NULL", "t.size IS NOT NULL", {"exists": {"field": "size"}}),
        (Gt("size", 2**63), "0", "false", {"match_none": {}}),
        (Lt("size", -(2**70)), "0", "false", {"match_none": {}}),
    ],
)
def test_every_compiler_says_the_same(node: Filter, on_sqlite: str, on_postgresql: str, dsl: dict[str, Any]) -> None:
    assert _text(to_sql(node, TABLE.c, FIELDS, "sqlite"), "sqlite") == on_sqlite
    assert _text(to_sql(node, TABLE.c, FIELDS, "postgresql"), "postgresql") == on_postgresql
    assert to_dsl(node, FIELDS) == dsl


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        (Eq("name", "a\0"), "false"),
        (Ne("name", "a\0"), "t.name IS NOT NULL"),
        (In("name", ("a\0", "b")), "t.name IN ('b')"),
        (Lt("name", "a\0b"), "(t.name COLLATE \"C\") <= 'a'"),
        (Ge("name", "a\0b"), "(t.name COLLATE \"C\") > 'a'"),
        (Has("tags", "\0"), "false"),
        (Lacks("tags", "\0"), "true"),
    ],
)
def test_text_with_nul_is_never_sent_to_postgresql(node: Filter, expected: str) -> None:
    assert _text(to_sql(node, TABLE.c, FIELDS, "postgresql"), "postgresql") == expected


def test_every_value_is_bound() -> None:
    injected = "'; DROP TABLE t --"
    clause = to_sql(And((Eq("name", injected), Matches("name", injected))), TABLE.c, FIELDS, "sqlite")
    assert "DROP" not in str(clause)


def test_order_says_where_nulls_go_only_if_there_can_be_any() -> None:
    order = SortOrder.of(FIELDS, [SortKey("at", Direction.DESC), SortKey("name")])
    assert [_text(term, "sqlite") for term in order_by(order, TABLE.c, "sqlite")] == [
        "t.at DESC",
        "t.name ASC",
        "t.uuid ASC",
    ]
    assert [_text(term, "postgresql") for term in order_by(order, TABLE.c, "postgresql")] == [
        "t.at DESC NULLS LAST",
        't.name COLLATE "C" ASC NULLS FIRST',
        't.uuid COLLATE "C" ASC',
    ]
    assert sort(order) == [
        {"at": {"order": "desc", "missing": "_last"}},
        {"name": {"order": "asc", "missing": "_first"}},
        {"uuid_high": {"order": "asc"}},
        {"uuid_low": {"order": "asc"}},
    ]


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        (SortKey("size"), 5, "t.size >= 5 AND (t.size > 5 OR t.size = 5 AND t.uuid > 'u')"),
        (SortKey("size"), None, "t.size IS NOT NULL OR t.size IS NULL AND t.uuid > 'u'"),
        (
            SortKey("size", Direction.DESC),
            5,
            "(t.size <= 5 OR t.size IS NULL) AND (t.size < 5 OR t.size IS NULL OR t.size = 5 AND t.uuid > 'u')",
        ),
        (SortKey("size", Direction.DESC), None, "t.size IS NULL AND t.size IS NULL AND t.uuid > 'u'"),
    ],
)
def test_position_is_a_range_and_a_chain(key: SortKey, value: int | None, expected: str) -> None:
    position = after(SortOrder.of(FIELDS, [key]), (value, "u"), TABLE.c, "sqlite")
    assert _text(position, "sqlite") == expected


@pytest.mark.parametrize(
    ("field", "value", "sent"),
    [
        ("name", "a", "a"),
        ("name", None, None),
        ("size", None, -(2**63)),
        ("locked", None, -1),
        ("locked", True, 1),
        ("load", None, "-Infinity"),
    ],
)
def test_position_is_sent_as_servers_sort_it(field: str, value: Any, sent: Any) -> None:
    order = SortOrder.of(FIELDS, [SortKey(field)])
    # As JSON: to Python, True is 1.
    assert json.dumps(search_after(order, (value, UUID), FIELDS)) == json.dumps([sent, *uuid_parts(UUID)])


@pytest.mark.parametrize(
    ("uuid", "parts"),
    [
        ("00000000-0000-0000-0000-000000000001", (-(2**63), 1 - 2**63)),
        ("00000000-0000-0001-8000-000000000000", (1 - 2**63, 0)),
        ("ffffffff-ffff-ffff-ffff-ffffffffffff", (2**63 - 1, 2**63 - 1)),
    ],
)
def test_uuid_parts_are_what_documents_have_kept(uuid: str, parts: tuple[int, int]) -> None:
    assert uuid_parts(uuid) == parts
    assert uuid_of(*parts) == uuid


def test_uuid_parts_order_as_the_text_does() -> None:
    uuids = [f"{high}0000000-0000-4000-{low}000-000000000000" for high in "0789af" for low in "0789af"]
    assert sorted(uuids, key=uuid_parts) == sorted(uuids)
    with pytest.raises(ValueError, match="lower-case"):
        uuid_parts(UUID.upper())


def test_elasticsearch_refuses_what_it_cannot_compare_or_nest() -> None:
    with pytest.raises(NotExpressibleError, match="32766 bytes"):
        to_dsl(Lt("name", "é" * 16_384), FIELDS)
    deep: Filter = And((Eq("name", "a"), Eq("size", 1)))
    for number in range(30):
        deep = (Or if number % 2 else And)((Eq("size", number), deep))
        deep = (And if number % 2 else Or)((Eq("size", number), deep))
    with pytest.raises(NotExpressibleError, match="nested"):
        to_dsl(deep, FIELDS)
