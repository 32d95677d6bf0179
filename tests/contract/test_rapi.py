"""Ganeti's remote API over a small fleet (contracts/ganeti-rapi), as its clients see it."""

import hashlib
import json
from base64 import b64encode
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from msgspec.structs import replace

from fleetlight.api.identity.tokens.directory import Directory
from fleetlight.api.settings import ApiSettings
from fleetlight.cells.database.engines import writing
from fleetlight.manager.operations.actions.vocabulary import VOCABULARY
from fleetlight.manager.operations.jobs.model import NewJob, NewOperation
from fleetlight.manager.operations.jobs.queue import add_jobs
from fleetlight.resources.clock import system_clock
from tests.contract.compute_fleet import CELLS, Api, BrokenCells, ComputeFleet, compute_fleet, searching
from tests.contract.identity_site import Site
from tests.support.fleets.identity import OTHER, PASSWORD, weak_hash
from tests.support.rapi_calls import RapiCalls

HA1 = hashlib.md5(b"digest:Ganeti Remote API:secret", usedforsecurity=False).hexdigest()
USERS = f"""
# comment
admin secret write
reader {{cleartext}}secret read , other
digest {{HA1}}{HA1.upper()} read
nobody secret
broken
other {{ssha}}secret write
"""


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[ComputeFleet]:
    """An instance in each cell on the first of its two hosts."""
    with compute_fleet(tmp_path) as fleet:
        fleet.add_hosts()
        for number, cell in enumerate(CELLS):
            fleet.create(cell, display_name=f"web{number}.{cell}.example.com", node=f"{cell}-host0", tags=["blue"])
        fleet.index()
        yield fleet


@pytest.fixture
def users(tmp_path: Path) -> Path:
    path = tmp_path / "rapi-users"
    path.write_text(USERS)
    return path


def basic(name: str, password: str = "secret") -> dict[str, str]:  # noqa: S107  # of the file above
    return {"Authorization": f"Basic {b64encode(f'{name}:{password}'.encode()).decode()}"}


def get(api: Api, path: str, *headers: Mapping[str, str]) -> Any:
    response = api.get(path, *headers)
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == "application/json"
    assert response.text.endswith("\n")
    return response.json()


def fault(api: Api, method: str, path: str, **options: Any) -> tuple[int, str]:
    response = api.request(method, path, **options)
    document = response.json()
    assert document.keys() == {"code", "message", "explain"}
    assert document["code"] == response.status_code
    assert document["explain"]
    return response.status_code, document["message"]


def nested(operator: str, wrappers: int) -> list[Any]:
    expression: list[Any] = ["==", "name", "x"]
    for _ in range(wrappers):
        expression = [operator, expression]
    return expression


def test_it_says_what_it_is(fleet: ComputeFleet) -> None:
    api = fleet.api()
    assert get(api, "/version") == 2
    assert get(api, "/2") is None
    assert sorted(get(api, "/2/features")) == [
        "instance-create-reqv1",
        "instance-reinstall-reqv1",
        "instance-reservations",
        "node-evac-res1",
        "node-migrate-reqv1",
    ]
    info = get(api, "/2/info")
    assert (info["name"], info["uuid"], info["protocol_version"], info["master"]) == ("fleetlight", None, 2, None)
    assert get(api, "/cells/east/2/info")["uuid"] == fleet.cells["east"].uuid
    assert api.get("/cells/east/2/tags").headers["Fleetlight-Complete"] == "true"


def test_lists_name_what_there_is(fleet: ComputeFleet) -> None:
    api = fleet.api()
    names = [f"web{number}.{cell}.example.com" for number, cell in enumerate(CELLS)]
    assert get(api, "/2/instances") == [{"id": name, "uri": f"/2/instances/{name}"} for name in sorted(names)]
    assert [node["id"] for node in get(api, "/2/nodes")] == sorted(f"{cell}-host{n}" for cell in CELLS for n in (0, 1))
    assert get(api, "/cells/east/2/groups") == [{"name": "default", "uri": "/2/groups/default"}]
    assert get(api, "/2/os") == ["cirros-0.6.3", "debian-12", "rocky-9", "ubuntu-24.04"]
    assert get(api, "/2/filters") == get(api, "/2/networks") == get(api, "/2/tags") == []


def test_reservation_without_a_name_is_called_by_its_uuid_and_comes_first(fleet: ComputeFleet) -> None:
    uuid = fleet.create("north", display_name=None, forthcoming=True, power_state=None, vm_state="building")
    api = fleet.api(search=searching(enabled=False))
    listed = get(api, "/2/instances")
    assert {"id": uuid, "uri": f"/2/instances/{uuid}"} in listed
    assert [each["id"] for each in listed] == sorted(each["id"] for each in listed)
    [first, *_] = get(api, "/2/instances?bulk=1")
    assert (first["uuid"], first["name"], first["status"], first["oper_state"]) == (uuid, None, "ADMIN_down", False)
    assert get(api, f"/2/instances/{uuid}") == first


def test_bulk_lists_have_the_values_and_null_for_what_has_none(fleet: ComputeFleet) -> None:
    instances = get(fleet.api(), "/2/instances?bulk=1")
    assert [instance["pnode"] for instance in instances] == [f"{cell}-host0" for cell in CELLS]
    assert len(instances[0]) == 37
    assert instances[0]["os"] is None
    assert instances[0]["tags"] == ["blue"]
    nodes = get(fleet.api(), "/cells/north/2/nodes?bulk=1")
    assert [(node["name"], node["pinst_list"], node["cnodes"]) for node in nodes] == [
        ("north-host0", ["web0.north.example.com"], 1),
        ("north-host1", [], 1),
    ]
    assert len(nodes[0]) == 31


def test_systems_of_cells_that_do_not_answer_are_not_known(fleet: ComputeFleet) -> None:
    pool = BrokenCells(fleet, hanging=[*CELLS])
    response = fleet.api(search=searching(cell_timeout_s=0.2), pool=pool).get("/2/os")
    assert (response.status_code, "no operating system, and" in response.text) == (503, True)


def test_simulated_host_says_what_it_runs_and_uses(tmp_path: Path) -> None:
    """As monitoring programs for Ganeti add it up: what is free, what is used, and what the system has."""
    with compute_fleet(tmp_path) as fleet:
        fleet.add_hosts(2)
        flavor = {"flavorid": "m", "vcpus": 2, "memory_mb": 4096, "root_gb": 20, "ephemeral_gb": 0, "swap": 0}
        values = {"flavor": flavor, "vm_state": "active", "power_state": 1}
        uuid = fleet.create("north", host="north-host0", node="north-host0", **values)
        instance = get(fleet.api(), f"/2/instances/{uuid}")
        nodes = get(fleet.api(), "/cells/north/2/nodes?bulk=1")
    assert (instance["status"], instance["oper_state"]) == ("running", True)
    assert (instance["oper_ram"], instance["oper_vcpus"]) == (4096, 2)
    used = {node["name"]: node["mtotal"] - node["mfree"] - node["mnode"] for node in nodes}
    assert used == {"north-host0": 4096, "north-host1": 0}
    assert [(node["mnode"], node["cnos"], node["cnodes"], node["csockets"]) for node in nodes] == [(0, 0, 1, 1)] * 2


def test_bulk_list_of_many_pages_is_whole(fleet: ComputeFleet) -> None:
    api = fleet.api(settings=ApiSettings(max_limit=1))
    assert get(api, "/2/instances?bulk=1") == get(fleet.api(), "/2/instances?bulk=1")
    assert get(api, "/2/nodes?bulk=1") == get(fleet.api(), "/2/nodes?bulk=1")


def test_one_is_found_by_name_abbreviation_and_uuid(fleet: ComputeFleet) -> None:
    api = fleet.api()
    found = get(api, "/2/instances/web1.east.example.com")
    for name in ("web1", "web1.east", "WEB1.East.example.com", found["uuid"]):
        assert get(api, f"/2/instances/{name}") == found
    assert get(api, "/2/instances/web1/tags") == ["blue"]
    node = get(api, "/2/nodes/east-host1")
    assert node["secondary_ip"] == node["sip"]
    assert get(api, "/2/nodes/east-host1/role") == "regular"
    for path in ("/2/instances/we", "/2/instances/web1/console/x", "/2/nodes/x", "/2/nope", "/2/instances/", "/2x"):
        assert fault(api, "GET", path)[0] == 404
    assert fault(api, "GET", "/cells/west/2/info") == (404, "There is no cell &#x27;west&#x27;")
    assert fault(api, "GET", "/2/instances/web1/console") == (503, "Instance console unavailable")


STRANGE_NAMES = ("web server", "a+b", "a#b", "100%", "a%2Fb", "what?", "a/b", "//", "x&y;<z>", "größe", "back\\slash")


@pytest.mark.parametrize("name", STRANGE_NAMES)
def test_every_name_leads_somewhere_by_the_uri_of_its_list(fleet: ComputeFleet, name: str) -> None:
    fleet.create("north", display_name=name, tags=["blue"])
    fleet.index()
    api = fleet.api()
    [uri] = [entry["uri"] for entry in get(api, "/2/instances") if entry["id"] == name]
    assert get(api, uri)["name"] == name
    assert get(api, f"{uri}/tags") == ["blue"]
    assert get(api, f"/cells/north{uri}")["name"] == name


@pytest.mark.parametrize("name", STRANGE_NAMES)
def test_instance_of_any_name_is_changed_by_its_name(fleet: ComputeFleet, name: str) -> None:
    fleet.create("north", display_name=name, node="north-host0")
    path, calls = f"/instances/{quote(name, safe='')}", RapiCalls(fleet, fleet.api())
    assert calls.run("PUT", f"{path}/shutdown")["status"] == "success"
    assert calls.run("PUT", f"{path}/tags?tag=red")["status"] == "success"
    shown = calls.get(path)
    assert (shown["status"], shown["tags"]) == ("ADMIN_down", ["red"])


def test_address_with_needless_escapes_or_slashes_is_the_same(fleet: ComputeFleet) -> None:
    api = fleet.api()
    for path in ("/2/%69nstances/web0%2enorth%2Eexample.com", "/2//instances///web0.north.example.com"):
        assert get(api, path)["name"] == "web0.north.example.com"


@pytest.mark.parametrize("name", ["a b", "a%2Fb", "a%00b", "%F0%9F%92%A9", "a%0Ab", "%25"])
def test_name_of_nothing_is_not_found_and_no_failure(fleet_of_any_database: ComputeFleet, name: str) -> None:
    api = fleet_of_any_database.api()
    for collection in ("instances", "nodes", "groups", "networks", "filters"):
        assert api.get(f"/2/{collection}/{name}", {"Fleetlight-Consistency": "strong"}).status_code == 404
        assert api.request("DELETE", f"/2/{collection}/{name}").status_code in (200, 404, 501)


def test_query_has_the_form_of_queries(fleet: ComputeFleet) -> None:
    api = fleet.api()
    expected = {
        "fields": ["Instance", "os", "x"],
        "data": [[[0, "web1.east.example.com"], [3, None], [1, None]]],
    }
    body = {"fields": ["name", "os", "x"], "qfilter": ["=~", "name", "^web1"], "filter": ["=~", "name", "^web1"]}
    by_body = api.request("PUT", "/2/query/instance", json=body).json()
    assert [field["title"] for field in by_body["fields"]] == ["Instance", "OS", "x"]
    assert by_body["data"] == expected["data"]
    assert len(get(api, "/2/query/node?fields=name,%20role")["data"]) == 6
    assert get(api, "/2/query/instance/fields?fields=name")["fields"][0]["name"] == "name"
    assert len(get(api, "/2/query/job/fields")["fields"]) == 18


@pytest.mark.parametrize(
    ("request_", "status", "says"),
    [
        (("GET", "/2/query/instance", None), 400, "Missing &#x27;fields&#x27; query argument"),
        (("PUT", "/2/query/instance", []), 400, "must be an object"),
        (("PUT", "/2/query/instance", {"fields": "name"}), 400, "must be a list of names"),
        (("PUT", "/2/query/instance", {"fields": ["name"], "qfilter": ["==", "nope", 1]}), 400, "Unknown field"),
        (("PUT", "/2/query/instance", {"fields": ["name"], "qfilter": ["==", "admin_up", 1]}), 400, "expected true"),
        (("PUT", "/2/query/instance", {"fields": ["name"], "qfilter": {"a": 1}}), 400, "operator first"),
        (("PUT", "/2/query/instance", {"fields": ["x"] * 1001}), 400, "there may be 1000"),
        (("GET", "/2/query/nothing?fields=a", None), 404, "no item type"),
        (("GET", "/2/query/nothing/fields", None), 404, "no item type"),
        (("GET", "/2/instances?bulk=yes", None), 400, "Invalid value for the &#x27;bulk&#x27; parameter"),
        (("GET", "/2/nodes?lock=1", None), 400, "Sync queries are not allowed"),
        (("GET", "/2/nodes/x?bulk=1&lock=1", None), 400, "Sync queries are not allowed"),
        (("PUT", "/2/instances", {}), 501, "Method PUT is unsupported for path /2/instances"),
        (("POST", "/2/instances/x/shutdown", {}), 501, "Method POST is unsupported"),
        (("OPTIONS", "/2/instances", {}), 501, "Method OPTIONS is unsupported for path /2/instances"),
        (("TRACE", "/2/instances", {}), 501, "Method TRACE is unsupported for path /2/instances"),
        (("TRACE", "/cells/north/2", {}), 501, "Method TRACE is unsupported for path /cells/north/2"),
        (("DELETE", "/version", None), 501, "Method DELETE is unsupported for path /version"),
        (("GET", "/2/instances/%ff", None), 404, "There is nothing at /2/instances/"),
        (("GET", "/2/instances/a%0Ab", None), 404, "There is nothing at /2/instances/a"),
        (("PUT", "/2/instances/x/disk/0/grow", {}), 501, "Method PUT is unsupported"),
        (("DELETE", "/2/jobs", {}), 501, "Method DELETE is unsupported"),
        (("GET", "/2/jobs/99", None), 404, "There is no job"),
        (("GET", f"/2/jobs/{'9' * 30}", None), 404, "There is no job"),
        (("GET", f"/2/jobs/{'9' * 5000}", None), 404, "There is nothing at"),
        (("GET", "/2/jobs/%D9%A3", None), 404, "There is nothing at"),
        (("GET", "/2/jobs/1/wait", None), 400, "must be an object"),
        (("PUT", "/2/query/node", {"fields": ["name"], "qfilter": [["=="], "name", "x"]}), 400, "Unknown operator"),
        (("PUT", "/2/query/node", {"fields": ["name"], "qfilter": nested("|", 900)}), 400, "Only up to 10 levels"),
        (("PUT", "/2/query/job", {"fields": ["id"], "qfilter": ["==", "id", -1]}), 400, "Invalid value for job ID: -1"),
        (("PUT", "/2/query/job", {"fields": ["id"], "qfilter": ["<", "id", "9" * 5000]}), 400, "Unable to compare"),
        (("PUT", "/2/query/node", {"fields": ["name"], "qfilter": ["=~", "tags", "x"]}), 400, "an element of the list"),
    ],
)
def test_refusal_says_what_is_wrong(
    fleet: ComputeFleet, request_: tuple[str, str, Any], status: int, says: str
) -> None:
    method, path, body = request_
    options = {} if body is None else {"json": body}
    found, message = fault(fleet.api(), method, path, **options)
    assert found == status, message
    assert says in message


def test_body_has_to_be_json_and_to_say_so(fleet: ComputeFleet) -> None:
    api = fleet.api()
    headers: dict[str, str]
    for content_type in ("text/plain", "application/json; charset=utf-8", None):
        headers = {} if content_type is None else {"Content-Type": content_type}
        assert fault(api, "PUT", "/2/query/instance", headers=headers, content=b"{}")[0] == 415
    headers = {"Content-Type": "Application/JSON"}
    for content in (b"{", b'{"fields": ["\xff"]}', b"[" * 40_000):
        refused = fault(api, "PUT", "/2/query/instance", headers=headers, content=content)
        assert refused == (400, "Unable to parse JSON data")
    status, message = fault(api, "PUT", "/2/query/instance", headers=headers, content=b"[" * 100_000)
    assert (status, "it has more than 50000 parts" in message) == (400, True)
    large = {**headers, "Content-Length": str(11 * 1024 * 1024)}
    assert fault(api, "PUT", "/2/query/instance", headers=large, content=b"{}")[0] == 413


def test_users_of_the_file_see_all_and_may_do_what_their_line_says(fleet: ComputeFleet, users: Path) -> None:
    api = fleet.api(rapi_users_file=users)
    for user in ("admin", "reader", "digest", "nobody"):
        assert len(get(api, "/2/instances", basic(user))) == 3
    for user, status in (("admin", 200), ("reader", 200), ("digest", 200), ("nobody", 403)):
        assert api.get("/2/query/instance?fields=name", basic(user)).status_code == status
    assert api.get("/2/jobs/1/wait", basic("reader")).status_code == 403
    for user, password in (("admin", "wrong"), ("digest", HA1), ("other", "{ssha}secret"), ("other", "secret")):
        for path in ("/version", "/2/features"):
            response = api.get(path, basic(user, password))
            assert response.status_code == 401
            assert response.headers["www-authenticate"] == 'Basic realm="Ganeti Remote API"'
    assert fault(api, "GET", "/2/features", headers={"Authorization": "Basic"})[0] == 400
    assert fault(api, "GET", "/2/features", headers={"Authorization": "Digest x"})[0] == 401


def test_file_of_users_is_read_again_and_a_bad_one_keeps_the_old_users(fleet: ComputeFleet, users: Path) -> None:
    api = fleet.api(rapi_users_file=users)
    assert api.get("/2/info", basic("nobody")).status_code == 200
    users.write_bytes(b"\xff\xfe broken")
    assert api.get("/2/info", basic("nobody")).status_code == 200
    users.write_text("nobody changed\n")
    assert api.get("/2/info", basic("nobody", "changed")).status_code == 200
    assert api.get("/2/info", basic("nobody")).status_code == 401
    users.unlink()
    assert api.get("/2/info", basic("nobody", "changed")).status_code == 401


def test_cell_that_is_down_is_missing_and_the_answer_says_so(fleet: ComputeFleet) -> None:
    api = fleet.api(search=searching(enabled=False, cell_timeout_s=0.2), pool=BrokenCells(fleet, hanging=["east"]))
    response = api.get("/2/nodes")
    assert response.status_code == 200
    assert response.headers["fleetlight-complete"] == "false"
    assert len(response.json()) == 4


def test_job_is_shown_and_waited_for(fleet: ComputeFleet) -> None:
    [server] = [row for row in get(fleet.api(), "/2/instances?bulk=1") if row["name"].startswith("web0")]
    with writing(fleet.engine("north")) as connection:
        add_jobs(connection, VOCABULARY, [NewJob([NewOperation("os-stop", {"origin": {}}, server["uuid"])])], 1_000_000)
    api = fleet.api()
    assert get(api, "/2/jobs") == [{"id": 10001, "uri": "/2/jobs/10001"}]
    job = get(api, "/2/jobs/10001")
    assert (job["status"], job["summary"], job["end_ts"]) == ("queued", ["SERVER_STOP(web0.north.example.com)"], None)
    asked = {"fields": ["status"], "previous_job_info": None, "previous_log_serial": None}
    changed = api.request("GET", "/2/jobs/10001/wait", json=asked)
    assert changed.json() == {"job_info": ["queued"], "log_entries": []}
    fleet.work()
    ended = api.request("GET", "/2/jobs/10001/wait", json={**asked, "previous_job_info": ["queued"]})
    assert ended.json()["job_info"] == ["success"]
    for body, says in (
        ({}, "fields"),
        ({"fields": ["x"]}, "Unknown output fields selected: x"),
        ([], "an object with"),
    ):
        status, message = fault(api, "GET", "/2/jobs/10001/wait", json=body)
        assert (status, says in message) == (400, True), message
    assert fault(api, "GET", "/2/jobs/7/wait", json=asked)[0] == 404
    assert json.loads(ended.text)


def test_names_and_passwords_of_the_fleet_see_what_they_see_everywhere(fleet: ComputeFleet, tmp_path: Path) -> None:
    fleet.create("north", display_name="of another", project_id=OTHER)
    fleet.index()
    site = Site(fleet, tmp_path)
    api = site.api
    member = basic("bob", PASSWORD)
    assert [instance["id"] for instance in get(api, "/2/instances", member)] == [
        f"web{number}.{cell}.example.com" for number, cell in enumerate(CELLS)
    ]
    assert api.get("/2/instances/of.another", member).status_code == 404
    assert api.get("/2/nodes", member).status_code == 404
    assert get(api, "/2/instances/web0", member)["pnode"] is None
    assert api.get("/2/query/instance?fields=name", basic("rita", PASSWORD)).status_code == 200
    assert api.get("/2/instances", basic("bob", "wrong")).status_code == 401
    assert api.get("/2/instances").status_code == 401
    assert api.get("/2/features").status_code == 200
    for headers in (member, {}):
        for path in ("instances", "features"):
            assert api.get(f"/cells/east/2/{path}", headers).status_code in {401, 404}
    assert len(get(api, "/2/instances", {"X-Auth-Token": site.log_in("bob")})) == 3


def test_password_that_was_right_counts_no_more_when_it_is_changed(fleet: ComputeFleet, tmp_path: Path) -> None:
    site = Site(fleet, tmp_path)
    assert site.api.get("/2/instances", basic("bob", PASSWORD)).status_code == 200

    def change(directory: Directory) -> Directory:
        bob = directory.users["id-bob"]
        return directory.with_user(replace(bob, password_hash=weak_hash("new"), valid_from=system_clock()))

    site.users.change(change)
    assert site.api.get("/2/instances", basic("bob", PASSWORD)).status_code == 401
    assert site.api.get("/2/instances", basic("bob", "new")).status_code == 200


def test_names_alone_are_a_lookup_that_keeps_their_order(fleet: ComputeFleet, users: Path) -> None:
    api = fleet.api(rapi_users_file=users)

    def look_up(*names: str, asked: Api = api) -> Any:
        expression = ["|", *(["==", "name", name] for name in names)]
        question = {"fields": ["name", "no.such"], "qfilter": expression}
        return asked.request("PUT", "/2/query/instance", basic("reader"), json=question)

    first, second = "web1.east.example.com", "web0.north.example.com"
    for names in ((first, second), (second, first), (first, "web0", first)):
        found = look_up(*names).json()
        assert [row[0][1] for row in found["data"]] == [second if name == "web0" else name for name in names]
        assert all(row[1] == [1, None] for row in found["data"])
    refused = look_up(first, "web9")
    assert (refused.status_code, refused.json()["message"]) == (400, "Instance name web9 not found")
    broken = fleet.api(
        search=searching(enabled=False), rapi_users_file=users, pool=BrokenCells(fleet, failing_after={"south": 0})
    )
    unsure = look_up("web9", asked=broken)
    assert unsure.status_code == 503
    assert "part of the fleet does not answer" in unsure.json()["message"]


def test_lookup_of_jobs_has_each_once_and_a_lost_one_without_values(fleet: ComputeFleet) -> None:
    [server] = [row for row in get(fleet.api(), "/2/instances?bulk=1") if row["name"].startswith("web0")]
    for cell in ("north", "south"):
        with writing(fleet.engine(cell)) as connection:
            operation = NewOperation("os-stop", {"origin": {}}, server["uuid"])
            add_jobs(connection, VOCABULARY, [NewJob([operation])], 1_000_000)

    def look_up(api: Api) -> Any:
        wanted = ["|", ["==", "id", 7], ["==", "id", 10001], ["=", "id", 7]]
        question = {"fields": ["id", "cell", "nope"], "qfilter": wanted}
        return api.request("PUT", "/2/query/job", json=question).json()["data"]

    assert look_up(fleet.api()) == [[[0, 7], [3, None], [1, None]], [[0, 10001], [0, "north"], [1, None]]]
    # The cell that is down may have it.
    broken = fleet.api(pool=BrokenCells(fleet, failing_after={"east": 0}))
    assert look_up(broken)[0] == [[0, 7], [2, None], [1, None]]


def test_uuid_is_no_name_in_a_query(fleet: ComputeFleet) -> None:
    api = fleet.api()
    [uuid, *_] = [row["uuid"] for row in get(api, "/2/nodes?bulk=1")]

    def found(name: str) -> Any:
        return api.request("PUT", "/2/query/node", json={"fields": ["name"], "qfilter": ["==", "name", name]})

    assert found(uuid).json()["data"] == found(uuid.upper()).json()["data"] == []
    assert found("7a1d5a0a-90b1-4f36-8f6e-000000000001").status_code == 400


@pytest.mark.parametrize("path", ["/2/nodes/other", "/2/nodes/other/role", "/2/jobs/7", "/2/jobs/7/wait"])
def test_what_a_cell_that_is_down_may_have_is_not_denied(fleet: ComputeFleet, path: str) -> None:
    broken = fleet.api(pool=BrokenCells(fleet, failing_after={"east": 0}))
    status, message = fault(broken, "GET", path, json={"fields": ["status"]})
    assert (status, "part of the fleet does not answer" in message) == (503, True)


def test_backend_parameters_have_the_memory_under_both_names(fleet: ComputeFleet) -> None:
    flavor = {
        "flavorid": "1",
        "name": "small",
        "memory_mb": 512,
        "vcpus": 1,
        "root_gb": 1,
        "ephemeral_gb": 0,
        "swap": 0,
    }
    uuid = fleet.create("north", display_name="sized.example.com", flavor=flavor)
    api = fleet.api(search=searching(enabled=False))
    one = get(api, f"/2/instances/{uuid}")
    listed = next(each for each in get(api, "/2/instances?bulk=1") if each["uuid"] == uuid)
    sizes = {"maxmem": 512, "minmem": 512, "vcpus": 1, "memory": 512}
    others = {"auto_balance": True, "always_failover": False, "spindle_use": 1}
    assert one["beparams"] == listed["beparams"] == sizes | others
