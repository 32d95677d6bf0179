"""A list is the same by every route: from the index, from the cells, and from both (embedded databases and index)."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetlight.indexer.backends.settings import IndexSettings
from fleetlight.query.filters import Filter
from fleetlight.query.page import PageRequest
from fleetlight.query.sort import SortOrder
from fleetlight.resources.instance import INSTANCE_FIELDS
from tests.property.instance_strategies import CELLS, all_of_them, filters, fleets, lasting_orders, lists
from tests.property.reaching import shares
from tests.support.fleets.list_routes import ListedFleet, listed_fleet
from tests.support.oracles.filter_oracle import expected_page
from tests.support.oracles.list_route_checks import (
    check_paging_while_changes_arrive,
    check_that_all_routes_agree,
    check_that_all_routes_count_alike,
    check_that_all_routes_give_the_same_values,
)


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ListedFleet]:
    folder: Path = tmp_path_factory.mktemp("fleet")
    cell_urls = {name: f"sqlite:///{folder}/{name}.db" for name in CELLS}
    with listed_fleet(f"sqlite:///{folder}/fleet.db", cell_urls, IndexSettings(path=folder / "index.db")) as fleet:
        yield fleet


@given(drawn=lists)
def test_all_routes_give_the_rows_of_the_oracle_in_its_order(
    fleet: ListedFleet, drawn: tuple[dict[str, list[dict[str, Any]]], PageRequest]
) -> None:
    check_that_all_routes_agree(fleet, *drawn)


def test_lists_reach_further_pages_ties_at_their_ends_and_more_than_one_cell() -> None:
    reached = shares(lists, _reached)
    assert reached["a row"] >= 60
    assert reached["a second page"] >= 40
    assert reached["a tie at the end of a page"] >= 15
    assert reached["rows of two cells"] >= 40


def _reached(drawn: tuple[dict[str, list[dict[str, Any]]], PageRequest]) -> Iterator[str]:
    rows, request = drawn
    records = all_of_them(rows)
    found = expected_page(records, replace(request, limit=len(records) + 1), INSTANCE_FIELDS)
    if found:
        yield "a row"
    if len(found) > request.limit:
        yield "a second page"
    uuids = {record["uuid"] for record in found}
    if sum(any(record["uuid"] in uuids for record in of_cell) for of_cell in rows.values()) > 1:
        yield "rows of two cells"
    first = request.order.keys[0].field
    ends = zip(found[request.limit - 1 :: request.limit], found[request.limit :: request.limit], strict=False)
    if any(last[first] == following[first] for last, following in ends):
        yield "a tie at the end of a page"


@given(drawn=lists, names=st.lists(st.sampled_from([*INSTANCE_FIELDS]), max_size=12, unique=True))
def test_all_routes_give_the_same_values_of_the_same_fields(
    fleet: ListedFleet, drawn: tuple[dict[str, list[dict[str, Any]]], PageRequest], names: list[str]
) -> None:
    check_that_all_routes_give_the_same_values(fleet, *drawn, names)


@given(
    rows=fleets(),
    wanted=filters,
    by=st.lists(st.sampled_from(("tags", "vm_state", "locked", "progress", "display_name")), max_size=3, unique=True),
)
def test_all_routes_count_the_same_groups(
    fleet: ListedFleet, rows: dict[str, list[dict[str, Any]]], wanted: Filter, by: list[str]
) -> None:
    check_that_all_routes_count_alike(fleet, rows, wanted, tuple(by))


@given(rows=fleets(), order=lasting_orders, limit=st.integers(1, 5), seed=st.integers(0, 2**32))
def test_untouched_rows_come_exactly_once_while_others_change_and_routes_alternate(
    fleet: ListedFleet, rows: dict[str, list[dict[str, Any]]], order: SortOrder, limit: int, seed: int
) -> None:
    check_paging_while_changes_arrive(fleet, rows, order, limit, seed)
