"""A list of a Nova deployment is not complete while Nova has a cell that the fleet lacks, and says what adds it."""

from contextlib import closing
from pathlib import Path

import pytest

from fleetlight.cells.errors import CellUnreachableError
from fleetlight.cells.kinds.nova_db import tables
from fleetlight.indexer.backends.opening import open_writer
from tests.contract.compute_fleet import microversion
from tests.support.fleets.documents import make_uuid
from tests.support.fleets.nova_fleet import NovaFleet, nova_fleet
from tests.support.fleets.nova_tables import small_nova

pytestmark = pytest.mark.no_rerun

NEW = {"id": 3, "uuid": make_uuid(3), "name": "cell2", "database_connection": "sqlite:////nowhere/cell2.db"}


def listed(fleet: NovaFleet) -> tuple[str, set[str]]:
    answer = fleet.api().get("/v2.1/servers?all_tenants=1", microversion("2.69"))
    return answer.headers["Fleetlight-Complete"], {server["id"] for server in answer.json()["servers"]}


def test_list_is_not_complete_and_still_shows_what_there_is(tmp_path: Path) -> None:
    nova = small_nova(tmp_path)
    uuid = nova.add("cell1", 1)
    with nova_fleet(tmp_path, nova.urls) as fleet:
        assert listed(fleet) == ("true", {uuid})
        nova.insert("api", tables.cell_mappings, NEW)
        assert listed(fleet) == ("false", {uuid})
        counts = fleet.api().get("/fleetlight/query/counts?what=instance&all_projects=1")
        assert (counts.headers["Fleetlight-Complete"], counts.json()["groups"][0]["count"]) == ("false", 1)


def test_server_of_that_cell_is_not_said_to_be_unknown(tmp_path: Path) -> None:
    nova = small_nova(tmp_path)
    uuid = make_uuid(1)
    mapping = {"id": 1, "instance_uuid": uuid, "cell_id": NEW["id"], "project_id": "demo", "queued_for_delete": False}
    with nova_fleet(tmp_path, nova.urls) as fleet:
        nova.insert("api", tables.cell_mappings, NEW)
        nova.insert("api", tables.instance_mappings, mapping)
        assert fleet.api().get(f"/v2.1/servers/{uuid}", microversion("2.69")).status_code == 503


def test_index_is_not_said_to_have_all_of_the_deployment(tmp_path: Path) -> None:
    nova = small_nova(tmp_path)
    with nova_fleet(tmp_path, nova.urls) as fleet, closing(open_writer(fleet.index)) as writer:
        writer.prepare()
        fleet.compare(writer, "build-requests")
        nova.insert("api", tables.cell_mappings, NEW)
        with pytest.raises(CellUnreachableError, match="lacks cell2 of this Nova: `fleetlight cell add-nova` adds"):
            fleet.compare(writer, "build-requests")
