"""Every compiler finds what plain Python finds: here SQLite; the real servers in tests/integration."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import Connection

from fleetlight.query.evaluate import sorted_page
from fleetlight.query.filters import And, Filter, check, negate, split_expressible
from fleetlight.query.page import PageRequest
from fleetlight.query.sort import SortKey, SortOrder
from fleetlight.query.to_sql import after, beyond, order_by, to_sql
from fleetlight.resources.fields import ItemType, Kind
from tests.property.query_strategies import FIELDS, filters, orders, positions, record_sets, requests
from tests.property.reaching import shares
from tests.support.examples import examples
from tests.support.fleets.things import THINGS, connected_things
from tests.support.oracles.filter_oracle import expected_page, is_behind, is_kept

# A position holds stored values, in which a time is a number.
STORED_FIELDS = ItemType(
    "thing",
    (replace(field, kind=Kind.NUMBER) if field.kind is Kind.TIMESTAMP else field for field in FIELDS.values()),
)


@pytest.fixture(scope="module")
def connection() -> Iterator[Connection]:
    with connected_things() as connection:
        yield connection


def _page(connection: Connection, request: PageRequest) -> list[str]:
    statement = THINGS.select().where(to_sql(request.filter, THINGS.c, FIELDS, "sqlite"))
    if request.after is not None:
        statement = statement.where(after(request.order, request.after, THINGS.c, "sqlite"))
    statement = statement.order_by(*order_by(request.order, THINGS.c, "sqlite")).limit(request.limit)
    return [row.uuid for row in connection.execute(statement)]


def _uuids(records: Sequence[Any]) -> list[str]:
    return [record["uuid"] for record in records]


@given(data=st.data(), records=record_sets())
@settings(max_examples=examples(60))
def test_sqlite_finds_the_rows_of_the_oracle_in_its_order(
    connection: Connection, data: st.DataObject, records: list[dict[str, Any]]
) -> None:
    connection.execute(THINGS.delete())
    if records:
        connection.execute(THINGS.insert(), records)
    for _ in range(5):
        request = data.draw(requests(records))
        check(request.filter, FIELDS)
        assert _page(connection, request) == _uuids(expected_page(records, request, FIELDS)), request


@given(node=filters, records=record_sets(max_size=6))
@settings(max_examples=examples(50))
def test_no_record_satisfies_a_filter_and_its_negation(node: Filter, records: list[dict[str, Any]]) -> None:
    for record in records:
        assert not (is_kept(node, record, FIELDS) and is_kept(negate(node), record, FIELDS))
        assert is_kept(negate(negate(node)), record, FIELDS) == is_kept(node, record, FIELDS)


@given(node=filters, records=record_sets(max_size=6), cut=st.integers(0, 3))
@settings(max_examples=examples(50))
def test_both_halves_of_a_split_filter_mean_the_whole(node: Filter, records: list[dict[str, Any]], cut: int) -> None:
    expressible, residual = split_expressible(node, lambda term: len(repr(term)) % 4 != cut)
    for record in records:
        assert is_kept(And((expressible, residual)), record, FIELDS) == is_kept(node, record, FIELDS)


@given(data=st.data(), records=record_sets(max_size=6))
@settings(max_examples=examples(50))
def test_a_position_as_a_filter_keeps_the_rows_behind_it(data: st.DataObject, records: list[dict[str, Any]]) -> None:
    # A store is asked for a nice order by a column of its own, which such a filter is about then.
    order = SortOrder.of(FIELDS, [SortKey(key.field, key.direction) for key in data.draw(orders).keys])
    position = data.draw(positions(records, order))
    keeps = beyond(order, position)
    for record in records:
        assert is_kept(keeps, record, STORED_FIELDS) == is_behind(record, order, position)


@given(data=st.data(), records=record_sets())
@settings(max_examples=examples(60))
def test_live_rows_are_filtered_and_sorted_as_the_oracle_says(
    data: st.DataObject, records: list[dict[str, Any]]
) -> None:
    for _ in range(5):
        request = data.draw(requests(records))
        assert sorted_page(records, request) == expected_page(records, request, FIELDS), request


def test_requests_reach_positions_rows_behind_them_and_ties() -> None:
    reached = shares(record_sets().flatmap(lambda records: st.tuples(st.just(records), requests(records))), _reached)
    assert reached["a row"] >= 60
    assert reached["a row behind a position"] >= 15
    assert reached["a row that ties with the position"] >= 8
    assert reached["a full page"] >= 40


def _reached(drawn: tuple[list[dict[str, Any]], PageRequest]) -> Iterator[str]:
    records, request = drawn
    rows = expected_page(records, request, FIELDS)
    if rows:
        yield "a row"
    if len(rows) == request.limit:
        yield "a full page"
    if rows and request.after is not None:
        yield "a row behind a position"
        if rows[0][request.order.keys[0].field] == request.after[0] and len(request.order.keys) > 1:
            yield "a row that ties with the position"
