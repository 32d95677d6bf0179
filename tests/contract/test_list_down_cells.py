"""Lists and servers of cells that nobody can answer for (contracts/nova-servers, section 12)."""

from collections.abc import Iterator, Mapping

import pytest

from fleetlight.api.caller import Caller
from fleetlight.api.http.connection import UNKNOWN, ClientConnection
from fleetlight.api.settings import ApiSettings
from tests.contract.compute_fleet import MEMBER, Api, BrokenCells, ComputeFleet, compute_fleet, microversion, searching
from tests.contract.conftest import own_fleet
from tests.support.fleets.identity import ProgramsOnly

pytestmark = pytest.mark.no_rerun

SINCE = microversion("2.69")
MINIMAL = {"servers": {"id", "status", "links"}, "servers/detail": {"id", "status", "tenant_id", "created", "links"}}
fleet = own_fleet


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ComputeFleet]:
    """For tests that only ask: of the project a server in each cell, and one of another project in east."""
    with compute_fleet(tmp_path_factory.mktemp("fleet")) as fleet:
        fleet.create("east", project_id="other")
        deleted = fleet.create("east")
        fleet.operations("east").delete(deleted)
        for cell in ("north", "south", "east"):
            fleet.create(cell)
        yield fleet


@pytest.fixture(scope="module")
def down(filled: ComputeFleet) -> str:
    """The server of the project in east."""
    return filled.api(search=searching(enabled=False)).ids("/v2.1/servers")[0]


def without_east(fleet: ComputeFleet, *, skips_down_cells: bool = True, max_limit: int = 1000) -> Api:
    pool = BrokenCells(fleet, failing_after={"east": 0})
    return fleet.api(
        search=searching(enabled=False),
        settings=ApiSettings(list_records_by_skipping_down_cells=skips_down_cells, max_limit=max_limit),
        pool=pool,
    )


@pytest.mark.parametrize("path", MINIMAL)
@pytest.mark.parametrize("skips_down_cells", [True, False])
@pytest.mark.parametrize("query", ["", "all_tenants=1", "all_tenants=0", "host=x", "_x=1", "deleted=1"])
def test_partial_items_come_first_from_2_69_on(
    filled: ComputeFleet, down: str, path: str, skips_down_cells: bool, query: str
) -> None:
    is_for_members = query not in {"", "all_tenants=1", "all_tenants=0"}  # for others what does not count is no filter
    api = without_east(filled, skips_down_cells=skips_down_cells)
    response = api.get(f"/v2.1/{path}?{query}", SINCE, MEMBER if is_for_members else {})
    assert response.status_code == 200
    assert response.headers["Fleetlight-Complete"] == "false"
    servers = response.json()["servers"]
    partial = [server for server in servers if server.get("status") == "UNKNOWN"]
    assert servers[: len(partial)] == partial
    assert len(servers) == len(partial) + 2
    assert [set(server) for server in partial] == [MINIMAL[path]] * len(partial)
    assert len(partial) == (2 if query == "all_tenants=1" else 1)
    assert down in [server["id"] for server in partial]


@pytest.mark.parametrize(
    ("query", "version"),
    [
        ("", "2.68"),
        ("all_tenants=1", "2.1"),
        ("limit=10", "2.69"),
        ("sort_key=uuid", "2.69"),
        ("sort_dir=asc", "2.104"),
        ("name=server", "2.69"),
        ("status=active", "2.104"),
        ("project_id=demo", "2.69"),
        ("all_tenants=1&project_id=demo", "2.69"),
        ("changes-since=1970", "2.104"),
        ("deleted=false", "2.69"),
    ],
)
def test_other_lists_leave_the_cell_away_or_fail_if_that_is_configured(
    filled: ComputeFleet, down: str, query: str, version: str
) -> None:
    for path in MINIMAL:
        kept = without_east(filled).get(f"/v2.1/{path}?{query}", microversion(version))
        assert kept.status_code == 200
        assert kept.headers["Fleetlight-Complete"] == "false"
        assert down not in [server["id"] for server in kept.json()["servers"]]
        failed = without_east(filled, skips_down_cells=False).get(f"/v2.1/{path}?{query}", microversion(version))
        assert failed.status_code == 500
        assert failed.json()["computeFault"]["code"] == 500
        assert "east" not in failed.text


def test_partial_items_fill_what_the_others_leave_of_the_page(fleet: ComputeFleet) -> None:
    for _ in range(3):
        fleet.create("east")
    fleet.create("north")
    api = without_east(fleet, max_limit=3)
    page = api.get("/v2.1/servers", SINCE).json()
    assert [server.get("status") for server in page["servers"]] == ["UNKNOWN", "UNKNOWN", None]
    assert len(page["servers_links"]) == 1


def test_server_that_its_cell_gave_before_it_broke_is_listed_once(fleet: ComputeFleet) -> None:
    """A cell delivers in batches; the second one fails here, and without an index nobody stands in."""
    uuids = {fleet.create("east") for _ in range(40)}
    api = fleet.api(
        search=searching(enabled=False),
        settings=ApiSettings(max_limit=60),
        pool=BrokenCells(fleet, failing_after={"east": 1}),
    )
    servers = api.get("/v2.1/servers", SINCE).json()["servers"]
    ids = [server["id"] for server in servers]
    assert len(ids) == len(set(ids))
    assert set(ids) == uuids
    partial = [server for server in servers if "name" not in server]
    assert 0 < len(partial) < 40


def test_server_groups_of_a_server_are_known_without_its_cell(filled: ComputeFleet, down: str) -> None:
    group = filled.fleet.server_groups.create("g", "affinity", project_id="demo", user_id="ada")
    filled.fleet.server_groups.add_members(group.uuid, [down], limit=10)
    api = without_east(filled)
    assert api.get(f"/v2.1/servers/{down}", microversion("2.71")).json()["server"]["server_groups"] == [group.uuid]
    assert "server_groups" not in api.get(f"/v2.1/servers/{down}", microversion("2.70")).json()["server"]
    for version in ("2.1", "2.68"):
        assert api.get(f"/v2.1/servers/{down}", microversion(version)).status_code == 500


def test_server_that_is_being_deleted_is_gone_with_its_cell(fleet: ComputeFleet) -> None:
    gone = fleet.create("east")
    fleet.operations("east").delete(gone)
    api = without_east(fleet)
    assert api.get(f"/v2.1/servers/{gone}", SINCE).status_code == 404
    assert api.ids("/v2.1/servers", SINCE) == []


@pytest.mark.parametrize("version", ["2.1", "2.69", "2.104"])
def test_server_of_others_in_such_a_cell_cannot_be_told_from_none(
    filled: ComputeFleet, down: str, version: str
) -> None:
    api = without_east(filled)
    stranger = {"X-Roles": "member", "X-Project-Id": "stranger"}
    unknown = "00000000-0000-4000-8000-000000000000"
    for path in ("servers/{}", "servers?marker={}", "servers/detail?marker={}&limit=1"):
        theirs, nobodys = (
            api.get(f"/v2.1/{path.format(uuid)}", microversion(version), stranger) for uuid in (down, unknown)
        )
        assert theirs.status_code == nobodys.status_code
        assert theirs.text == nobodys.text.replace(unknown, down)


class Unscoped(ProgramsOnly):
    """Callers who have a role, and no project."""

    async def authenticate(self, _headers: Mapping[str, str], _connection: ClientConnection = UNKNOWN) -> Caller:
        return Caller("ada", None, frozenset({"reader"}))


@pytest.mark.parametrize("path", MINIMAL)
def test_caller_without_a_project_is_told_of_no_server_of_a_cell_that_is_down(
    filled: ComputeFleet, down: str, path: str
) -> None:
    pool = BrokenCells(filled, failing_after={"east": 0})
    response = filled.api(search=searching(enabled=False), pool=pool, identity=Unscoped()).get(f"/v2.1/{path}", SINCE)
    assert response.status_code == 200
    assert response.headers["Fleetlight-Complete"] == "false"
    # Those of the cells that are up are the user's own; of a mapping nobody says who made it for whom.
    assert len(response.json()["servers"]) == 2
    assert down not in response.text


@pytest.mark.parametrize("version", ["2.1", "2.68", "2.69", "2.71", "2.104"])
def test_server_that_the_index_has_is_shown_whole_while_its_cell_is_down(fleet: ComputeFleet, version: str) -> None:
    uuid = fleet.create("east", metadata={"role": "web"})
    fleet.index()
    url, asked = f"/v2.1/servers/{uuid}", microversion(version)
    live = fleet.api().get(url, asked, MEMBER)
    away = fleet.api(pool=BrokenCells(fleet, failing_after={"east": 0})).get(url, asked, MEMBER)
    assert (away.status_code, away.json()) == (200, live.json())
    assert away.headers["Fleetlight-Complete"] == "false"
    assert away.headers["Fleetlight-Route"] == "index"


def test_server_that_is_about_to_be_deleted_is_not_shown_while_its_cell_is_down(fleet: ComputeFleet) -> None:
    uuid = fleet.create("east")
    fleet.index()
    fleet.fleet.mark_queued_for_delete(fleet.cells["east"].uuid, [uuid])
    api = fleet.api(pool=BrokenCells(fleet, failing_after={"east": 0}))
    assert api.get(f"/v2.1/servers/{uuid}", SINCE).status_code == 404
