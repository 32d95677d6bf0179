"""A cell that is the compute API of other software: here a second fleet, with logins, in a process of its own."""

import os
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from fleetlight.cells.capabilities import CellKind
from fleetlight.cells.counting import count_rows
from fleetlight.cells.errors import CellUnreachableError
from fleetlight.cells.fan_out.cell_pool import CellPool
from fleetlight.cells.kinds.nova_api.client import ComputeApi, Query, ServerPage
from fleetlight.cells.kinds.nova_api.clouds import read_cloud
from fleetlight.cells.kinds.opening import open_adapter
from fleetlight.cells.model import Cell, CellAdapter, ItemsAdapter, PolledAdapter
from fleetlight.cells.upstream.address import UpstreamAddress
from fleetlight.cells.upstream.http import UpstreamConnection
from fleetlight.cells.upstream.timed_requests import HttpAnswer
from fleetlight.cli.app import app
from fleetlight.indexer.backends.base import CellProgress
from fleetlight.indexer.backends.opening import open_searcher, open_writer
from fleetlight.indexer.backends.settings import IndexSettings
from fleetlight.indexer.reconcile.external_cell import compare_cell
from fleetlight.indexer.writing.rereading import rows_of
from fleetlight.listing.answer import Consistency, ReadOptions, Route
from fleetlight.listing.index_gateway import IndexGateway
from fleetlight.listing.list_instances import InstanceLister
from fleetlight.listing.settings import SearchSettings
from fleetlight.query.counts import CountRequest, Counts
from fleetlight.query.filters import EVERYTHING, Eq, Filter, Has, In, IsNull, Matches, Ne, all_of, any_of
from fleetlight.query.page import PageRequest
from fleetlight.query.sort import Collation, Direction, SortKey, SortOrder
from fleetlight.resources.clock import system_clock
from fleetlight.resources.instance import INSTANCE_FIELDS
from fleetlight.views.compute.view import FullTemplate
from tests.contract.compute_fleet import MEMBER, BrokenCells, ComputeFleet, compute_fleet, searching
from tests.support.oracles.filter_oracle import expected_page
from tests.support.oracles.nice_order import parts
from tests.support.servers.live_api import LiveApi, live_api
from tests.support.waiting import wait_until

pytestmark = pytest.mark.timeout(300)

INSTANCES = 24
BY_UUID = SortOrder.of(INSTANCE_FIELDS, ())
NEWEST_FIRST = SortOrder.of(INSTANCE_FIELDS, [SortKey("created_at", Direction.DESC)])
LIVE = all_of(Eq("deleted", False), any_of(Ne("vm_state", "soft-delete"), IsNull("vm_state")))
TEMPLATE = FullTemplate(104, is_admin=True, versioned_base="http://api/v2.1", plain_base="http://api")


@pytest.fixture(scope="module")
def upstream(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveApi]:
    """Servers of several projects and cells; one is deleted, one locked, some have tags."""
    folder = tmp_path_factory.mktemp("upstream")
    with live_api(folder, "--simulate", "--rate", "0", "--cells", "2", "--instances", str(INSTANCES)) as api:
        login = read_cloud(api.clouds_file, "fleetlight", timeout_s=60).credentials.headers(None)
        headers = {**login, "OpenStack-API-Version": "compute 2.100"}
        with httpx.Client(base_url=f"{api.url}/v2.1", headers=headers, timeout=60) as client:
            wait_until(lambda: len(client.get("/servers?all_tenants=1").json()["servers"]) == INSTANCES)
            uuids = [server["id"] for server in client.get("/servers?all_tenants=1").json()["servers"]]
            locked = {"lock": {"locked_reason": "mine"}}
            assert client.post(f"/servers/{uuids[0]}/action", json=locked).is_success
            for uuid in uuids[1:4]:
                assert client.put(f"/servers/{uuid}/tags", json={"tags": ["blue", uuid]}).is_success
            gone = f"/servers/{uuids[4]}"
            assert client.delete(gone).is_success
            wait_until(lambda: client.get(gone, headers={"Fleetlight-Consistency": "strong"}).status_code == 404)
        yield api


def cell_at(api: LiveApi, **login: Any) -> Cell:
    given = login or {"cloud": "fleetlight", "clouds_file": api.clouds_file}
    address = UpstreamAddress(f"{api.url}/v2.1", **given).write()
    return Cell("5a1c6f0e-8c8e-4d6f-9a52-0a3a1d2f7c44", "upstream", CellKind.NOVA_API, address, "")


@pytest.fixture
def adapter(upstream: LiveApi) -> Iterator[CellAdapter]:
    with closing(open_adapter(cell_at(upstream), statement_timeout_s=60)) as adapter:
        yield adapter


def everything(adapter: CellAdapter) -> list[dict[str, Any]]:
    return [dict(row.record) for row in adapter.read_page(PageRequest(EVERYTHING, BY_UUID, 1000))]


def paged(adapter: CellAdapter, request: PageRequest) -> list[str]:
    found: list[str] = []
    while rows := adapter.read_page(request):
        assert len(rows) <= request.limit
        found += [row.uuid for row in rows]
        request = replace(request, after=request.order.values(rows[-1].record))
    return found


def filters(records: Sequence[dict[str, Any]]) -> list[Filter]:
    one = next(record for record in records if record["host"])
    return [
        EVERYTHING,
        LIVE,
        Eq("deleted", True),
        all_of(LIVE, Eq("host", one["host"])),
        all_of(LIVE, Eq("project_id", one["project_id"]), Eq("vm_state", "active")),
        all_of(LIVE, In("vm_state", ("active", "stopped"))),
        all_of(LIVE, Matches("display_name", "^(web|db)")),
        all_of(LIVE, Has("tags", "blue")),
        all_of(LIVE, Eq("locked", True)),
        all_of(LIVE, In("uuid", tuple(record["uuid"] for record in records[:3]))),
        any_of(Eq("host", one["host"]), Eq("power_state", 4)),
        all_of(LIVE, Eq("image_ref", one["image_ref"])),
    ]


@pytest.mark.night
def test_every_filter_in_every_order_finds_what_the_servers_that_are_shown_say(
    adapter: CellAdapter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fleetlight.cells.kinds.nova_api.adapter._SMALLEST_PAGE", 6)
    records = everything(adapter)
    assert len(records) == INSTANCES
    assert sum(record["deleted"] for record in records) == 1
    generator = random.Random(7)
    for node in filters(records):
        others = generator.choice((("display_name",), ("host", "created_at"), ("launched_at",)))
        for keys in ((), ("created_at",), others):
            directions = [generator.choice(list(Direction)) for _ in keys]
            order = SortOrder.of(INSTANCE_FIELDS, [SortKey(*key) for key in zip(keys, directions, strict=True)])
            expected = expected_page(records, PageRequest(node, order, 1000), INSTANCE_FIELDS)
            found = paged(adapter, PageRequest(node, order, generator.choice((9, 1000))))
            assert found == [record["uuid"] for record in expected], (node, order)


@pytest.mark.parametrize("direction", list(Direction))
@pytest.mark.parametrize("field", ["display_name", "uuid"])
def test_names_are_in_nice_order(adapter: CellAdapter, field: str, direction: Direction) -> None:
    records = sorted(everything(adapter), key=lambda record: record["uuid"])
    expected = sorted(records, key=lambda record: parts(record[field]), reverse=direction is Direction.DESC)
    order = SortOrder.of(INSTANCE_FIELDS, [SortKey(field, direction, Collation.NICE)])
    assert paged(adapter, PageRequest(EVERYTHING, order, 7)) == [record["uuid"] for record in expected]


def test_servers_are_counted_page_by_page(adapter: CellAdapter) -> None:
    records = everything(adapter)
    by_state = Counter((record["vm_state"], tag) for record in records for tag in record["tags"] or [None])
    assert count_rows(adapter, CountRequest(EVERYTHING, INSTANCE_FIELDS, ("vm_state", "tags"))) == Counts(by_state)
    assert count_rows(adapter, CountRequest(Eq("deleted", True), INSTANCE_FIELDS)) == Counts({(): 1})


def test_page_begins_behind_a_position_that_no_server_has(adapter: CellAdapter) -> None:
    records = everything(adapter)
    middle = expected_page(records, PageRequest(EVERYTHING, NEWEST_FIRST, 1000), INSTANCE_FIELDS)[10]
    for order in (BY_UUID, NEWEST_FIRST):
        nowhere = {**middle, "uuid": middle["uuid"][:-1] + ("0" if middle["uuid"][-1] != "0" else "1")}
        request = PageRequest(EVERYTHING, order, 1000, order.values(nowhere))
        expected = expected_page(records, request, INSTANCE_FIELDS)
        assert [row.uuid for row in adapter.read_page(request)] == [record["uuid"] for record in expected]


def test_one_server_is_found_whether_it_is_deleted_or_not(adapter: CellAdapter) -> None:
    records = everything(adapter)
    for is_deleted in (True, False):
        record = next(record for record in records if record["deleted"] is is_deleted)
        row = adapter.find(record["uuid"])
        assert row is not None
        assert row.record == record
    assert adapter.find("7d1f7e4c-2f43-4c56-8f6c-2f2f3c1f4a55") is None


async def test_list_is_the_same_by_index_and_by_the_api_itself(
    upstream: LiveApi, adapter: CellAdapter, tmp_path: Path
) -> None:
    index = IndexSettings(path=tmp_path / "index.db")
    with closing(open_writer(index)) as writer:
        writer.prepare()
        compared = compare_cell(adapter, writer, batch_size=7)
        assert (compared.rows, compared.written, compared.removed) == (INSTANCES, INSTANCES, 0)
        assert compare_cell(adapter, writer, batch_size=7).removed == 0
        writer.save_progress([CellProgress(adapter.cell.uuid, 0, compared.began_at, is_complete=True)])

    pool = CellPool(lambda: [adapter.cell], open_adapter)
    settings = SearchSettings(enabled=True, index_deadline_s=60, cell_timeout_s=60)
    searcher = open_searcher(index)
    list_index = IndexGateway(searcher, settings)
    lister = InstanceLister(pool, list_index, settings)
    for node in (LIVE, EVERYTHING, all_of(LIVE, Has("tags", "blue"))):
        request = PageRequest(node, NEWEST_FIRST, 100)
        pages = {
            consistency: await lister.list_page(request, TEMPLATE, ReadOptions(consistency, (), 5))
            for consistency in (Consistency.ANY, Consistency.STRONG)
        }
        by_index, by_cell = pages[Consistency.ANY], pages[Consistency.STRONG]
        assert [answer.route for answer in by_index.cells] == [Route.INDEX]
        assert [answer.route for answer in by_cell.cells] == [Route.LIVE]
        assert by_index.items == by_cell.items
        assert by_cell.items
    list_index.close()
    await searcher.close()
    await pool.close()


def test_servers_that_changed_lately_are_read_with_one_request(
    adapter: CellAdapter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fleetlight.cells.kinds.nova_api.adapter._LATELY_S", 24 * 3600)
    asked: list[Query] = []
    ask = ComputeApi.servers

    def counted(api: ComputeApi, query: Query, **rest: Any) -> ServerPage:
        asked.append(query)
        return ask(api, query, **rest)

    records = {record["uuid"]: record for record in everything(adapter) if record["uuid"] in record["tags"]}
    assert len(records) == 3
    monkeypatch.setattr(ComputeApi, "servers", counted)
    rows = rows_of(adapter, list(records))
    assert {uuid: row.record["display_name"] for uuid, row in rows.items()} == {
        uuid: record["display_name"] for uuid, record in records.items()
    }
    assert len(asked) == 1


def test_server_that_the_api_knows_and_does_not_list_is_not_taken_for_one_that_is_gone(
    adapter: CellAdapter, monkeypatch: pytest.MonkeyPatch
) -> None:
    living, deleted = (
        next(record["uuid"] for record in everything(adapter) if record["deleted"] is is_deleted)
        for is_deleted in (False, True)
    )
    # As Nova lists while one of its cells is down.
    monkeypatch.setattr(ComputeApi, "servers", lambda *_, **__: ServerPage((), has_more=False))
    with pytest.raises(CellUnreachableError, match="does not list it"):
        adapter.find(living)
    assert adapter.find(deleted) is None


def test_api_that_says_that_it_lacks_servers_is_a_cell_that_cannot_be_reached(
    adapter: CellAdapter, monkeypatch: pytest.MonkeyPatch
) -> None:
    everything(adapter)
    lacking = HttpAnswer(200, {"fleetlight-complete": "false"}, b'{"servers": []}')
    monkeypatch.setattr(UpstreamConnection, "get", lambda *_, **__: lacking)
    with pytest.raises(CellUnreachableError, match="not complete"):
        everything(adapter)


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ({"OS-EXT-SRV-ATTR:host": None}, "may not see OS-EXT-SRV-ATTR:host of servers"),
        ({"deleted": None}, "may not list deleted servers"),
    ],
)
def test_account_that_may_see_less_than_an_administrator_is_a_cell_that_cannot_be_reached(
    adapter: CellAdapter, monkeypatch: pytest.MonkeyPatch, fault: dict[str, None], said: str
) -> None:
    ask = ComputeApi.servers

    def with_less_rights(api: ComputeApi, query: Query, **rest: Any) -> ServerPage:
        """Nova ignores parameters, and leaves out members, that an account may not use or see."""
        page = ask(api, [each for each in query if each[0] not in fault], **rest)
        shown = [{name: value for name, value in server.items() if name not in fault} for server in page.servers]
        return replace(page, servers=shown)

    monkeypatch.setattr(ComputeApi, "servers", with_less_rights)
    with pytest.raises(CellUnreachableError, match=said):
        everything(adapter)


@pytest.fixture
def mixed_fleet(upstream: LiveApi, tmp_path: Path) -> Iterator[ComputeFleet]:
    """Three native cells and a compute API, `cloud`, of which no mapping is known; all in an index of an hour ago."""
    with compute_fleet(tmp_path) as fleet:
        fleet.fill(6)
        address = cell_at(upstream).database_url
        cloud = fleet.cells["cloud"] = fleet.fleet.add_cell("cloud", CellKind.NOVA_API, address, "")
        fleet.index("north", "east", "south", age_s=3600)
        with closing(open_adapter(cloud)) as adapter, closing(open_writer(fleet.index_settings)) as writer:
            compare_cell(adapter, writer, batch_size=100)
            writer.save_progress([CellProgress(cloud.uuid, 0, system_clock() - 3600 * 1_000_000, is_complete=True)])
        yield fleet


def test_native_cells_and_a_compute_api_are_one_list_also_while_one_of_them_is_down(mixed_fleet: ComputeFleet) -> None:
    everybody = "/v2.1/servers?all_tenants=1&sort_key=uuid&sort_dir=asc&limit=7"
    healthy = mixed_fleet.api(search=searching(cell_timeout_s=60))
    expected = [server["id"] for page in healthy.walk(everybody) for server in page.json()["servers"]]
    assert len(expected) == 6 + INSTANCES - 1
    assert expected == sorted(set(expected))
    for down in ("cloud", "east"):
        api = mixed_fleet.api(
            search=searching(cell_timeout_s=60), pool=BrokenCells(mixed_fleet, failing_after={down: 1})
        )
        pages = list(api.walk(everybody))
        assert [server["id"] for page in pages for server in page.json()["servers"]] == expected
        for page in pages:
            is_whole = f"{down}=live" in page.headers["Fleetlight-Route"]
            assert page.headers["Fleetlight-Complete"] == ("true" if is_whole else "false")
        assert f"{down}=index-while-down" in pages[-1].headers["Fleetlight-Route"]
        alone = mixed_fleet.api(
            search=searching(cell_timeout_s=60, enabled=False), pool=BrokenCells(mixed_fleet, failing_after={down: 0})
        )
        page = alone.get(everybody.replace("limit=7", "limit=100"))
        assert page.headers["Fleetlight-Complete"] == "false"
        assert f"{down}=skipped" in page.headers["Fleetlight-Route"]
        assert 0 < len(page.json()["servers"]) < len(expected)


def test_list_by_what_the_api_does_not_tell_is_not_complete(mixed_fleet: ComputeFleet) -> None:
    for enabled in (True, False):
        api = mixed_fleet.api(search=searching(cell_timeout_s=60, staleness_limit_s=7200, enabled=enabled))
        for parameters, is_complete in (("name=web", "true"), ("flavor=1", "false"), ("sort_key=locked_by", "false")):
            page = api.get(f"/v2.1/servers?all_tenants=1&{parameters}")
            assert page.headers["Fleetlight-Complete"] == is_complete, (parameters, page.headers["Fleetlight-Route"])
    told = api.get("/fleetlight/explain?request=GET+/v2.1/servers%3Fall_tenants=1%26flavor=1").json()["cells"]
    assert "do not tell the field 'flavor_id'" in str(told)


@pytest.mark.parametrize(("version", "is_complete"), [("2.68", "false"), ("", "false"), ("2.69", "true")])
def test_api_that_does_not_say_which_of_its_own_cells_are_down_is_not_complete_by_any_route(
    mixed_fleet: ComputeFleet, monkeypatch: pytest.MonkeyPatch, version: str, is_complete: str
) -> None:
    get = UpstreamConnection.get

    def as_nova(connection: UpstreamConnection, *target: Any, **rest: Any) -> HttpAnswer:
        """As another software than ours, which does not say that it lacks nothing."""
        answer = get(connection, *target, **rest)
        kept = {name: value for name, value in answer.headers.items() if name.lower() != "fleetlight-complete"}
        return replace(answer, headers=kept | {"x-openstack-nova-api-version": version})

    monkeypatch.setattr(UpstreamConnection, "get", as_nova)
    cloud = mixed_fleet.cells["cloud"]
    with closing(open_adapter(cloud)) as adapter, closing(open_writer(mixed_fleet.index_settings)) as writer:
        assert count_rows(adapter, CountRequest(LIVE, INSTANCE_FIELDS)).is_partial == (is_complete == "false")
        if is_complete == "false":
            with pytest.raises(CellUnreachableError, match="does not say whether a cell of its own is down"):
                compare_cell(adapter, writer, batch_size=100)
    api = mixed_fleet.api(search=searching(cell_timeout_s=60, enabled=False))
    page = api.get("/v2.1/servers?all_tenants=1")
    assert len(page.json()["servers"]) == 6 + INSTANCES - 1
    assert page.headers["Fleetlight-Complete"] == is_complete


def test_server_that_no_mapping_knows_is_found_at_the_compute_api(
    mixed_fleet: ComputeFleet, adapter: CellAdapter
) -> None:
    api = mixed_fleet.api(search=searching(cell_timeout_s=60, enabled=False))
    record = next(record for record in everything(adapter) if not record["deleted"])
    one = f"/v2.1/servers/{record['uuid']}"
    assert api.get(one).json()["server"]["name"] == record["display_name"]
    assert api.get(one, {**MEMBER, "X-Project-Id": "somebody-else"}).status_code == 404
    rest = api.ids(f"/v2.1/servers?all_tenants=1&sort_key=uuid&sort_dir=asc&marker={record['uuid']}")
    assert rest == [uuid for uuid in api.ids("/v2.1/servers?all_tenants=1&sort_key=uuid&sort_dir=asc") if uuid in rest]
    assert all(uuid > record["uuid"] for uuid in rest)
    nobody = "/v2.1/servers/7d1f7e4c-2f43-4c56-8f6c-2f2f3c1f4a55"
    assert api.get(nobody).status_code == 404
    away = mixed_fleet.api(
        search=searching(cell_timeout_s=60), pool=BrokenCells(mixed_fleet, failing_after={"cloud": 0})
    )
    assert away.get(nobody).status_code == 500, "nobody can say that it is not there"


def test_login_that_is_refused_and_api_that_is_away_are_a_cell_that_cannot_be_reached(
    upstream: LiveApi, tmp_path: Path
) -> None:
    wrong = tmp_path / "clouds.yaml"
    wrong.write_text(upstream.clouds_file.read_text().replace("password: ", "password: x"))
    token = tmp_path / "token"
    token.write_text("not-a-token\n")
    away = replace(cell_at(upstream), database_url="http://127.0.0.1:9/v2.1")
    for cell, said in (
        (cell_at(upstream, cloud="fleetlight", clouds_file=wrong), "refuses the login: status 401"),
        (cell_at(upstream, token_file=token), "refuses to list servers: status 401"),
        (replace(cell_at(upstream), database_url=f"{upstream.url}/v9"), "refuses to list servers"),
        (away, "cannot be reached"),
    ):
        with closing(open_adapter(cell, statement_timeout_s=60)) as adapter:
            with pytest.raises(CellUnreachableError, match=said) as refused:
                adapter.find("7d1f7e4c-2f43-4c56-8f6c-2f2f3c1f4a55")
            assert "not-a-token" not in str(refused.value)
    nowhere = replace(cell_at(upstream), database_url=f"{upstream.url}/v2.1?cloud=none&clouds_file={wrong}")
    with pytest.raises(CellUnreachableError, match="no login for a cloud 'none'; known: fleetlight, fleetlight-demo"):
        open_adapter(nowhere)


def test_token_that_has_ended_is_replaced_by_a_new_one(upstream: LiveApi, adapter: CellAdapter) -> None:
    before = everything(adapter)
    credentials = adapter._upstream._credentials  # type: ignore[attr-defined]  # no clock can be moved there
    # No token but the next one of the plugin is good, so it takes what the API has ended for one that lasts.
    credentials._plugin.auth_ref._auth_token = "ended"
    assert everything(adapter) == before


def test_commands_add_sync_and_show_it(upstream: LiveApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("FLEETLIGHT_")]:
        monkeypatch.delenv(name)
    configuration = f'[fleet]\ndatabase_url = "sqlite:///{tmp_path}/fleet.db"\n'
    (tmp_path / "fleetlight.toml").write_text(f'{configuration}[index]\nbackend = "sqlite"\npath = "index.db"\n')
    login = ("--os-cloud", "fleetlight", "--clouds-file", str(upstream.clouds_file))
    for command, said in (
        (("database", "upgrade"), ""),
        (("cell", "add", "nova-api", "east", "--url", f"{upstream.url}/v2.1", *login), "24 instances"),
        (("index", "sync", "--type", "OS::Nova::Server"), "east: 24 instances synced, 1 of them deleted\n"),
        (("index", "status", "--output", "json"), '"health": "ok"'),
    ):
        result = CliRunner().invoke(app, command)
        assert result.exit_code == 0, result.stderr
        assert said in result.stdout


def test_nodes_of_the_api_are_those_that_it_lists(upstream: LiveApi) -> None:
    login = read_cloud(upstream.clouds_file, "fleetlight", timeout_s=60).credentials.headers(None)
    headers = {**login, "OpenStack-API-Version": "compute 2.87"}
    with httpx.Client(base_url=f"{upstream.url}/v2.1", headers=headers, timeout=60) as client:
        shown = client.get("/os-hypervisors/detail?with_servers=true").json()["hypervisors"]
    with closing(open_adapter(cell_at(upstream))) as adapter:
        assert isinstance(adapter, ItemsAdapter)
        nodes = {node["name"]: node for node in adapter.read_items("node", {"name", "pinst_list"})}
        assert adapter.read_items("job", {"id"}) == []
    assert {name: (node["uuid"], node["pinst_cnt"], node["mtotal"]) for name, node in nodes.items()} == {
        each["hypervisor_hostname"]: (each["id"], len(each["servers"]), each["memory_mb"]) for each in shown
    }
    assert len(nodes) > 1


def test_polls_name_each_server_that_changed_once_with_each_change(
    upstream: LiveApi, adapter: CellAdapter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fleetlight.cells.kinds.nova_api.adapter._INTERVAL_S", 0.0)
    monkeypatch.setattr("fleetlight.cells.kinds.nova_api.adapter._RESTS", 0)
    assert isinstance(adapter, PolledAdapter)
    hints = adapter.poll_changes()
    assert hints is not None

    def named() -> frozenset[str]:
        taken = hints.take()
        assert taken is not None
        assert taken.uuids is not None
        # A time says nothing of changes that have none.
        assert taken.at is None
        return taken.uuids

    wait_until(lambda: not named())
    login = read_cloud(upstream.clouds_file, "fleetlight", timeout_s=60).credentials.headers(None)
    with httpx.Client(base_url=f"{upstream.url}/v2.1", headers=login, timeout=60) as client:
        server = client.get("/servers?all_tenants=1&limit=1").json()["servers"][0]
        for name in ("renamed", server["name"]):
            assert client.put(f"/servers/{server['id']}", json={"server": {"name": name}}).is_success
            wait_until(lambda: named() == {server["id"]})
    wait_until(lambda: not named())
    hints.close()
