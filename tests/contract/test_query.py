"""Queries over JSON: chosen fields of the instances of all cells, by every route."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote, urlencode

import pytest

from fleetlight.api.query.item_query import marker_of
from fleetlight.api.settings import ApiSettings
from fleetlight.cells.kinds.native.adapter import NativeAdapter
from fleetlight.cells.model import Cell, InstanceRow
from fleetlight.query.page import PageRequest
from tests.contract.compute_fleet import CELLS, MEMBER, Api, BrokenCells, ComputeFleet, compute_fleet, searching
from tests.contract.conftest import own_fleet

ALL = {"all_projects": "1"}
SMALL = {
    "flavor": {
        "flavorid": "1",
        "name": "small",
        "memory_mb": 512,
        "vcpus": 1,
        "root_gb": 1,
        "ephemeral_gb": 0,
        "swap": 0,
    }
}
LARGE = {
    "flavor": {
        "flavorid": "2",
        "name": "large",
        "memory_mb": 8192,
        "vcpus": 4,
        "root_gb": 80,
        "ephemeral_gb": 0,
        "swap": 0,
    }
}
ROUTES = ("index", "cells", "mixed")
fleet = own_fleet


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ComputeFleet]:
    """The fleet of `fill`, for tests that change nothing of it."""
    with compute_fleet(tmp_path_factory.mktemp("filled")) as fleet:
        fill(fleet)
        yield fleet


def fill(fleet: ComputeFleet) -> None:
    """Twelve instances over three cells: web0 to web11, every third is large, the even ones run."""
    for number in range(12):
        fleet.create(
            CELLS[number % 3],
            display_name=f"web{number}.example.com",
            power_state=1 if number % 2 == 0 else 4,
            vm_state="active" if number % 2 == 0 else "stopped",
            tags=["blue"] if number < 4 else [],
            node=f"node{number % 2}",
            **(LARGE if number % 3 == 0 else SMALL),
        )
    fleet.index()


def api_by(fleet: ComputeFleet, route: str) -> Api:
    fleet.index("east", is_complete=route != "mixed")
    return fleet.api(search=searching(enabled=route != "cells"))


def ask(api: Api, **parameters: str) -> Any:
    response = api.get(f"/fleetlight/query?{urlencode(ALL | parameters)}")
    assert response.status_code == 200, response.text
    return response.json()


def names(answer: Any) -> list[str]:
    return [row[0][1].removesuffix(".example.com") for row in answer["data"]]


@pytest.mark.parametrize("route", ROUTES)
def test_cells_have_status_and_value_by_every_route(fleet_of_any_store: ComputeFleet, route: str) -> None:
    fleet = fleet_of_any_store
    fill(fleet)
    answer = ask(
        api_by(fleet, route),
        fields="name,cell,be/memory,tags,status,hv/acpi,nothing,disk0.size,serial_no,hypervisor",
        filter='name == "web3"',
    )
    assert [field["name"] for field in answer["fields"]][6:8] == ["nothing", "disk0.size"]
    assert answer["fields"][6]["kind"] == "unknown"
    assert answer["data"] == [
        [
            [0, "web3.example.com"],
            [0, "north"],
            [0, 8192],
            [0, ["blue"]],
            [0, "ADMIN_down"],
            [0, True],
            [1, None],
            [3, None],
            [0, 1],
            [0, "kvm"],
        ]
    ]
    assert answer["marker"] is None


@pytest.mark.parametrize("route", ROUTES)
def test_number_of_changes_is_that_of_the_row_by_every_route(fleet_of_any_store: ComputeFleet, route: str) -> None:
    fleet = fleet_of_any_store
    fill(fleet)
    [[_, [_, uuid]]] = ask(fleet.api(), fields="name,uuid", filter='name == "web4"')["data"]
    fleet.operations("east").update(uuid, {"display_name": "web4b.example.com"})
    fleet.index()
    api = api_by(fleet, route)
    # Of columns alone, and with what an index keeps beside them.
    for fields in ("name,serial_no", "name,serial_no,tags"):
        found = ask(api, fields=fields, filter='name == "web4b" or name == "web5"')["data"]
        assert [row[:2] for row in found] == [[[0, "web4b.example.com"], [0, 2]], [[0, "web5.example.com"], [0, 1]]]


def test_cell_is_asked_once_for_what_its_instances_need_of_it_and_only_then(
    fleet: ComputeFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet.add_hosts()
    for number in range(5):
        fleet.create("east", display_name=f"db{number}", node="east-host0", ip_addresses=[])
    fleet.index()
    asked: list[tuple[str, str]] = []

    def read_items(adapter: NativeAdapter, item_type: str, *rest: Any) -> Any:
        asked.append((adapter.cell.name, item_type))
        return original(adapter, item_type, *rest)

    original = NativeAdapter.read_items
    monkeypatch.setattr(NativeAdapter, "read_items", read_items)
    api = fleet.api()
    ask(api, fields="name,status,be/memory,nic.ips,disk.sizes")
    assert asked == []
    answer = ask(
        api, fields="name,pnode.group,hypervisor,be/auto_balance", filter='pnode.group == "default"', limit="2"
    )
    assert sorted(asked) == sorted((cell, what) for cell in CELLS for what in ("cluster", "group"))
    assert answer["data"][0] == [[0, "db0"], [0, "default"], [0, "kvm"], [2, None]]


FILTERS: Mapping[str, Callable[[int], bool]] = {
    'name =* "web1*"': lambda number: number in {1, 10, 11},
    '"blue" in tags': lambda number: number < 4,
    "be/memory > 1024": lambda number: number % 3 == 0,
    'status == "running"': lambda number: number % 2 == 0,
    'status == "running" and "blue" in tags': lambda number: number in {0, 2},
    'not (be/memory > 1024 or "blue" in tags)': lambda number: number % 3 != 0 and number >= 4,
    'pnode == "node1" and be/vcpus != 1': lambda number: number % 2 == 1 and number % 3 == 0,
    "vm_state =~ m/^STOP/i": lambda number: number % 2 == 1,
    'cell == "east"': lambda number: number % 3 == 1,
    "oper_state": lambda number: number % 2 == 0,
    "be/memory == 512 and be/memory == 8192": lambda number: False,
    'os == "unknown, so it stays"': lambda number: True,
}


@pytest.mark.parametrize("route", ROUTES)
def test_filters_keep_the_same_by_every_route_and_names_are_in_nice_order(filled: ComputeFleet, route: str) -> None:
    api = api_by(filled, route)
    for text, is_kept in FILTERS.items():
        assert names(ask(api, fields="name", filter=text)) == [f"web{n}" for n in range(12) if is_kept(n)], text


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("text", ["", "be/memory == 512", 'be/memory == 512 and status == "running"'])
@pytest.mark.parametrize("limit", [1, 3, 100])
def test_pages_follow_each_other_without_a_gap(filled: ComputeFleet, route: str, text: str, limit: int) -> None:
    api = api_by(filled, route)
    whole = names(ask(api, fields="name", filter=text))
    walked: list[str] = []
    marker: str | None = ""
    while marker is not None:
        more = {"marker": marker} if marker else {}
        page = ask(api, fields="name", filter=text, limit=str(limit), **more)
        assert len(page["data"]) <= limit
        walked += names(page)
        marker = page["marker"]
    assert walked == whole


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("limit", [1, 3, 100])
@pytest.mark.parametrize("text", ["", 'cell == "south" or cell == "east"', "be/minmem > 1024", 'name == "no"'])
def test_instances_of_one_cell_after_the_other_by_the_names_of_the_cells(
    filled: ComputeFleet, route: str, text: str, limit: int
) -> None:
    api = api_by(filled, route)
    rows = ask(api, fields="cell,name", filter=text)["data"]
    for order, is_reversed in (("cell", False), ("-cell", True)):
        walked: list[Any] = []
        marker: str | None = ""
        while marker is not None:
            more = {"marker": marker} if marker else {}
            page = ask(api, fields="cell,name", filter=text, order=order, limit=str(limit), **more)
            walked += page["data"]
            marker = page["marker"]
        assert walked == sorted(rows, key=lambda row: str(row[0][1]), reverse=is_reversed)


def test_every_page_by_cell_says_that_a_cell_is_down(fleet: ComputeFleet) -> None:
    for cell in CELLS:
        fleet.create(cell, display_name=cell)
    api = fleet.api(pool=BrokenCells(fleet, failing_after={"north": 0}))
    asked = {"fields": "cell", "order": "cell"}
    for more, cells in (({"limit": "1"}, ["east"]), ({}, ["east", "south"])):
        answer = api.get(f"/fleetlight/query?{urlencode({'all_projects': '1', **asked, **more})}")
        assert [row[0][1] for row in answer.json()["data"]] == cells
        assert answer.headers["fleetlight-complete"] == "false"
    exported = api.get(f"/fleetlight/query/export?{urlencode({'all_projects': '1', **asked})}")
    assert "instance-incomplete.csv" in exported.headers["content-disposition"]


def test_cells_that_hang_are_waited_for_once_in_a_list_by_cell(fleet: ComputeFleet) -> None:
    pool = BrokenCells(fleet, hanging=["east", "south"])
    answer = ask(fleet.api(pool=pool, search=searching(cell_timeout_s=0.2)), fields="cell", order="cell")
    assert (answer["data"], pool.waited) == ([], 2)


def test_servers_without_a_cell_are_read_first_also_where_they_are_listed_last(
    fleet: ComputeFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []

    class Recording(BrokenCells):
        async def read_page(self, cell_uuid: str, request: PageRequest, timeout_s: float) -> Sequence[InstanceRow]:
            read.append(cell_uuid)
            return await super().read_page(cell_uuid, request, timeout_s)

    monkeypatch.setattr(Cell, "is_before_cells", property(lambda cell: cell.name == "east"))
    for cell in CELLS:
        fleet.create(cell, display_name=cell)
    page = ask(fleet.api(pool=Recording(fleet)), fields="cell", order="-cell")
    assert [row[0][1] for row in page["data"]] == ["south", "north", "east"]
    # Once all are asked, by uuid, and then each.
    assert read[-3:] == [fleet.cells[name].uuid for name in ("east", "south", "north")]


def test_cell_is_the_first_key_of_an_order_alone(filled: ComputeFleet) -> None:
    api = filled.api()
    fields = {each["name"]: each["sortable"] for each in api.get("/fleetlight/query/fields").json()["fields"]}
    assert fields["cell"]
    for empty in ({"filter": 'cell == "nowhere"'}, {"marker": marker_of(["zz", None, None])}):
        assert ask(api, fields="name", order="cell", **empty)["data"] == []
    for query, says in (
        ("order=name,cell", "order: 'cell' sorts instances only as the first field"),
        ("order=cell&marker=W251bGxd", "marker: "),
        ("order=cell&marker=WzEsbnVsbCxudWxsXQ", "marker: "),
    ):
        refused = api.get(f"/fleetlight/query?fields=name&all_projects=1&{query}")
        assert (refused.status_code, says in refused.text) == (400, True)
    path = quote("/fleetlight/query?fields=name&all_projects=1&order=cell")
    explained = api.get(f"/fleetlight/explain?request=GET%20{path}").json()
    assert {each["cell"] for each in explained["cells"]} == {*CELLS}
    assert explained["remarks"] == [
        "a list by cell asks one cell after the other; this explains the first rows of all at once"
    ]


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("field", ["be/memory", "memory_mb", "vcpus", "be/vcpus"])
def test_what_the_flavor_gives_sorts_by_every_route(filled: ComputeFleet, route: str, field: str) -> None:
    api = api_by(filled, route)
    large, small = [n for n in range(12) if n % 3 == 0], [n for n in range(12) if n % 3]
    for order, numbers in ((f"-{field},name", [*large, *small]), (f"{field},name", [*small, *large])):
        assert names(ask(api, fields="name", order=order)) == [f"web{n}" for n in numbers]


def test_page_that_is_full_and_the_last_has_no_marker_where_rows_are_tried_here(filled: ComputeFleet) -> None:
    answer = ask(filled.api(), fields="name", filter="be/minmem > 1024", limit="4")
    assert len(answer["data"]) == 4
    assert answer["marker"] is None


def test_small_pages_of_the_store_are_read_until_enough_is_kept(filled: ComputeFleet) -> None:
    api = filled.api(settings=ApiSettings(max_limit=2))
    first = ask(api, fields="name", filter="be/minmem > 1024")
    assert names(first) == ["web0", "web3"]
    second = ask(api, fields="name", filter="be/minmem > 1024", marker=first["marker"])
    assert names(second) == ["web6", "web9"]


def test_answer_says_in_the_headers_of_lists_what_it_covers(filled: ComputeFleet) -> None:
    api = api_by(filled, "mixed")
    response = api.get("/fleetlight/query?fields=name&all_projects=1")
    assert response.headers["Fleetlight-Complete"] == "true"
    assert "east=live" in response.headers["Fleetlight-Route"]
    assert "north=index" in response.headers["Fleetlight-Route"]


def test_cell_that_is_down_makes_the_answer_incomplete_and_not_an_error(filled: ComputeFleet) -> None:
    api = filled.api(search=searching(enabled=False, cell_timeout_s=1), pool=BrokenCells(filled, hanging=["east"]))
    response = api.get("/fleetlight/query?fields=name&all_projects=1&filter=be/memory>0")
    assert response.headers["Fleetlight-Complete"] == "false"
    assert len(response.json()["data"]) == 8


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        ("-name", ["web11", "web10", "web9"]),
        ("vm_state,-name", ["web10", "web8", "web6"]),
        ("-ctime", ["web11", "web10", "web9"]),
    ],
)
def test_order_is_by_fields_in_either_direction(filled: ComputeFleet, order: str, expected: list[str]) -> None:
    for route in ROUTES:
        assert names(ask(api_by(filled, route), fields="name", order=order, limit="3")) == expected


@pytest.mark.parametrize(("text", "count"), [('ctime > "10m ago"', 12), ('ctime < "10m ago"', 0)])
def test_times_may_be_said_by_how_long_ago_they_are(filled: ComputeFleet, text: str, count: int) -> None:
    for route in ROUTES:
        api = api_by(filled, route)
        assert len(names(ask(api, fields="name", filter=text))) == count
        groups = api.get(f"/fleetlight/query/counts?{urlencode({'filter': text, 'all_projects': 1})}").json()["groups"]
        assert sum(group["count"] for group in groups) == count


def test_body_of_a_post_says_the_same_with_filters_as_lists(filled: ComputeFleet) -> None:
    body = {
        "what": "instance",
        "fields": ["name"],
        "filter": ["&", [">", "be/memory", 1024], ["=[]", "tags", "blue"]],
        "order": ["-name"],
        "all_projects": True,
    }
    response = filled.api().request("POST", "/fleetlight/query", json=body)
    assert response.status_code == 200, response.text
    assert names(response.json()) == ["web3", "web0"]


def test_deleted_instances_are_in_no_answer(fleet: ComputeFleet) -> None:
    fill(fleet)
    uuid = fleet.create("east", display_name="gone.example.com")
    fleet.operations("east").delete(uuid)
    fleet.index()
    for route in ROUTES:
        assert names(ask(api_by(fleet, route), fields="name", filter='name == "gone"')) == []


def test_members_see_their_project_and_no_field_of_hosts_and_cells(fleet: ComputeFleet) -> None:
    fleet.create("east", display_name="own.example.com", project_id="demo", node="node1")
    fleet.create("east", display_name="other.example.com", project_id="other", node="node1")
    fleet.index()
    member = {**MEMBER, "X-Project-Id": "demo", "X-User-Id": "ada"}
    for route in ROUTES:
        api = api_by(fleet, route)
        response = api.get("/fleetlight/query?fields=name,cell,pnode,host", member)
        assert response.json()["data"] == [[[0, "own.example.com"], [1, None], [1, None], [1, None]]]
        assert [field["kind"] for field in response.json()["fields"]] == ["text", *["unknown"] * 3]
        for text in ('pnode == "node1"', 'cell == "east"', 'host == "x"'):
            refused = api.get(f"/fleetlight/query?{urlencode({'fields': 'name', 'filter': text})}", member)
            assert refused.status_code == 400
            assert f"Unknown field '{text.split()[0]}'" in refused.text
        assert api.get("/fleetlight/query?fields=name&order=pnode", member).status_code == 400
        assert api.get("/fleetlight/query?fields=name&all_projects=1", member).status_code == 403
        listed = api.get("/fleetlight/query/fields", member).json()["fields"]
        assert {"cell", "pnode", "host"}.isdisjoint(field["name"] for field in listed)


@pytest.mark.parametrize(
    "marker",
    [
        "x",
        "W10",
        "é",
        "bnVsbA",
        "WyJhIl0",
        "WzEsMl0",
        "W251bGwsbnVsbF0",
        "WyJhIiwiYiIsImMiXQ",
        "11111111-1111-4111-8111-111111111111",
    ],
)
def test_marker_that_no_answer_had_is_refused(filled: ComputeFleet, marker: str) -> None:
    response = filled.api().get(f"/fleetlight/query?{urlencode({'fields': 'name', 'marker': marker})}")
    assert response.status_code == 400
    assert "marker: " in response.text


def test_page_goes_on_where_it_ended_though_its_last_row_was_renamed(fleet: ComputeFleet) -> None:
    fill(fleet)
    for route in ROUTES:
        api = api_by(fleet, route)
        first = ask(api, fields="name,uuid", limit="3")
        uuid = first["data"][-1][1][1]
        cell = next(cell for cell in CELLS if fleet.native.find(fleet.cells[cell], uuid) is not None)
        fleet.operations(cell).update(uuid, {"display_name": "zzz.example.com"})
        assert names(ask(api, fields="name", limit="2", marker=first["marker"])) == ["web3", "web4"]
        fleet.operations(cell).update(uuid, {"display_name": "web2.example.com"})


def test_what_owners_may_not_read_of_a_fault_they_are_not_told(fleet: ComputeFleet) -> None:
    fault = {"code": 500, "message": "no", "details": "Traceback of a host", "created_at": 1}
    uuid = fleet.create("east", vm_state="error", fault=fault)
    fleet.index()
    member = {**MEMBER, "X-Project-Id": "demo", "X-User-Id": "ada"}
    api = fleet.api()
    for path in ("query?fields=fault", f"servers/{uuid}/history"):
        assert "Traceback" in api.get(f"/fleetlight/{path}").text.replace("\\n", "") or "query" in path
        assert "Traceback" not in api.get(f"/fleetlight/{path}", member).text


def test_negated_look_into_a_structure_finds_the_same_by_every_route(fleet_of_any_store: ComputeFleet) -> None:
    fleet = fleet_of_any_store
    fill(fleet)
    fleet.operations("east").update(fleet.create("east", metadata={"a": "b"}), {"metadata": {"a": "b"}})
    fleet.operations("east").delete(
        next(
            row[1][1]
            for row in ask(fleet.api(search=searching(enabled=False)), fields="name,uuid", filter='name == "web1"')[
                "data"
            ]
        )
    )
    fleet.index()
    expressions: list[tuple[list[Any], int]] = [
        (["!=", "metadata", {"a": "b"}], 11),
        (["!", ["=~", "metadata", "x"]], 12),
        (["!", ["?", "flavor"]], 0),
    ]
    for route in ROUTES:
        api = api_by(fleet, route)
        for expression, count in expressions:
            body = {"what": "instance", "fields": ["name"], "filter": expression, "order": ["uuid"]}
            response = api.request("POST", "/fleetlight/query", json={**body, "all_projects": True})
            assert len(response.json()["data"]) == count, (route, expression)


@pytest.mark.parametrize(
    ("query", "status", "says"),
    [
        ("", 400, "fields: none is asked for"),
        ("fields=name&what=server", 404, "There is no item type 'server'"),
        ("fields=name&filter=x+==+1", 400, "Unknown field 'x'"),
        ("fields=name&filter=vm_stat+==+1", 400, "Unknown field 'vm_stat'; did you mean 'vm_state'?"),
        ("fields=name&filter=name+==", 400, "line 1, column 8"),
        ("fields=name&filter=admin_up+==+1", 400, "expected true or false"),
        ("fields=name&order=status", 400, "'status' is no field to sort by"),
        ("fields=name&order=nothing", 400, "'nothing' is no field to sort by"),
        ("fields=name&limit=-1", 400, "limit: '-1'"),
        ("fields=name&page=2", 400, "there is no parameter 'page'"),
        ("fields=" + ",".join(["name"] * 201), 400, "201 of them"),
    ],
)
def test_refusal_says_what_would_be_right(filled: ComputeFleet, query: str, status: int, says: str) -> None:
    response = filled.api().get(f"/fleetlight/query?{query}")
    assert response.status_code == status
    [fault] = response.json().values()
    assert says in fault["message"]


@pytest.mark.parametrize(
    "body",
    [
        [],
        {"what": "instance"},
        {"what": "instance", "fields": "name"},
        {"what": "instance", "fields": ["name"], "filter": {"name": 1}},
        {"what": "instance", "fields": ["name"], "filter": ["~", 1]},
        {"what": "instance", "fields": ["name"], "limit": "5"},
        {"what": "instance", "fields": ["name"], "other": 1},
        {"what": "instance", "fields": ["name"], "filter": json.loads("[" * 500 + "]" * 500)},
    ],
    ids=lambda body: str(body)[:60],
)
def test_body_that_is_none_is_refused(filled: ComputeFleet, body: Any) -> None:
    assert filled.api().request("POST", "/fleetlight/query", json=body).status_code == 400


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({"fields": ["name"] * 5}, "one is there 5 times"),
        ({"fields": ["be/memory", "be/maxmem"] * 3}, "one is there"),
        ({"fields": ["name"], "filter": ["|", *[["<", "be/memory", 1]] * 251]}, "251 conditions; there may be 250"),
        ({"fields": ["name"], "filter": ["|", *[["=~", "status", "x"]] * 11]}, "11 patterns; there may be 10"),
        ({"fields": ["name"], "filter": ["!", ["|", *[["=~", "status", "x"]] * 11]]}, "11 patterns"),
        ({"fields": ["name"], "limit": 0}, "limit"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_would_cost_too_much_is_refused_with_the_limit(
    filled: ComputeFleet, body: dict[str, Any], says: str
) -> None:
    response = filled.api().request("POST", "/fleetlight/query", json={"what": "instance", **body})
    assert response.status_code == 400
    assert says in response.text


@pytest.mark.parametrize("place", ["filter", "what", "fields"])
def test_body_that_is_nested_too_deep_is_refused(filled: ComputeFleet, place: str) -> None:
    nested = "[" * 900 + '"\\u0000"' + "]" * 900
    body = {"what": '"instance"', "fields": '["name"]', place: nested}
    text = "{" + ",".join(f'"{name}":{value}' for name, value in body.items()) + "}"
    for content in (text, text.replace("\\u0000", "x")):
        response = filled.api().request("POST", "/fleetlight/query", content=content)
        assert response.status_code == 400, response.text


def test_fields_of_all_item_types_are_told_to_administrators(filled: ComputeFleet) -> None:
    api = filled.api()
    for what in ("instance", "node", "job", "lock", "os", "filter"):
        fields = api.get(f"/fleetlight/query/fields?what={what}").json()["fields"]
        assert set(fields[0]) == {"name", "title", "kind", "doc", "sortable"}
        tried = fields[:: len(fields) // 20 + 1]
        orders = [api.get(f"/fleetlight/query?what={what}&fields=cell&order={field['name']}") for field in tried]
        assert [answer.is_success for answer in orders] == [field["sortable"] for field in tried]
    assert len(api.get("/fleetlight/query/fields?fields=name,foo").json()["fields"]) == 2
    assert api.get("/fleetlight/query/fields?what=node", MEMBER).status_code == 404


def counts(api: Api, **parameters: str) -> dict[tuple[Any, ...], int]:
    response = api.get(f"/fleetlight/query/counts?{urlencode(ALL | parameters)}")
    assert response.status_code == 200, response.text
    assert response.headers["Fleetlight-Complete"] == "true"
    assert response.json()["partial"] is False
    return {tuple(group["by"].values()): group["count"] for group in response.json()["groups"]}


@pytest.mark.parametrize("route", ROUTES)
def test_counts_are_exact_by_every_route(fleet_of_any_store: ComputeFleet, route: str) -> None:
    fleet = fleet_of_any_store
    fill(fleet)
    api = api_by(fleet, route)
    assert counts(api) == {(): 12}
    assert counts(api, by="cell") == {("north",): 4, ("east",): 4, ("south",): 4}
    assert counts(api, by="vm_state") == {("active",): 6, ("stopped",): 6}
    assert counts(api, by="tags") == {("blue",): 4, (None,): 8}
    assert counts(api, by="cell,vm_state", filter='"blue" in tags') == {
        ("north", "active"): 1,
        ("north", "stopped"): 1,
        ("east", "stopped"): 1,
        ("south", "active"): 1,
    }
    assert counts(api, filter='name == "nothing"') in ({}, {(): 0})


def test_counts_of_members_are_of_their_project(fleet: ComputeFleet) -> None:
    fleet.create("east", project_id="demo")
    fleet.create("east", project_id="other")
    fleet.index()
    member = {**MEMBER, "X-Project-Id": "demo", "X-User-Id": "ada"}
    for route in ROUTES:
        api = api_by(fleet, route)
        assert api.get("/fleetlight/query/counts?by=vm_state", member).json()["groups"][0]["count"] == 1
        assert api.get("/fleetlight/query/counts?by=cell", member).status_code == 400
        assert api.get("/fleetlight/query/counts?all_projects=1", member).status_code == 403


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("by=nothing", "by: there is no field 'nothing' of 'instance'"),
        ("by=vm_state,vm_state", "a field is there twice"),
        ("by=ctime,created_at", "a field is there twice"),
        ("by=flavor", "by: 'flavor' has values that make no groups"),
        ("by=a,b,c,d,e", "by: 5 of them; there may be 4"),
        ("fields=name", "there is no parameter 'fields'"),
        ("all_projects=maybe", "all_projects: 'maybe' is neither true nor false"),
        ("filter=nothing", "Unknown field 'nothing'"),
    ],
)
def test_count_that_makes_no_sense_is_refused(filled: ComputeFleet, query: str, says: str) -> None:
    response = filled.api().get(f"/fleetlight/query/counts?{query}")
    assert response.status_code == 400
    assert says in response.text


@pytest.mark.parametrize(
    ("filter_", "asked"),
    [
        ('cell == "east"', {"east"}),
        ('cell == "east" or cell =~ /^n/', {"east", "north"}),
        ('not cell == "east" and name =~ /web/', {"north", "south"}),
        ('cell == "nowhere"', set()),
        ('cell == "east" or name == "web0"', set(CELLS)),
    ],
)
def test_only_cells_that_the_filter_leaves_are_asked(filled: ComputeFleet, filter_: str, asked: set[str]) -> None:
    api = filled.api(search=searching(enabled=False))
    response = api.get(f"/fleetlight/query?{urlencode({**ALL, 'fields': 'name,cell', 'filter': filter_})}")
    assert response.status_code == 200
    assert response.headers["fleetlight-complete"] == "true"
    route = response.headers["fleetlight-route"]
    assert {part.partition("=")[0] for part in route.split(", ") if part} == asked
    cells = {row[1][1] for row in response.json()["data"]}
    assert cells == ({"east", "north"} if "web0" in filter_ else asked)


def test_cell_that_is_not_meant_takes_nothing_from_an_answer(filled: ComputeFleet) -> None:
    api = filled.api(search=searching(enabled=False, cell_timeout_s=0.2), pool=BrokenCells(filled, hanging=["south"]))
    asked = urlencode({**ALL, "by": "cell", "filter": 'not cell == "south"'})
    counts = api.get(f"/fleetlight/query/counts?{asked}")
    assert counts.headers["fleetlight-complete"] == "true"
    assert {group["by"]["cell"]: group["count"] for group in counts.json()["groups"]} == {"north": 4, "east": 4}


def test_what_only_a_cell_that_is_down_could_say_is_not_known(fleet: ComputeFleet) -> None:
    fill(fleet)
    fleet.index("south", age_s=5000)
    pool = BrokenCells(fleet, hanging=["south"])
    api = fleet.api(search=searching(staleness_limit_s=10, cell_timeout_s=0.2), pool=pool)
    fields = "cell,name,oper_state,oper_ram,status,be/memory"
    response = api.get(f"/fleetlight/query?{urlencode({**ALL, 'fields': fields, 'filter': 'not oper_state'})}")
    assert response.headers["fleetlight-complete"] == "false"
    assert "south=index-while-down" in response.headers["fleetlight-route"]
    rows = response.json()["data"]
    assert [row[2:5] for row in rows if row[0][1] == "south"] == []
    response = api.get(f"/fleetlight/query?{urlencode({**ALL, 'fields': fields, 'filter': 'oper_state'})}")
    of_south = [row[2:] for row in response.json()["data"] if row[0][1] == "south"]
    assert of_south == [[[2, None], [2, None], [0, "ERROR_nodedown"], [0, 512]]] * 4
    assert [row[4][1] for row in response.json()["data"] if row[0][1] == "north"] == ["running", "running"]
