"""A list that cannot have all that was asked for does not claim to be complete, though every cell has answered."""

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from fleetlight.cells.capabilities import CellKind
from fleetlight.cells.errors import CellUnreachableError
from fleetlight.cells.fan_out.cell_pool import CellPool
from fleetlight.cells.kinds.native.adapter import NativeAdapter
from fleetlight.indexer.transform.documents import to_document
from fleetlight.indexer.writing.announced import to_announced
from fleetlight.manager.operations.hosts.agent_addresses import AgentAddresses
from fleetlight.resources.clock import system_clock
from fleetlight.resources.fields import Record
from fleetlight.resources.instance import BLANK_INSTANCE
from fleetlight.resources.power_states import RUNNING
from tests.contract.compute_fleet import Api, ComputeFleet, compute_fleet, microversion
from tests.support.played.played_hosts import PlayedHosts

# Lists of what only native cells are asked for.
OF_HOSTS = (
    "/os-hypervisors",
    "/os-hypervisors/detail",
    "/os-hypervisors/statistics",
    "/os-services",
    "/os-hosts",
    "/os-availability-zone",
    "/os-migrations",
    "/os-simple-tenant-usage",
    "/os-instance_usage_audit_log",
)
USAGE = "/v2.1/os-simple-tenant-usage"


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ComputeFleet]:
    """Two hosts in each cell; those of north have agents, and one of them a running instance."""
    with compute_fleet(tmp_path_factory.mktemp("uncovered")) as fleet:
        fleet.add_hosts()
        for number in range(2):
            AgentAddresses(fleet.engine("north"), fleet.cells["north"]).set(f"north-host{number}", "10.0.0.1:1811")
        at = {"host": "north-host0", "node": "north-host0", "vm_state": "active", "power_state": RUNNING}
        fleet.create("north", display_name="web", **at)
        yield fleet


def is_complete(api: Api, path: str, **parameters: str) -> bool:
    response = api.get(f"{path}?{urlencode(parameters)}" if parameters else path, microversion("2.40"))
    assert response.status_code == 200, response.text
    return response.headers["Fleetlight-Complete"] == "true"


def queried(api: Api, what: str, wanted: str) -> tuple[int, bool]:
    """How many rows a filter finds, and whether these are all."""
    query = urlencode({"what": what, "fields": "name", "filter": wanted, "all_projects": "1"})
    response = api.get(f"/fleetlight/query?{query}")
    assert response.status_code == 200, response.text
    counted = api.get(f"/fleetlight/query/counts?{query.replace('fields=name&', '')}")
    assert counted.headers["Fleetlight-Complete"] == response.headers["Fleetlight-Complete"]
    return len(response.json()["data"]), response.headers["Fleetlight-Complete"] == "true"


@pytest.mark.parametrize("kind", [CellKind.NOVA_DB, CellKind.NOVA_API, CellKind.GANETI])
def test_lists_of_hosts_of_native_cells_are_not_complete_where_there_are_others(tmp_path: Path, kind: CellKind) -> None:
    with compute_fleet(tmp_path) as fleet:
        fleet.add_hosts()
        assert all(is_complete(fleet.api(), f"/v2.1{path}") for path in OF_HOSTS)
        fleet.fleet.add_cell("other", kind, "sqlite:////nowhere/other.db", "")
        assert not any(is_complete(fleet.api(), f"/v2.1{path}") for path in OF_HOSTS)


def test_servers_that_wait_for_a_cell_of_nova_are_on_no_host(tmp_path: Path) -> None:
    with compute_fleet(tmp_path) as fleet:
        api_database = "sqlite:////nowhere/api.db"
        fleet.fleet.add_cell("waiting", CellKind.NOVA_DB, api_database, "", api_database_url=api_database)
        assert all(is_complete(fleet.api(), f"/v2.1{path}") for path in OF_HOSTS)


def test_usage_is_not_complete_where_instances_were_only_announced(tmp_path: Path) -> None:
    with compute_fleet(tmp_path) as fleet:
        assert is_complete(fleet.api(), USAGE)
        record = {**BLANK_INSTANCE, "uuid": "6f3a8b52-2b6c-4f43-a4a4-6c2d3a2d6c11"}
        document = to_document(fleet.cells["east"].uuid, system_clock(), record)
        fleet.fleet.journals.announced.keep(document.cell_uuid, [to_announced(document)])
        assert not is_complete(fleet.api(), USAGE)


@pytest.mark.parametrize(("what", "field"), [("node", "mfree"), ("instance", "oper_ram")])
def test_filter_on_what_a_node_does_not_say_is_not_complete(
    fleet: ComputeFleet, hosts: PlayedHosts, what: str, field: str
) -> None:
    """A condition on a missing value is true, so only one that is turned round drops it."""
    hosts.failing["north-host0"] = "no answer"
    api = fleet.api(nodes=hosts)
    dropped = f'cell == "north" and not {field} > 100000'
    assert not queried(api, what, dropped)[1]
    assert queried(api, what, f'cell == "north" and {field} > 100000')[1], "it is there, with its status"
    # Whatever the node would say, these are decided.
    assert queried(api, what, f'{dropped} and name == "nothing"') == (0, True)
    assert queried(api, what, f'({dropped}) or name == "web" or name == "north-host0"')[1]
    assert queried(api, what, f'cell == "south" and not {field} > 100000')[1], "other nodes are meant"
    hosts.failing.clear()
    assert queried(api, what, dropped)[1]


class WithoutGroups(NativeAdapter):
    def read_items(
        self, item_type: str, fields: Collection[str], keys: Collection[Any] | None = None
    ) -> Sequence[Record]:
        if item_type == "group":
            raise CellUnreachableError(self.cell.name, "it went away")
        return super().read_items(item_type, fields, keys)


def test_filter_on_what_a_cell_has_not_said_of_its_groups_is_not_complete(fleet: ComputeFleet) -> None:
    dropped = 'not pnode.group == "another"'
    assert queried(fleet.api(), "instance", dropped) == (1, True)
    pool = CellPool(fleet.fleet.cells, WithoutGroups)
    api = fleet.api(pool=pool)
    assert queried(api, "instance", dropped) == (0, False)
    assert queried(api, "instance", 'name == "web"') == (1, True)
    fleet.close_pool(pool)
