"""A list is the same by every route, also with PostgreSQL cells and an Elasticsearch index."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fleetlight.query.filters import Filter
from fleetlight.query.page import PageRequest
from fleetlight.query.sort import SortOrder
from fleetlight.resources.instance import INSTANCE_FIELDS
from tests.property.instance_strategies import CELLS, filters, fleets, lasting_orders, lists
from tests.support.fleets.list_routes import ListedFleet, listed_fleet
from tests.support.oracles.list_route_checks import (
    check_paging_while_changes_arrive,
    check_that_all_routes_agree,
    check_that_all_routes_count_alike,
    check_that_all_routes_give_the_same_values,
)
from tests.support.servers.index_server import index_at

pytestmark = [
    pytest.mark.night,
    pytest.mark.no_rerun,
    pytest.mark.elasticsearch,
    pytest.mark.postgresql,
    pytest.mark.timeout(240),
]

# Each example empties and fills three databases and an index; the fleet fixture is made to be used again.
_few = settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture
def fleet(
    new_postgresql_database: Callable[[], str], elasticsearch_url: str, elasticsearch_prefix: str
) -> Iterator[ListedFleet]:
    index = index_at(elasticsearch_url, elasticsearch_prefix.rstrip("-"))
    cell_urls = {name: new_postgresql_database() for name in CELLS}
    with listed_fleet(new_postgresql_database(), cell_urls, index) as fleet:
        yield fleet


@_few
@given(drawn=lists)
def test_all_routes_give_the_rows_of_the_oracle_in_its_order(
    fleet: ListedFleet, drawn: tuple[dict[str, list[dict[str, Any]]], PageRequest]
) -> None:
    check_that_all_routes_agree(fleet, *drawn)


@_few
@given(drawn=lists, names=st.lists(st.sampled_from([*INSTANCE_FIELDS]), max_size=12, unique=True))
def test_all_routes_give_the_same_values_of_the_same_fields(
    fleet: ListedFleet, drawn: tuple[dict[str, list[dict[str, Any]]], PageRequest], names: list[str]
) -> None:
    check_that_all_routes_give_the_same_values(fleet, *drawn, names)


@_few
@given(
    rows=fleets(),
    wanted=filters,
    by=st.lists(st.sampled_from(("tags", "vm_state", "locked", "progress", "display_name")), max_size=3, unique=True),
)
def test_all_routes_count_the_same_groups(
    fleet: ListedFleet, rows: dict[str, list[dict[str, Any]]], wanted: Filter, by: list[str]
) -> None:
    check_that_all_routes_count_alike(fleet, rows, wanted, tuple(by))


@_few
@given(rows=fleets(), order=lasting_orders, limit=st.integers(1, 5), seed=st.integers(0, 2**32))
def test_untouched_rows_come_exactly_once_while_others_change_and_routes_alternate(
    fleet: ListedFleet, rows: dict[str, list[dict[str, Any]]], order: SortOrder, limit: int, seed: int
) -> None:
    check_paging_while_changes_arrive(fleet, rows, order, limit, seed)
