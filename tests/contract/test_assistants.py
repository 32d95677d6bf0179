"""Tools for assistants, asked by the protocol's own client: what they find, and that no part looks like the whole."""

import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.types import TextContent

from fleetlight.api.assistants import routes
from fleetlight.api.assistants.results import result_of
from fleetlight.api.http.in_process import InProcessResponse
from fleetlight.api.shared.proof import routes_said
from fleetlight.api.shared.times import with_zone
from fleetlight.resources.clock import system_clock
from tests.contract.compute_fleet import CELLS, MEMBER, Api, BrokenCells, ComputeFleet, compute_fleet, searching
from tests.contract.identity_site import Site
from tests.support.fleets.documents import make_uuid

TOOLS = {"query", "count", "fields", "show", "history", "changes", "explain", "capacity", "findings", "cells"}
EVERY = {"all_projects": True}
_SAID = {"protocolVersion": "2026-07-28", "clientInfo": {"name": "test", "version": "1"}, "clientCapabilities": {}}
MODES = ["auto", "legacy", "2026-07-28"]


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ComputeFleet]:
    """Twelve instances over three cells, four of them of another project; nothing here changes it."""
    with compute_fleet(tmp_path_factory.mktemp("fleet")) as fleet:
        for number in range(12):
            project = "other" if number % 3 == 2 else "demo"
            fleet.create(CELLS[number % 3], display_name=f"web{number}", vm_state="active", project_id=project)
        fleet.index()
        yield fleet


@asynccontextmanager
async def client(api: Api, headers: Mapping[str, str], mode: Any = "auto") -> AsyncIterator[Client]:
    async with (
        api.app.router.lifespan_context(api.app),
        httpx2.AsyncClient(transport=httpx2.ASGITransport(api.app), headers=dict(headers)) as http,
        Client(streamable_http_client("http://api.test/mcp", http_client=http), mode=mode) as connected,
    ):
        yield connected


def called(api: Api, tool: str, headers: Mapping[str, str] = {}, /, mode: Any = "auto", **arguments: Any) -> Any:
    """What the tool answers: its fields, or the text of its refusal."""

    async def scenario() -> Any:
        async with client(api, headers, mode) as connected:
            result = await connected.call_tool(tool, arguments)
            [content] = result.content
            assert isinstance(content, TextContent)
            if result.is_error:
                return content.text
            # Assistants that read no fields read the same as a text, and the sentence first.
            assert content.text.lstrip("{ \n").startswith('"summary": "')
            return result.structured_content

    return api.run(scenario())


def names(found: Any) -> list[str]:
    return [item["name"] for item in found["data"]]


@pytest.mark.parametrize("mode", MODES)
def test_tools_only_read_in_every_revision_of_the_protocol(fleet: ComputeFleet, mode: str) -> None:
    api = fleet.api()

    async def scenario() -> Any:
        async with client(api, {}, mode) as connected:
            return (await connected.list_tools()).tools

    tools = api.run(scenario())
    assert {tool.name for tool in tools} == TOOLS
    assert all(tool.annotations.read_only_hint and tool.output_schema for tool in tools)
    assert called(api, "count", mode=mode, **EVERY)["data"] == [{"by": {}, "count": 12}]


def test_tools_are_loaded_by_the_first_request_and_not_by_the_start(
    fleet: ComputeFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "fleetlight.api.assistants.tools", raising=False)
    api = fleet.api()
    api.run(ended(api.app.router.lifespan_context(api.app)))
    assert "fleetlight.api.assistants.tools" not in sys.modules
    assert called(api, "count", **EVERY)["data"] == [{"by": {}, "count": 12}]


def test_tools_that_could_not_be_opened_are_opened_by_the_next_request(
    fleet: ComputeFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    api = fleet.api()

    async def scenario() -> list[int]:
        asked = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
        headers = {"Accept": "application/json, text/event-stream"}
        async with api.app.router.lifespan_context(api.app):
            with monkeypatch.context() as broken:
                broken.setattr(StreamableHTTPSessionManager, "run", lambda _: 1 / 0)
                first = await api.ask("POST", "/mcp", json=asked, headers=headers)
            return [first.status_code, (await api.ask("POST", "/mcp", json=asked, headers=headers)).status_code]

    assert api.run(scenario())[0] == 500
    assert called(api, "count", **EVERY)["complete"] is True


async def ended(block: AbstractAsyncContextManager[object]) -> None:
    async with block:
        pass


def test_whole_list_says_that_it_is_everything_and_of_when(fleet: ComputeFleet) -> None:
    found = called(fleet.api(), "query", fields=["name", "cell"], **EVERY)
    assert len(found["data"]) == 12
    assert (found["complete"], found["has_more"], found["missing"]) == (True, False, [])
    assert found["summary"].endswith("This is everything.")
    assert {cell["name"]: cell["route"] for cell in found["cells"]} == dict.fromkeys(CELLS, "index")
    assert found["as_of"] in found["summary"]


def test_cut_list_cannot_look_whole_and_its_parts_make_the_whole(fleet: ComputeFleet) -> None:
    api = fleet.api()
    seen: list[str] = []
    marker = None
    while True:
        found = called(api, "query", fields=["name"], limit=5, marker=marker, **EVERY)
        seen += names(found)
        if not found["has_more"]:
            assert found["summary"].endswith("This is the last part: with those before it it is everything.")
            break
        assert found["summary"].startswith("ONLY A PART: there is more")
        assert "This is everything" not in found["summary"]
        marker = found["next"].partition('marker="')[2].rstrip('"')
    assert sorted(seen) == sorted(f"web{number}" for number in range(12))


def test_list_without_a_cell_says_first_that_it_is_incomplete_and_what_is_missing(fleet: ComputeFleet) -> None:
    api = fleet.api(search=searching(enabled=False, cell_timeout_s=1), pool=BrokenCells(fleet, hanging=["east"]))
    for tool, arguments in (("query", {"fields": ["name"]}), ("count", {})):
        found = called(api, tool, **arguments, **EVERY)
        assert found["complete"] is False
        assert found["summary"].startswith("INCOMPLETE: some of the fleet did not answer")
        assert found["missing"] == ["cell east: skipped"]
        assert "cell east: skipped" in found["summary"]
        assert "This is everything" not in found["summary"]


def test_rows_of_a_cell_that_is_down_are_of_then_and_not_of_now(fleet: ComputeFleet) -> None:
    api = fleet.api(
        search=searching(cell_timeout_s=1, staleness_limit_s=0.000001), pool=BrokenCells(fleet, hanging=["east"])
    )
    found = called(api, "query", fields=["name"], **EVERY)
    assert len(found["data"]) == 12
    [east] = [cell for cell in found["cells"] if cell["name"] == "east"]
    assert (found["complete"], east["route"]) == (False, "index-while-down")
    assert "cell east: index-while-down" in found["summary"]


def test_list_of_a_moment_is_of_that_moment_and_that_of_a_member_of_none(fleet: ComputeFleet) -> None:
    api = fleet.api()
    moment = with_zone(system_clock() - 1_000_000)
    fleet.number_changes()
    then = called(api, "query", fields=["name"], as_of=moment, **EVERY)
    assert (then["as_of"], moment in then["summary"]) == (moment, True)
    found = called(api, "query", MEMBER, fields=["name"])
    assert (found["as_of"], "as of some seconds ago at the most" in found["summary"]) == (None, True)


def test_cells_that_are_too_many_to_name_are_counted() -> None:
    said = routes_said("*index=57;age=2.0, *skipped=3")
    assert [(each.cell, each.route, each.age_s) for each in said] == [
        ("57 cells", "index", 2.0),
        ("3 cells", "skipped", None),
    ]
    headers = {"fleetlight-route": "*index=57;age=2.0, *skipped=3", "fleetlight-complete": "false"}
    found = result_of(InProcessResponse(200, headers, b""), [], "0 items", 10_000_000)
    assert (found.missing, found.as_of) == (["3 cells: skipped"], "1970-01-01T00:00:08.000000Z")


def test_board_with_a_cell_that_is_down_says_so_first(fleet: ComputeFleet) -> None:
    api = fleet.api(search=searching(cell_timeout_s=1), pool=BrokenCells(fleet, hanging=["east"]))
    found = called(api, "cells")
    assert (found["complete"], found["summary"].partition(":")[0]) == (False, "INCOMPLETE")
    [missing] = found["missing"]
    assert missing.startswith("cell east: ")


@pytest.mark.timeout(30)
def test_request_for_a_stream_is_refused_and_holds_nobody_up(fleet: ComputeFleet) -> None:
    """The package waits there for its caller to leave, and asks for that without a pause."""
    api = fleet.api()
    asked = {"notifications": {}, "_meta": {f"io.modelcontextprotocol/{name}": value for name, value in _SAID.items()}}
    headers = {
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": "2026-07-28",
        "Mcp-Method": "subscriptions/listen",
    }
    body = {"jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen", "params": asked}

    async def scenario() -> Any:
        async with api.app.router.lifespan_context(api.app):
            return await api.ask("POST", "/mcp", headers, json=body)

    refused = api.run(scenario())
    assert (refused.status_code, "not found" in refused.text.lower()) == (404, True)


def test_members_get_what_is_theirs_and_are_told_what_is_not(fleet: ComputeFleet) -> None:
    api = fleet.api()
    member = MEMBER | {"X-Project-Id": "other"}
    assert sorted(names(called(api, "query", member, fields=["name"]))) == ["web11", "web2", "web5", "web8"]
    assert called(api, "count", member)["data"] == [{"by": {}, "count": 4}]
    assert called(api, "query", member, fields=["name"])["cells"] == []
    for tool, arguments in (
        ("query", {"fields": ["name"], "all_projects": True}),
        ("query", {"fields": ["name"], "what": "node"}),
        ("cells", {}),
        ("findings", {}),
        ("capacity", {}),
        ("explain", {}),
    ):
        assert isinstance(called(api, tool, member, **arguments), str), tool


def test_refusal_says_what_would_be_right(fleet: ComputeFleet) -> None:
    api = fleet.api()
    assert "there is no field nam of instance" in called(api, "query", fields=["nam"])
    assert "did you mean" in called(api, "count", by="sttus")
    assert "expected" in called(api, "query", fields=["name"], filter='ctime > "yesterday"')
    assert "less than or equal to 1000" in called(api, "query", fields=["name"], limit=100_000)
    assert "should match pattern" in called(api, "show", server_id="../../identity")
    assert "could not be found" in called(api, "show", server_id=make_uuid(404))


def test_one_instance_is_shown_with_its_history(fleet: ComputeFleet) -> None:
    api = fleet.api()
    uuid = called(api, "query", fields=["uuid"], filter='name == "web4"', **EVERY)["data"][0]["uuid"]
    assert called(api, "show", server_id=uuid)["data"]["name"] == "web4"
    history = called(api, "history", server_id=uuid)
    assert [entry["revision"] for entry in history["data"]] == [1]
    assert history["summary"].endswith("it is everything.")
    assert "as far back as changes are kept" in called(api, "changes", **EVERY)["summary"]


def test_tools_of_operators_say_what_they_cover(fleet: ComputeFleet) -> None:
    api = fleet.api()
    assert {cell["name"] for cell in called(api, "cells")["data"]["cells"]} == set(CELLS)
    assert called(api, "findings")["complete"] is True
    assert called(api, "capacity", vcpus=1, memory_mib=1, disk_mib=0)["summary"].startswith("capacity of 3 cells")
    explained = called(api, "explain", filter='name == "web4"')
    assert (explained["complete"], explained["data"]["rows"]) == (True, 1)
    assert "name" in {field["name"] for field in called(api, "fields", what="node")["data"]}


def test_changes_are_told_newest_first_and_that_there_are_more(fleet: ComputeFleet) -> None:
    fleet.number_changes()
    found = called(fleet.api(), "changes", limit=3, **EVERY)
    assert [change["instance"]["name"] for change in found["data"]] == ["web11", "web10", "web9"]
    assert found["has_more"] is True
    assert found["next"].startswith("call changes again")


def test_nobody_calls_tools_without_a_login_and_a_bearer_token_is_one(fleet: ComputeFleet, tmp_path: Path) -> None:
    site = Site(fleet, tmp_path)
    token = site.log_in("ada")
    asked = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    assert site.api.request("POST", "/mcp", json=asked).status_code == 401
    for login in ({"X-Auth-Token": token}, {"Authorization": f"Bearer {token}"}):
        assert called(site.api, "count", login)["complete"] is True


def test_without_the_package_the_refusal_names_it(fleet: ComputeFleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes, "find_spec", lambda _name: None)
    api = fleet.api()

    async def scenario() -> Any:
        async with api.app.router.lifespan_context(api.app):
            return await api.ask("POST", "/mcp", json={})

    refused = api.run(scenario())
    assert refused.status_code == 501
    assert "install fleetlight[mcp]" in refused.text
