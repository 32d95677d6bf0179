"""Lists over HTTP are what the contract says, whoever asks for what at which microversion, and the same by every route.

The oracle (tests.support.list_oracle) reads the contract by itself: it shares no rule with the product.
"""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.property.request_strategies import CHANGES, HORIZON, TIMES, can_be_changed, fleets, requests
from tests.support.requested_fleet import RequestedFleet, requested_fleet


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RequestedFleet]:
    with requested_fleet(tmp_path_factory.mktemp("fleet"), HORIZON) as fleet:
        yield fleet


@given(rows=fleets(), data=st.data())
@settings(max_examples=40)
def test_every_route_answers_as_the_contract_says(
    fleet: RequestedFleet, rows: dict[str, list[dict[str, Any]]], data: st.DataObject
) -> None:
    fleet.fill(rows)
    uuids = [row["uuid"] for cell in rows.values() for row in cell]
    for _ in range(8):
        fleet.check(rows, data.draw(requests(uuids)), TIMES)


@given(rows=fleets(), data=st.data())
@settings(max_examples=15)
def test_lists_have_what_their_project_has_just_changed(
    fleet: RequestedFleet, rows: dict[str, list[dict[str, Any]]], data: st.DataObject
) -> None:
    fleet.fill(rows)
    changeable = [row["uuid"] for cell in rows.values() for row in cell if can_be_changed(row)]
    if not changeable:
        return
    api = fleet.new_api()
    for uuid in data.draw(st.lists(st.sampled_from(changeable), min_size=1, max_size=2)):
        fleet.change(api, rows, uuid, data.draw(st.sampled_from(CHANGES)))
    uuids = [row["uuid"] for cell in rows.values() for row in cell]
    for _ in range(4):
        fleet.check_own_changes(api, rows, data.draw(requests(uuids)), TIMES)
