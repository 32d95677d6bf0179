"""Whole queries as files: what is in them, what their first and last lines say, and who gets what."""

import csv
import json
from datetime import datetime
from typing import Any
from urllib.parse import urlencode

import pyarrow
import pyarrow.csv
import pytest

from fleetlight.api.http.errors import CutExportError
from fleetlight.api.http.in_process import stream
from fleetlight.api.settings import ApiSettings
from fleetlight.cells.errors import FleetUnreachableError
from fleetlight.listing.answer import Page
from tests.contract.compute_fleet import MEMBER, Api, BrokenCells, ComputeFleet, searching
from tests.contract.test_query import ROUTES, api_by, ask, fill, filled, fleet

__all__ = ["filled", "fleet"]


def export(api: Api, **parameters: str) -> Any:
    response = api.get(f"/fleetlight/query/export?{urlencode({'all_projects': '1'} | parameters)}")
    assert response.status_code == 200, response.text
    return response


def json_lines(api: Api, **parameters: str) -> list[Any]:
    response = export(api, format="jsonl", **parameters)
    assert response.headers["content-type"] == "application/jsonl"
    assert response.text.endswith("\n")
    return [json.loads(line) for line in response.text.splitlines()]


def records(api: Api, **parameters: str) -> list[list[str]]:
    response = export(api, format="csv", **parameters)
    assert response.headers["content-type"] == "text/csv; charset=utf-8"
    return list(csv.reader(response.text.splitlines(keepends=True)))


@pytest.mark.parametrize("route", ROUTES)
def test_file_has_the_rows_of_all_pages_between_two_lines(filled: ComputeFleet, route: str) -> None:
    asked = {"fields": "name,be/memory,tags,os", "filter": "be/memory > 100", "order": "-name"}
    whole = ask(api_by(filled, route), **asked)["data"]
    small_pages = filled.api(settings=ApiSettings(max_limit=5), search=searching(enabled=route != "cells"))
    first, *rows, last = json_lines(small_pages, **asked)
    assert rows == whole
    assert len(rows) == 12
    assert first == {
        "what": "instance",
        "filter": "be/memory > 100",
        "as_of": first["as_of"],
        "complete": True,
        "route": first["route"],
        "fields": ["name", "be/memory", "tags", "os"],
    }
    assert ("live" in first["route"]) == (route != "index")
    assert last == {"rows": 12, "complete": True}


def test_csv_has_values_alone(filled: ComputeFleet) -> None:
    asked = {"fields": "name,be/memory,tags,name,os,hv/acpi", "filter": 'name == "web0" or name == "web5"'}
    names, *rows = records(filled.api(), **asked)
    assert names == ["name", "be/memory", "tags", "os", "hv/acpi"]
    assert rows == [
        ["web0.example.com", "8192", '["blue"]', "", "true"],
        ["web5.example.com", "512", "[]", "", "true"],
    ]


def test_remark_at_the_end_says_what_csv_covers_where_it_is_asked_for(filled: ComputeFleet) -> None:
    asked = {"fields": "name", "filter": 'name == "web0" or name == "web5"'}
    *plain, [remark] = records(filled.api(), **asked, remarks="1")
    assert plain == records(filled.api(), **asked)
    said = json.loads(remark.removeprefix("# "))
    assert {name: said[name] for name in ("what", "filter", "rows", "complete")} == {
        "what": "instance",
        "filter": asked["filter"],
        "rows": 2,
        "complete": True,
    }
    refused = filled.api().get("/fleetlight/query/export?fields=name&format=jsonl&remarks=1")
    assert (refused.status_code, "remarks: only csv" in refused.text) == (400, True)


def test_times_in_csv_are_of_iso_8601(filled: ComputeFleet) -> None:
    [_, [shown]] = records(filled.api(), fields="ctime", filter='name == "web0"')
    [[[_, seconds]]] = json_lines(filled.api(), fields="ctime", filter='name == "web0"')[1:-1]
    assert shown.endswith("Z")
    assert datetime.fromisoformat(shown).timestamp() == pytest.approx(seconds)


def test_csv_is_read_as_it_is(filled: ComputeFleet) -> None:
    text = export(filled.api(), fields="name,be/memory,ctime", order="name", format="csv").content
    table = pyarrow.csv.read_csv(pyarrow.BufferReader(text))
    assert table.column_names == ["name", "be/memory", "ctime"]
    assert [str(column.type) for column in table.columns] == ["string", "int64", "timestamp[ns, tz=UTC]"]
    assert table.num_rows == 12


def test_nothing_is_a_file_too(filled: ComputeFleet) -> None:
    assert json_lines(filled.api(), fields="name", filter='name == "no"')[1:] == [{"rows": 0, "complete": True}]
    assert len(records(filled.api(), fields="name", filter='name == "no"')) == 1


@pytest.mark.parametrize(
    "name", ["=1+1", "+1", "-1", "@a", "\ta", '# {"rows":1,"complete":true}', 'a"b,c\nd', "<b>", "\u202ea", "it's"]
)
def test_name_is_no_formula_no_remark_and_no_further_record(fleet: ComputeFleet, name: str) -> None:
    fleet.create("east", display_name=name)
    fleet.index()
    _, (shown,), (last,) = records(fleet.api(), fields="name", remarks="1")
    assert shown == (f"'{name}" if name[0] in "=+-@\t#" else name)
    assert json.loads(last.removeprefix("# "))["rows"] == 1
    assert json_lines(fleet.api(), fields="name")[1] == [[0, name]]


def test_answer_is_a_file_with_the_headers_of_lists(filled: ComputeFleet) -> None:
    for parameters, name in (({"format": "jsonl"}, "instance.jsonl"), ({}, "instance.csv")):
        response = export(api_by(filled, "index"), fields="name", **parameters)
        assert response.headers["content-disposition"] == f'attachment; filename="{name}"'
        assert response.headers["fleetlight-complete"] == "true"
        assert "east=index" in response.headers["fleetlight-route"]
    head = filled.api().request("HEAD", "/fleetlight/query/export?fields=name")
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["fleetlight-complete"] == "true"


def test_cell_that_is_lost_meanwhile_makes_the_last_line_say_so(fleet: ComputeFleet) -> None:
    fill(fleet)
    for down, complete in (({"east": 0}, False), ({"east": 1}, True)):
        pool = BrokenCells(fleet, failing_after=down)
        api = fleet.api(search=searching(enabled=False), pool=pool, settings=ApiSettings(max_limit=3))
        first, *rows, last = json_lines(api, fields="name")
        assert (first["complete"], last["complete"]) == (complete, False)
        assert last["rows"] == len(rows) < 12


def test_csv_of_a_cell_that_is_lost_is_called_incomplete_or_cut_off(fleet: ComputeFleet) -> None:
    fill(fleet)

    def api_without_east(after: int) -> Api:
        pool = BrokenCells(fleet, failing_after={"east": after})
        return fleet.api(search=searching(enabled=False), pool=pool, settings=ApiSettings(max_limit=3))

    named = export(api_without_east(0), fields="name").headers["content-disposition"]
    assert named == 'attachment; filename="instance-incomplete.csv"'
    api = api_without_east(1)

    async def read() -> None:
        async with stream(api.app, "/fleetlight/query/export", query="fields=name&all_projects=1") as answer:
            assert answer.head.headers["content-disposition"] == 'attachment; filename="instance.csv"'
            async for _ in answer.pieces:
                pass

    with pytest.raises(CutExportError):
        api.run(read())
    *_, [remark] = records(api_without_east(1), fields="name", remarks="1")
    assert json.loads(remark.removeprefix("# "))["complete"] is False


def test_list_as_of_a_moment_is_exported(fleet: ComputeFleet) -> None:
    fill(fleet)
    before = json_lines(fleet.api(), fields="name,uuid")
    moment = before[0]["as_of"]
    fleet.create("east", display_name="later")
    fleet.number_changes()
    fleet.index()
    first, *rows, last = json_lines(fleet.api(), fields="name,uuid", as_of=moment)
    assert (rows, last) == (before[1:-1], {"rows": 12, "complete": True})
    assert first["as_of"] == moment
    assert "changelog" in first["route"]
    assert json_lines(fleet.api(), fields="name,uuid")[-1]["rows"] == 13


@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_file_that_is_cut_off_has_no_last_line(
    filled: ComputeFleet, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    api = filled.api(settings=ApiSettings(max_limit=5))
    lister, pages = api.services.lister, iter(range(2))
    list_page = lister.list_page

    async def failing(*asked: Any, **more: Any) -> Page:
        if next(pages, None) is None:
            raise FleetUnreachableError("gone")
        return await list_page(*asked, **more)

    monkeypatch.setattr(lister, "list_page", failing)
    text = export(api, fields="name", format=form).text
    assert text.count(".example.com") == 10
    assert '"rows":' not in text


def test_members_export_their_own(fleet: ComputeFleet) -> None:
    for project in ("demo", "other"):
        fleet.create("east", project_id=project, display_name=project)
    fleet.index()
    member = MEMBER | {"X-Project-Id": "demo"}
    address = "/fleetlight/query/export?format=jsonl&fields=name"
    first, *rows, _ = map(json.loads, fleet.api().get(address, member).text.splitlines())
    assert rows == [[[0, "demo"]]]
    assert first["route"] == "index"
    for query, status in (("&all_projects=1", 403), (",host", 400), ("&what=node", 404)):
        assert fleet.api().get(address + query, member).status_code == status


def test_nodes_are_exported(fleet: ComputeFleet) -> None:
    fleet.add_hosts(3)
    api = fleet.api(settings=ApiSettings(max_limit=2))
    _, *rows, last = json_lines(api, what="node", fields="name,cell")
    assert rows == ask(fleet.api(), what="node", fields="name,cell")["data"]
    assert last == {"rows": 9, "complete": True}


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("fields=name&format=xml", "format: 'xml' is not one of csv, jsonl"),
        ("fields=", "fields"),
        ("fields=nam", "nam"),
        ("", "fields"),
        ("fields=name&limit=3", "limit"),
        ("fields=name&marker=a", "marker"),
        ("fields=name&filter=nam%20%3D%3D%201", "nam"),
        ("fields=name&as_of=now", "as_of"),
        ("fields=name&filter=name%3D%3D%22%ff%22", ""),
    ],
)
def test_export_of_no_question_is_refused(filled: ComputeFleet, query: str, says: str) -> None:
    response = filled.api().get(f"/fleetlight/query/export?{query}")
    assert response.status_code == 400
    assert says in response.text
