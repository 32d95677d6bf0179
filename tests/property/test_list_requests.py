"""Lists over HTTP are what the contract says, whoever asks for what at which microversion, and the same by every route.

The oracle (tests.support.oracles.list_oracle) reads the contract by itself: it shares no rule with the product.
"""

from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.property.reaching import shares
from tests.property.request_strategies import (
    CHANGES,
    HORIZON,
    TIMES,
    can_be_changed,
    every_filter,
    fleets,
    fleets_to_change,
    many_rows,
    requests,
    turns_of,
)
from tests.support.examples import examples
from tests.support.fleets.requested_fleet import RequestedFleet, requested_fleet
from tests.support.oracles.list_oracle import Asker, Request, expected_list


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RequestedFleet]:
    with requested_fleet(tmp_path_factory.mktemp("fleet"), HORIZON) as fleet:
        yield fleet


def test_every_value_of_every_parameter_means_what_the_contract_says(fleet: RequestedFleet) -> None:
    rows = many_rows(60)
    fleet.fill(rows)
    tried = set()
    for pair in every_filter():
        minors = [104] if pair[0] in tried else turns_of(pair[0])
        tried.add(pair[0])
        for minor, is_admin in product(minors, (True, False)):
            fleet.check_once(rows, Request([pair], minor, Asker(is_admin, "demo", "ada")), TIMES)


@given(rows=fleets(), data=st.data())
@settings(max_examples=examples(25))
def test_every_route_answers_as_the_contract_says(
    fleet: RequestedFleet, rows: dict[str, list[dict[str, Any]]], data: st.DataObject
) -> None:
    fleet.fill(rows)
    uuids = _uuids(rows)
    for _ in range(8):
        fleet.check(rows, data.draw(requests(uuids)), TIMES)


def test_requests_reach_rows_and_further_pages() -> None:
    reached = shares(fleets().flatmap(lambda rows: st.tuples(st.just(rows), requests(_uuids(rows)))), _reached)
    assert reached["a row"] >= 50
    assert reached["a second page"] >= 10
    assert reached["a refusal"] >= 3


def _reached(drawn: tuple[dict[str, list[dict[str, Any]]], Request]) -> Iterator[str]:
    rows, request = drawn
    expected = expected_list((row for of_cell in rows.values() for row in of_cell), request, TIMES)
    if expected.refused:
        yield "a refusal"
    if expected.uuids:
        yield "a row"
    if expected.limit and len(expected.uuids) > expected.limit:
        yield "a second page"


def _uuids(rows: dict[str, list[dict[str, Any]]]) -> list[str]:
    return [row["uuid"] for of_cell in rows.values() for row in of_cell]


@given(rows=fleets_to_change(), data=st.data())
@settings(max_examples=examples(12))
def test_lists_have_what_their_project_has_just_changed(
    fleet: RequestedFleet, rows: dict[str, list[dict[str, Any]]], data: st.DataObject
) -> None:
    fleet.fill(rows)
    changeable = [row["uuid"] for cell in rows.values() for row in cell if can_be_changed(row, "demo")]
    api = fleet.new_api()
    for uuid in data.draw(st.lists(st.sampled_from(changeable), min_size=1, max_size=2)):
        fleet.change(api, rows, uuid, data.draw(st.sampled_from(CHANGES)))
    uuids = _uuids(rows)
    for _ in range(4):
        fleet.check_own_changes(api, rows, data.draw(requests(uuids, projects=("demo",))), TIMES)
