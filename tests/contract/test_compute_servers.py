"""The server lists and one server, over a real fleet (contracts/nova-servers)."""

import json
from collections.abc import Iterator
from urllib.parse import urlencode

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fleetlight.api.compute.protocol.parameters import PARAMETERS
from fleetlight.api.compute.server_lists.filter_and_order import SORTED
from fleetlight.api.settings import ApiSettings
from tests.contract.compute_fleet import MEMBER, Api, ComputeFleet, compute_fleet, microversion
from tests.contract.conftest import own_fleet
from tests.support.examples import examples

STRONG = {"Fleetlight-Consistency": "strong"}
UNKNOWN = "00000000-0000-4000-8000-000000000000"
fleet = own_fleet


@pytest.fixture(scope="module")
def filled_api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """For tests that only ask."""
    with compute_fleet(tmp_path_factory.mktemp("fleet")) as fleet:
        fleet.fill(6)
        yield fleet.api()


def test_short_list_has_three_keys_and_says_its_microversion(fleet: ComputeFleet) -> None:
    uuids = fleet.fill(3)
    response = fleet.api().get("/v2.1/servers")
    assert response.status_code == 200
    assert response.headers["OpenStack-API-Version"] == "compute 2.1"
    assert response.headers["X-OpenStack-Nova-API-Version"] == "2.1"
    assert response.headers["X-Openstack-Request-Id"] == response.headers["X-Compute-Request-Id"]
    assert response.headers["X-Openstack-Request-Id"].startswith("req-")
    assert response.headers["Content-Type"] == "application/json"
    servers = response.json()["servers"]
    assert [server["id"] for server in servers] == uuids
    assert [set(server) for server in servers] == [{"id", "name", "links"}] * 3
    assert servers[0]["links"] == [
        {"rel": "self", "href": f"http://api.test/v2.1/servers/{uuids[0]}"},
        {"rel": "bookmark", "href": f"http://api.test/servers/{uuids[0]}"},
    ]


@pytest.mark.parametrize("version", ["2.1", "2.3", "2.26", "2.47", "2.73", "2.96", "2.98", "latest"])
@pytest.mark.parametrize("role", ["admin", "member"])
def test_index_and_cells_give_the_same_bytes(fleet: ComputeFleet, version: str, role: str) -> None:
    fleet.fill(7, image_ref="image", host="node-1", locked=True, tags=["a"])
    api = fleet.api()
    for path in ("/v2.1/servers", "/v2.1/servers/detail", "/v2.1/demo/servers/detail?limit=3"):
        by_index = api.get(path, microversion(version), {"X-Roles": role})
        by_cells = api.get(path, microversion(version), {"X-Roles": role}, STRONG)
        assert by_index.content == by_cells.content
        assert len(by_index.json()["servers"]) in {3, 7}
        if role == "admin":
            assert by_index.headers["Fleetlight-Route"].startswith("east=index;watermark=")
            assert by_cells.headers["Fleetlight-Route"] == "east=live, north=live, south=live"
        else:
            assert by_index.headers["Fleetlight-Route"] == "index"
            assert by_cells.headers["Fleetlight-Route"] == "cells"
        assert by_index.headers["Fleetlight-Complete"] == by_cells.headers["Fleetlight-Complete"] == "true"


def test_pages_follow_links_and_a_full_last_page_links_to_an_empty_one(fleet: ComputeFleet) -> None:
    uuids = fleet.fill(3)
    api = fleet.api()
    first = api.get("/v2.1/servers?limit=2").json()
    assert first["servers_links"] == [
        {"rel": "next", "href": f"http://api.test/v2.1/servers?limit=2&marker={uuids[1]}"}
    ]
    assert [len(page.json()["servers"]) for page in api.walk("/v2.1/servers?limit=2")] == [2, 1]
    assert [len(page.json()["servers"]) for page in api.walk("/v2.1/demo/servers/detail?limit=3")] == [3, 0]
    assert api.get("/v2.1/servers?limit=0").json() == {"servers": []}
    assert "servers_links" not in api.get("/v2.1/servers").json()


def test_largest_page_is_max_limit(fleet: ComputeFleet) -> None:
    fleet.fill(5)
    api = fleet.api(settings=ApiSettings(max_limit=2))
    assert len(api.ids("/v2.1/servers")) == 2
    assert len(api.ids("/v2.1/servers?limit=99999999999999999999999999")) == 2
    assert len(api.ids("/v2.1/servers?limit=00000000000000000000000001")) == 1
    assert api.ids("/v2.1/servers?limit=00000000000000000000000000") == []
    assert [len(page.json()["servers"]) for page in api.walk("/v2.1/servers")] == [2, 2, 1]


@pytest.mark.parametrize("headers", [{}, STRONG], ids=["index", "cells"])
def test_links_keep_several_sort_keys_in_order(fleet: ComputeFleet, headers: dict[str, str]) -> None:
    for number in range(7):
        fleet.create("north", display_name="same" if number % 2 else None, host=f"h{number % 3}")
    fleet.index()
    api = fleet.api()
    query = "sort_key=host&sort_dir=desc&sort_key=display_name&sort_dir=asc"
    whole = api.ids(f"/v2.1/servers?{query}", headers)
    paged = [
        server["id"]
        for page in api.walk(f"/v2.1/servers?{query}&limit=2", headers)
        for server in page.json()["servers"]
    ]
    assert paged == whole
    assert len(set(whole)) == 7


@pytest.mark.parametrize("headers", [{}, STRONG], ids=["index", "cells"])
def test_pages_in_the_order_of_every_key_follow_each_other(fleet: ComputeFleet, headers: dict[str, str]) -> None:
    fleet.fill(7, host="h", launched_at=None)
    api = fleet.api()
    keys = sorted({*SORTED, "locked"} - {"uuid"})
    query = "&".join(f"sort_key={key}&sort_dir={'asc' if n % 2 else 'desc'}" for n, key in enumerate(keys))
    whole = api.ids(f"/v2.1/servers?{query}", headers, microversion("latest"))
    paged = []
    for page in api.walk(f"/v2.1/servers?{query}&limit=2", headers, microversion("latest")):
        assert page.headers["Fleetlight-Complete"] == "true"
        paged += [server["id"] for server in page.json()["servers"]]
    assert len(whole) == 7
    assert paged == whole
    assert not api.index.safe_connect.is_tripped


@pytest.mark.parametrize("name", ["tags", "tags-any", "not-tags", "not-tags-any"])
def test_no_number_of_tags_takes_the_index_from_everybody(filled_api: Api, name: str) -> None:
    def status(count: int) -> int:
        tags = ",".join(map(str, range(count)))
        return filled_api.get(f"/v2.1/servers?{name}={tags}", MEMBER, microversion("2.26")).status_code

    assert status(200) == 200
    assert status(201) == 400
    assert status(3000) == 400
    assert not filled_api.index.safe_connect.is_tripped


def test_link_repeats_what_does_not_count_for_the_caller_but_nothing_unknown(filled_api: Api) -> None:
    response = filled_api.get("/v2.1/servers?limit=1&host=x&_y=1&foo=1&tags=a", MEMBER)
    href = response.json()["servers_links"][0]["href"]
    marker = response.json()["servers"][0]["id"]
    assert href.partition("?")[2] == f"_y=1&host=x&limit=1&marker={marker}"


@pytest.mark.parametrize(
    ("version", "query", "status"),
    [
        ("2.75", "foo=1", 400),
        ("2.74", "foo=1", 200),
        ("2.74", "sort_key=id", 200),
        ("2.75", "sort_key=id", 400),
        ("2.1", "sort_key=name", 400),
        ("2.1", "sort_key=host", 200),
        ("2.1", "sort_key=host&sort_dir=up", 400),
        ("2.1", "sort_dir=asc&sort_dir=asc", 400),
        ("2.37", "status=foo", 200),
        ("2.38", "status=foo", 400),
        ("2.38", "status=foo&status=active", 200),
        ("2.1", "name=", 400),
        ("2.1", "name=[", 400),
        ("2.1", "limit=-1", 400),
        ("2.1", "limit=", 400),
        ("2.1", "limit=x", 400),
        ("2.1", f"marker={UNKNOWN}", 400),
        ("2.1", "marker=nothing", 400),
        ("2.1", "changes-since=yesterday", 400),
        ("2.1", "changes-since=0001-01-01T00:00:00%2B23:59", 400),
        ("2.1", "changes-since=2026-01-01", 200),
        ("2.66", "changes-since=2026-01-02&changes-before=2026-01-01", 400),
        ("2.1", "all_tenants=maybe", 400),
        ("2.1", "all_tenants", 200),
        ("2.73", "locked=", 400),
        ("2.1", "ip=10.0", 200),
        ("2.1", "_x=1", 400),
        ("2.1", "metadata=1", 400),
        ("2.1", "name=%ff", 400),
        ("2.1", "name=%00", 400),
        ("2.1", "flavor=nosuch", 200),
        ("2.25", "tags=a", 200),
    ],
)
def test_status_of_a_list_request(filled_api: Api, version: str, query: str, status: int) -> None:
    response = filled_api.get(f"/v2.1/servers?{query}", microversion(version))
    assert response.status_code == status, response.text
    if status == 400:
        assert set(response.json()) == {"badRequest"}
        assert response.json()["badRequest"]["code"] == 400
        assert response.headers["OpenStack-API-Version"] == f"compute {version}"


@pytest.mark.parametrize(
    ("query", "status", "count"),
    [
        ("deleted=true", 200, 1),
        ("all_tenants=1", 403, 0),
        ("status=deleted", 403, 0),
        ("sort_key=host", 403, 0),
        ("host=elsewhere", 200, 1),
        ("metadata=1", 200, 1),
        ("all_tenants=0", 200, 1),
        ("project_id=other", 200, 1),
    ],
)
def test_member_sees_the_own_project_and_no_more(fleet: ComputeFleet, query: str, status: int, count: int) -> None:
    fleet.create("north", host="here")
    fleet.operations("north").delete(fleet.create("north"))
    fleet.create("east", project_id="other")
    fleet.index()
    for headers in ({}, STRONG):
        response = fleet.api().get(f"/v2.1/servers?{query}", MEMBER, headers)
        assert response.status_code == status
        assert len(response.json().get("servers", [])) == count
        if status == 403:
            assert response.json()["forbidden"]["code"] == 403


def test_admin_sees_the_own_project_unless_asking_for_all(fleet: ComputeFleet) -> None:
    mine = fleet.create("north")
    others = fleet.create("south", project_id="other")
    fleet.index()
    api = fleet.api()
    assert api.ids("/v2.1/servers?project_id=other") == [mine]
    assert api.ids("/v2.1/servers?all_tenants=1&project_id=other") == [others]
    assert api.ids("/v2.1/servers?all_tenants=1&project_id=demo&tenant_id=other") == [others]
    assert set(api.ids("/v2.1/servers?all_tenants=")) == {mine, others}
    assert api.ids("/v2.1/servers", {"X-Project-Id": "other"}) == [others]


@pytest.mark.parametrize(
    ("value", "is_for_all"),
    [
        *((value, True) for value in ("", "1", "t", "TRUE", "On", "y", "yes", "+yes%09", "%C2%A01")),
        *((value, False) for value in ("0", "f", "False", "OFF", "n", "no", "+0+")),
        *((value, None) for value in ("+", "%20", "%09", "%C2%A0", "2", "-1", "1.0", "tr", "None", "null", "true,")),
        *((value, None) for value in ("%D9%A1", "%EF%BC%91", "%F0%9F%98%80", "1&all_tenants=maybe")),
        ("maybe&all_tenants=1", True),
        ("1&all_tenants=0", False),
    ],
)
def test_all_tenants_is_empty_or_a_boolean(filled_api: Api, value: str, is_for_all: bool | None) -> None:
    """Only the empty text means the same as none at all; blanks around a word do not count."""
    for path in ("/v2.1/servers", "/v2.1/servers/detail"):
        answer = filled_api.get(f"{path}?all_tenants={value}", {"X-Project-Id": "nobody"})
        if is_for_all is None:
            assert (answer.status_code, list(answer.json())) == (400, ["badRequest"])
        else:
            assert (answer.status_code, bool(answer.json()["servers"])) == (200, is_for_all)


@pytest.mark.parametrize("headers", [{}, STRONG], ids=["index", "cells"])
def test_filters_keep_what_they_name(fleet: ComputeFleet, headers: dict[str, str]) -> None:
    web = fleet.create("north", display_name="web-1", host="a", tags=["x", "y"], updated_at=2_000_000)
    booting = fleet.create("east", display_name="db-1", task_state="rebooting", tags=["x"], power_state=0)
    stopped = fleet.create("south", display_name="web-2", vm_state="stopped", power_state=4, locked=True)
    gone = fleet.create("south", display_name="old")
    soft = fleet.create("east", display_name="soft", vm_state="soft-delete")
    fleet.operations("south").delete(gone)
    fleet.index()
    api = fleet.api()
    expected = {
        "": {web, booting, stopped},
        "name=^web": {web, stopped},
        "host=a": {web},
        f"uuid={booting}": {booting},
        "status=active": {web, booting},
        "status=reboot": {booting},
        "status=migrating&status=reboot": {booting},
        # One status that stands for a vm_state lets every task through.
        "status=shutoff&status=reboot": {web, booting, stopped},
        "power_state=4": {stopped},
        "tags=x,y": {web},
        "tags-any=x,y": {web, booting},
        "not-tags=x,y": {booting, stopped},
        "not-tags-any=y": {booting, stopped},
        "locked=true": {stopped},
        "image=": {web, booting, stopped},
        "flavor=nosuch": set(),
        "description=anything": {web, booting, stopped},
        "deleted=true": {gone, soft},
        "deleted=true&soft_deleted=": {gone},
        "soft_deleted=1": {web, booting, stopped, soft},
        "status=soft_deleted": set(),
        "status=deleted": {gone},
        "status=deleted&status=active": {web, booting},
        "changes-since=1970-01-01T00:00:02Z": {web, gone},
        "changes-since=1970-01-01T00:00:02.000001Z": {gone},
        "changes-since=1970-01-01&changes-before=1970-01-02": {web},
    }
    found = {query: set(api.ids(f"/v2.1/servers?{query}", microversion("latest"), headers)) for query in expected}
    assert found == expected


def test_pattern_that_the_index_cannot_express_is_answered_by_the_cells(fleet: ComputeFleet) -> None:
    fleet.fill(3)
    assert len(fleet.api().ids("/v2.1/servers?name=(?i)WEB")) == 3


def test_row_shows_what_its_microversion_shows(fleet: ComputeFleet) -> None:
    fleet.fill(1, server_groups=["group"], host="node-1")
    api = fleet.api()

    def server(version: str, *headers: dict[str, str]) -> dict[str, object]:
        found = api.get("/v2.1/servers/detail", microversion(version), *headers).json()["servers"][0]
        assert isinstance(found, dict)
        return found

    assert "OS-EXT-SRV-ATTR:hostname" not in server("2.89", MEMBER)
    assert "OS-EXT-SRV-ATTR:hostname" in server("2.90", MEMBER)
    assert "OS-EXT-SRV-ATTR:host" not in server("2.104", MEMBER)
    assert server("2.104")["OS-EXT-SRV-ATTR:host"] == "node-1"
    assert "server_groups" not in server("2.71")


def test_one_server_comes_from_its_cell_and_never_from_the_index(fleet: ComputeFleet) -> None:
    (uuid,) = fleet.fill(1, server_groups=["group"])
    api = fleet.api()
    asked = fleet.searcher.asked
    response = api.get(f"/v2.1/servers/{uuid}", microversion("2.71"))
    assert response.json()["server"]["server_groups"] == ["group"]
    assert response.headers["Fleetlight-Route"] == "north=live"
    assert "server_groups" not in api.get(f"/v2.1/demo/servers/{uuid}", microversion("2.70")).json()["server"]
    assert fleet.searcher.asked == asked


@pytest.mark.parametrize("version", ["2.1", "2.104"])
def test_server_that_is_absent_deleted_or_of_others_is_not_found(fleet: ComputeFleet, version: str) -> None:
    deleted = fleet.create("north")
    fleet.operations("north").delete(deleted)
    others = fleet.create("north", project_id="other")
    api = fleet.api()
    for server_id in (UNKNOWN, deleted, others, "nonsense", "%7B%7D", "details"):
        response = api.get(f"/v2.1/servers/{server_id}", MEMBER, microversion(version))
        assert response.status_code == 404
        assert response.json()["itemNotFound"]["code"] == 404
    assert api.get(f"/v2.1/servers/{others}").status_code == 200


def test_show_takes_no_parameters_from_2_102(fleet: ComputeFleet) -> None:
    uuid = fleet.create("north")
    api = fleet.api()
    assert api.get(f"/v2.1/servers/{uuid}?x=1", microversion("2.101")).status_code == 200
    assert api.get(f"/v2.1/servers/{uuid}?x=1", microversion("2.102")).status_code == 400


def test_consistency_must_be_a_known_one(fleet: ComputeFleet) -> None:
    response = fleet.api().get("/v2.1/servers", {"Fleetlight-Consistency": "eventual"})
    assert response.status_code == 400
    assert "any, bounded, strong, at-least TOKEN" in response.json()["badRequest"]["message"]


_WORDS = st.sampled_from(["1", "true", "", "active", "[", "(?i)a", "desc", "host", UNKNOWN, "2026-01-01", "deleted"])
_NAMES = st.sampled_from([*PARAMETERS, "_x", "metadata", "foo"]) | st.text(max_size=5)
_PAIRS = st.lists(st.tuples(_NAMES, _WORDS | st.text(max_size=8)), max_size=4)


@settings(max_examples=examples(150))
@given(
    pairs=_PAIRS,
    version=st.sampled_from(["2.1", "2.26", "2.38", "2.74", "2.104"]),
    role=st.sampled_from(["admin", "member"]),
    consistency=st.sampled_from(["bounded", "strong"]),
)
@example(pairs=[("limit", "٣")], version="2.1", role="admin", consistency="bounded")
@example(pairs=[("limit", "1\n")], version="2.1", role="admin", consistency="bounded")
def test_no_query_is_an_unexpected_failure(
    filled_api: Api, pairs: list[tuple[str, str]], version: str, role: str, consistency: str
) -> None:
    headers = {"X-Roles": role, "Fleetlight-Consistency": consistency}
    query = urlencode(pairs, errors="surrogatepass")
    response = filled_api.get(f"/v2.1/servers/detail?{query}", microversion(version), headers)
    assert response.status_code in {200, 400, 403}, response.text
    json.loads(response.content)
