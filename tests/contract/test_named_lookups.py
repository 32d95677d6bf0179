"""What is called by a name is what has that name, on every face; a reservation without one has its uuid alone."""

import json
from collections.abc import Iterator, Sequence
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from fleetlight.api.luxi.calls import LuxiCalls, LuxiError
from fleetlight.cli.app import app
from tests.contract.compute_fleet import Api, ComputeFleet, compute_fleet
from tests.support.rapi_calls import RapiCalls

UNKNOWN = "0c4e4f8d-f6c8-48fc-8cb3-b9a686909d07"
NO_INSTANCE = ("nope", "none", "None", UNKNOWN, "web.exam", "null")


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ComputeFleet]:
    """An instance with a name and tags, and two reservations without a name."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "fleetlight.toml").write_text(f'[fleet]\ndatabase_url = "sqlite:///{tmp_path}/fleet.db"\n')
    with compute_fleet(tmp_path) as fleet:
        fleet.add_hosts()
        fleet.create("east", display_name="web.example.com", node="east-host0", tags=["b"])
        yield fleet


@pytest.fixture
def api(fleet: ComputeFleet) -> Api:
    return fleet.api()


@pytest.fixture
def reserved(fleet: ComputeFleet, api: Api) -> Sequence[str]:
    rapi = RapiCalls(fleet, api)
    body = {"__version__": 1, "forthcoming": True}
    uuids = [rapi.cell(cell).result("POST", "/instances", body) for cell in ("north", "south")]
    fleet.index()
    return uuids


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


@pytest.mark.usefixtures("reserved")
def test_remote_api_finds_what_is_called_so_or_abbreviated_and_nothing_else(api: Api) -> None:
    for headers in ({"Fleetlight-Consistency": "any"}, {"Fleetlight-Consistency": "strong"}):
        for called in NO_INSTANCE:
            for more in ("", "/tags", "/console"):
                answer = api.get(f"/2/instances/{called}{more}", headers)
                assert answer.status_code == 404, (called, answer.text)
        for called in ("web", "web.example.com", "WEB"):
            answer = api.get(f"/2/instances/{called}", headers)
            assert (answer.status_code, answer.json()["name"]) == (200, "web.example.com")


def test_reservation_without_a_name_is_found_by_its_uuid(api: Api, reserved: Sequence[str]) -> None:
    for uuid in reserved:
        answer = api.get(f"/2/instances/{uuid}")
        assert (answer.json()["uuid"], answer.json()["name"]) == (uuid, None)


def test_lookup_of_queries_finds_no_reservation_without_a_name(api: Api, reserved: Sequence[str]) -> None:
    for called in NO_INSTANCE:
        # The uuid makes that the row is there to be taken for another one.
        body = {"fields": ["uuid"], "qfilter": ["|", ["==", "name", reserved[0]], ["==", "name", called]]}
        answer = api.request("PUT", "/2/query/instance", json=body)
        assert answer.status_code == 400, called
        assert f"Instance name {called} not found" in unescape(answer.json()["message"])


@pytest.fixture
def luxi(api: Api) -> LuxiCalls:
    return LuxiCalls(api.application.query_engine, api.services.writes, api.services.admission)


def said(api: Api, luxi: LuxiCalls, method: str, *arguments: Any) -> Any:
    async def ask() -> Any:
        result = await luxi.answer(method, arguments)
        return json.loads(b"".join([part async for part in result.parts]))

    return api.run(ask())


def test_old_calls_of_the_socket_find_what_is_named(api: Api, luxi: LuxiCalls, reserved: Sequence[str]) -> None:
    assert said(api, luxi, "QueryInstances", list(NO_INSTANCE), ["uuid"], False) == []
    assert said(api, luxi, "QueryInstances", ["web"], ["name"], False) == [["web.example.com"]]
    assert said(api, luxi, "QueryInstances", [reserved[1]], ["uuid", "name"], False) == [[reserved[1], None]]


def test_tags_are_those_of_what_is_called_so_as_a_whole_or_else_abbreviated(
    fleet: ComputeFleet, api: Api, luxi: LuxiCalls, reserved: Sequence[str]
) -> None:
    for called in NO_INSTANCE:
        with pytest.raises(LuxiError, match="OpPrereqError") as refused:
            said(api, luxi, "QueryTags", "instance", called)
        assert refused.value.details == (f"Instance name {called} not found", "unknown_entity")
    assert said(api, luxi, "QueryTags", "instance", "web") == ["b"]
    assert said(api, luxi, "QueryTags", "instance", reserved[0]) == []
    fleet.create("north", display_name="web", tags=["whole"])
    fleet.index()
    assert said(api, luxi, "QueryTags", "instance", "web") == ["whole"]


@pytest.mark.usefixtures("reserved")
def test_commands_refuse_a_name_that_no_reservation_has() -> None:
    for called in NO_INSTANCE:
        for command in (("show",), ("cancel", "--wait", "0")):
            shown = run("reserve", *command, called)
            assert shown.exit_code == 2, shown.output
            assert f"There is no instance '{called}'" in shown.stderr
        listed = run("list", "instances", called)
        assert (listed.exit_code, f"Instance name {called} not found" in listed.stderr) == (1, True)


@pytest.mark.usefixtures("reserved")
def test_lists_by_names_have_what_is_named() -> None:
    for arguments in (("web*",), ("w?b", "nope*"), ("web", "--order", "-name"), ("web", "nope", "--order", "name")):
        shown = run("list", "instances", *arguments, "-o", "name", "--no-headers")
        assert (shown.exit_code, shown.stdout.split()) == (0, ["web.example.com"]), arguments
    counted = run("list", "instances", "web", "--group-by", "cell", "--no-headers")
    assert counted.stdout.split() == ["east", "1"]


def test_nothing_is_changed_by_a_name_that_no_instance_has(
    fleet: ComputeFleet, api: Api, reserved: Sequence[str]
) -> None:
    rapi = RapiCalls(fleet, api).cell("north")
    for called in NO_INSTANCE:
        for method, path, body in (
            ("DELETE", "", None),
            ("PUT", "/modify", {"beparams": {"vcpus": 4}}),
            ("POST", "/create", {}),
            ("PUT", "/tags?tag=x", None),
            ("PUT", "/rename", {"new_name": "taken.example.com"}),
        ):
            text, _ = rapi.failure(method, f"/instances/{called}{path}", body)
            assert called in text
    for uuid in reserved:
        assert api.get(f"/2/instances/{uuid}").json()["tags"] == []
