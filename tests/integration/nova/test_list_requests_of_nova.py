"""Random lists over the databases of a Nova deployment are what the contract says, from the cells and from an index.

The oracle (tests.support.oracles.list_oracle) reads the contract by itself. What is in the cells it is told by the
adapters, which are compared with Nova's own answers in test_list_equals_nova.
"""

import re
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetlight.cells.kinds.opening import open_adapter
from fleetlight.query.filters import EVERYTHING
from fleetlight.query.page import PageRequest
from fleetlight.query.sort import SortOrder
from fleetlight.resources.fields import from_microseconds
from fleetlight.resources.instance import INSTANCE_FIELDS
from tests.contract.compute_fleet import Api
from tests.property.request_strategies import TIMES, Values, requests
from tests.support.fleets.nova_fleet import NovaFleet
from tests.support.fleets.requested_fleet import ANY, BOUNDED, STRONG, ask_for, assert_same, check_pages
from tests.support.oracles.list_oracle import Times, expected_list

# The databases are made before the first test, which takes Nova a while.
pytestmark = [pytest.mark.night, pytest.mark.no_rerun, pytest.mark.timeout(600)]

_EXACT = ("user_id", "host", "image_ref", "vm_state", "task_state", "uuid")
_MATCHED = (
    *("display_name", "display_description", "hostname", "key_name", "node", "reservation_id", "availability_zone"),
    *("config_drive", "root_device_name", "power_state", "progress", "launch_index"),
)


@dataclass(frozen=True)
class World:
    """What there is, and two applications over it: one that asks the cells, one with an index of them."""

    records: Sequence[dict[str, Any]]
    by_cells: Api
    by_index: Api

    @property
    def uuids(self) -> Sequence[str]:
        return [record["uuid"] for record in self.records]

    @property
    def projects(self) -> Sequence[str]:
        return sorted({record["project_id"] for record in self.records})

    @property
    def times(self) -> Times:
        updated = {record["updated_at"] for record in self.records} - {None}
        return {**TIMES, **{from_microseconds(each).isoformat(): each for each in updated}}

    @property
    def values(self) -> Sequence[Values]:
        """Filters by what the servers have."""
        tags = sorted({tag for record in self.records for tag in record["tags"]})
        addresses = sorted({part["address"] for record in self.records for part in record["ip_addresses"]})
        return [
            *(([name], self._all(name, str)) for name in _EXACT),
            *(([name], self._all(name, _escaped)) for name in _MATCHED),
            (["flavor"], self._all("flavor_id", str)),
            (["project_id", "tenant_id"], self.projects),
            (["tags", "tags-any", "not-tags", "not-tags-any"], [*tags, ",".join(tags[:2])]),
            (["ip", "ip6"], addresses),
            (["changes-since", "changes-before"], [*self.times]),
        ]

    def _all(self, name: str, text_of: Callable[[Any], str]) -> Sequence[str]:
        return sorted({text_of(record[name]) for record in self.records if record[name] is not None}) or ["nothing"]


def _escaped(value: object) -> str:
    """A pattern for a value, or the beginning of it."""
    return f"^{re.escape(str(value)[:6])}"


@pytest.fixture(scope="module")
def world(fleet: NovaFleet) -> World:
    fleet.fill_index()
    records = []
    for cell in fleet.cells.values():
        with closing(open_adapter(cell)) as adapter:
            page = adapter.read_page(PageRequest(EVERYTHING, SortOrder.of(INSTANCE_FIELDS, ()), limit=1000))
        records += [dict(row.record) for row in page]
    return World(records, fleet.api(), fleet.api(uses_index=True))


@given(data=st.data())
@settings(max_examples=60)
def test_random_lists_over_cells_of_nova_are_what_the_contract_says(world: World, data: st.DataObject) -> None:
    request = data.draw(requests(world.uuids, world.projects, world.values))
    expected = expected_list(world.records, request, world.times)
    by_cells = ask_for(world.by_cells, request, {})
    answers = [ask_for(world.by_index, request, how) for how in (ANY, BOUNDED, STRONG)]
    for answer in answers:
        assert_same(by_cells, answer)
    if expected.refused:
        assert by_cells.status_code in expected.refused, by_cells.text
        return
    assert by_cells.status_code == 200, by_cells.text
    assert by_cells.headers["Fleetlight-Complete"] == "true"
    for api in (world.by_cells, world.by_index):
        check_pages(api, expected, by_cells, request)
