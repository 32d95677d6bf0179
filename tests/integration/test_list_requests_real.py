"""Lists over HTTP are what the contract says, also with PostgreSQL cells and an Elasticsearch index."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.property.request_strategies import HORIZON, TIMES, fleets, requests
from tests.support.fleets.requested_fleet import RequestedFleet, requested_fleet
from tests.support.servers.index_server import index_at

pytestmark = [
    pytest.mark.night,
    pytest.mark.no_rerun,
    pytest.mark.elasticsearch,
    pytest.mark.postgresql,
    pytest.mark.timeout(240),
]


@pytest.fixture
def fleet(
    tmp_path: Path, new_postgresql_database: Callable[[], str], elasticsearch_url: str, elasticsearch_prefix: str
) -> Iterator[RequestedFleet]:
    index = index_at(elasticsearch_url, elasticsearch_prefix.rstrip("-"))
    with requested_fleet(tmp_path, HORIZON, index, new_postgresql_database) as fleet:
        yield fleet


# Each example fills three databases and an index; the fleet fixture is made to be used again.
@given(rows=fleets(), data=st.data())
@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_route_answers_as_the_contract_says(
    fleet: RequestedFleet, rows: dict[str, list[dict[str, Any]]], data: st.DataObject
) -> None:
    fleet.fill(rows)
    uuids = [row["uuid"] for cell in rows.values() for row in cell]
    for _ in range(12):
        fleet.check(rows, data.draw(requests(uuids)), TIMES)
