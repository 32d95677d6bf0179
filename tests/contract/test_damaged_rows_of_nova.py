"""A row of Nova's that holds what Nova never writes is shown, alone, as if its cell were down; no list lacks others."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from fleetlight.cells.kinds.nova_db import tables
from fleetlight.cells.kinds.opening import open_adapter
from fleetlight.indexer.backends.opening import open_writer
from fleetlight.indexer.reconcile.external_cell import compare_cell
from tests.contract.compute_fleet import microversion
from tests.support.fleets.nova_fleet import NovaFleet, nova_fleet
from tests.support.fleets.nova_tables import SmallNova, small_nova

pytestmark = pytest.mark.no_rerun

SINCE = microversion("2.69")
REQUESTED = "aaaaaaaa-0000-4000-8000-000000000009"


def written(nova: SmallNova, sql: str) -> None:
    with closing(sqlite3.connect(nova.urls["cell1"].removeprefix("sqlite:///"))) as connection, connection:
        connection.execute(sql)


def add(nova: SmallNova, table: str, uuid: str, **values: Any) -> None:
    owner = "resource_id" if table == "tags" else "instance_uuid"
    also = {} if table == "tags" else {"id": 1, "deleted": 0}
    nova.insert("cell1", tables.metadata.tables[table], {owner: uuid, **also, **values})


def add_tags(nova: SmallNova, uuid: str) -> None:
    for tag in (None, "a"):
        add(nova, "tags", uuid, tag=tag)


PORT = '[{"id": "p", "network": {"subnets": [{"ips": [{"address": "10.0.0.1", "version": 4}]}]}}]'
DAMAGE: dict[str, Callable[[SmallNova, str], None]] = {
    "a fault without a time": lambda nova, uuid: add(nova, "instance_faults", uuid, code=500, message="x"),
    "an address without a network": lambda nova, uuid: add(nova, "instance_info_caches", uuid, network_info=PORT),
    "a time that is none": lambda nova, uuid: written(
        nova,
        f"UPDATE instances SET launched_at = '0000-00-00 00:00:00' WHERE uuid = '{uuid}'",  # noqa: S608
    ),
    "text that is no Unicode": lambda nova, uuid: written(
        nova,
        f"UPDATE instances SET display_name = CAST(x'ff41' AS TEXT) WHERE uuid = '{uuid}'",  # noqa: S608
    ),
    "a tag without a name": add_tags,
}


@contextmanager
def fleet_of(nova: SmallNova, folder: Path) -> Iterator[NovaFleet]:
    with nova_fleet(folder, nova.urls) as fleet:
        yield fleet


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=list(DAMAGE))
def test_damaged_row_alone_is_shown_as_of_a_cell_that_is_down(
    tmp_path: Path, damage: Callable[[SmallNova, str], None]
) -> None:
    nova = small_nova(tmp_path)
    others = [nova.add("cell0", 1), *(nova.add("cell1", number) for number in (2, 3, 5))]
    damaged = nova.add("cell1", 4, vm_state="error")
    damage(nova, damaged)
    with fleet_of(nova, tmp_path) as fleet, capture_logs() as logs:
        api = fleet.api()
        for path in (
            "servers?all_tenants=1",
            "servers/detail?all_tenants=1",
            "servers/detail?all_tenants=1&sort_key=project_id",
        ):
            answer = api.get(f"/v2.1/{path}", SINCE)
            assert (answer.status_code, answer.headers["Fleetlight-Complete"]) == (200, "false")
            statuses = {server["id"]: server.get("status") for server in answer.json()["servers"]}
            assert statuses.keys() == {damaged, *others}
            assert [uuid for uuid, status in statuses.items() if status == "UNKNOWN"] == [damaged]
        assert api.get(f"/v2.1/servers/{damaged}", SINCE).json()["server"]["status"] == "UNKNOWN"
        assert api.get(f"/v2.1/servers/{others[1]}", SINCE).json()["server"]["status"] == "ACTIVE"
        assert [event["instance"] for event in logs if event["event"] == "row_damaged"] == [damaged]
        with closing(open_writer(fleet.index)) as writer, closing(open_adapter(fleet.cells["cell1"])) as adapter:
            writer.prepare()
            compared = compare_cell(adapter, writer, batch_size=20)
            assert list(compared.rejected) == [damaged]
            assert writer.read([damaged, *others]).keys() == set(others[1:])


@pytest.mark.parametrize(
    ("instance", "tags"),
    [
        ('{"trusted_certs": [1]}', None),
        ('{"info_cache": [1]}', None),
        ('{"system_metadata": [1]}', None),
        ('{"launched_at": "never"}', None),
        ('{"launched_at": 7}', None),
        ("{}", "[1]"),
        ("{}", "7"),
    ],
)
def test_build_request_of_another_shape_is_shown_so_too(tmp_path: Path, instance: str, tags: str | None) -> None:
    nova = small_nova(tmp_path)
    other = nova.add("cell1", 1)
    row = {"id": 1, "instance_uuid": REQUESTED, "project_id": "demo", "instance": instance, "tags": tags}
    nova.insert("api", tables.build_requests, row)
    with fleet_of(nova, tmp_path) as fleet:
        for path in ("servers?all_tenants=1", "servers/detail?all_tenants=1"):
            answer = fleet.api().get(f"/v2.1/{path}", SINCE)
            assert (answer.status_code, answer.headers["Fleetlight-Complete"]) == (200, "false")
            statuses = {server["id"]: server.get("status") for server in answer.json()["servers"]}
            assert statuses.keys() == {REQUESTED, other}
            assert statuses[REQUESTED] == "UNKNOWN"
