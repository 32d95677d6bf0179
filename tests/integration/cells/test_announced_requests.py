"""What clients send to the compute API is announced, which the index is made of, as it is in the row."""

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from fleetlight.cells.kinds.opening import open_changelog_adapter
from fleetlight.cells.tables import changes
from fleetlight.indexer.transform.native_messages import read_record
from fleetlight.query.filters import EVERYTHING
from fleetlight.query.page import PageRequest
from fleetlight.query.sort import SortOrder
from fleetlight.resources.instance import INSTANCE_FIELDS
from fleetlight.views.compute.view import render_view
from tests.contract.compute_fleet import ComputeFleet, microversion
from tests.support.oracles.shown_items import shown_items

STRANGE = '\u2028\u2029\x7f"]\\,["\ufeff😀\ue000'
CALLER = {"X-Project-Id": "red", "X-User-Id": "ada", **microversion("2.100")}
SERVER = {
    "name": "web é😀",
    "flavorRef": "1",
    "imageRef": "70a599e0-31e7-49b7-b260-868f441e862b",
    "networks": "auto",
    "description": "é😀",
    "metadata": {"a": STRANGE, "null": "", "b:c": "]"},
    "user_data": "IyEv" * 16_383,
    "tags": ["é😀", "]", '"'],
}
HINTS: dict[str, Any] = {
    STRANGE: [None, {}, [], {"a": None, "": STRANGE}],
    "numbers": [1e308, 5e-324, -0.0, 1e16, 1e22, 1e23, 1.0, 2**53 + 1, 2**63 - 1, -(2**63), 2**64, 10**30],
}


@pytest.fixture
def fleet(tmp_path: Path, new_database: Callable[[], str]) -> ComputeFleet:
    fleet = ComputeFleet(tmp_path, new_database=new_database)
    fleet.add_hosts()
    return fleet


def test_what_clients_send_is_announced_as_it_is_read(fleet: ComputeFleet) -> None:
    with closing(fleet):
        api = fleet.api()

        def send(method: str, path: str, body: dict[str, Any]) -> dict[str, Any]:
            response = api.request(method, f"/v2.1/servers{path}", CALLER, json=body)
            assert response.is_success, response.text
            fleet.work()
            assert sum(assert_announced_is_what_is_read(fleet, name) for name in fleet.cells) == 1
            return dict(response.json()) if response.content else {}

        uuid = send("POST", "", {"server": SERVER, "os:scheduler_hints": HINTS})["server"]["id"]
        assert api.get(f"/v2.1/servers/{uuid}", CALLER).json()["server"]["metadata"] == SERVER["metadata"]
        send("POST", f"/{uuid}/metadata", {"metadata": {"d": STRANGE}})
        send("PUT", f"/{uuid}", {"server": {"name": "é]", "description": None}})
        send("POST", f"/{uuid}/action", {"lock": {"locked_reason": STRANGE}})
        send("POST", f"/{uuid}/action", {"resize": {"flavorRef": "2"}})
        send("POST", f"/{uuid}/action", {"confirmResize": None})
        send("POST", f"/{uuid}/action", {"rebuild": {"imageRef": SERVER["imageRef"], "metadata": {"b": STRANGE}}})


def assert_announced_is_what_is_read(fleet: ComputeFleet, name: str) -> int:
    """The newest announcement of each row of a cell shows what the row shows. Returns how many rows there are."""
    newest = select(changes.c.instance_uuid, changes.c.revision, changes.c.message).order_by(changes.c.id)
    with fleet.engine(name).connect() as connection:
        announced = {uuid: (revision, message) for uuid, revision, message in connection.execute(newest)}
    with closing(open_changelog_adapter(fleet.cells[name])) as adapter:
        rows = adapter.read_page(PageRequest(EVERYTHING, SortOrder.of(INSTANCE_FIELDS, ()), 10))
    for row in rows:
        revision, message = announced[row.uuid]
        record = read_record(message)
        assert record is not None
        assert revision == row.revision
        assert shown_items(render_view(record)) == shown_items(render_view(row.record))
    return len(rows)
