"""Flavors, their extra specs and their access lists, by microversion."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from fleetlight.cells.fleet.compute.default_flavors import DEFAULT_FLAVORS
from fleetlight.cells.fleet.compute.flavors import FlavorQuery
from tests.contract.compute_fleet import MEMBER, Api, ComputeFleet, microversion

FULL_2_1 = {
    "id",
    "name",
    "links",
    "ram",
    "disk",
    "vcpus",
    "swap",
    "OS-FLV-EXT-DATA:ephemeral",
    "OS-FLV-DISABLED:disabled",
    "rxtx_factor",
    "os-flavor-access:is_public",
}
PRIVATE: dict[str, Any] = {"id": "own", "os-flavor-access:is_public": False}
FULL_2_61 = FULL_2_1 | {"description", "extra_specs"}


@pytest.fixture
def api(fleet: ComputeFleet, api: Api) -> Iterator[Api]:
    """The default flavors, which no test changes; others are gone after the test."""
    yield api
    for flavor in fleet.fleet.flavors.page(FlavorQuery(None, is_public=None)):
        if flavor.number > len(DEFAULT_FLAVORS):
            fleet.fleet.flavors.delete(flavor.flavorid)


def create(api: Api, version: str = "2.1", **values: Any) -> httpx.Response:
    flavor = {"name": "tiny", "ram": 64, "vcpus": 1, "disk": 0} | values
    return api.request("POST", "/v2.1/flavors", microversion(version), json={"flavor": flavor})


def ids(response: httpx.Response) -> list[str]:
    assert response.status_code == 200, response.text
    return [flavor["id"] for flavor in response.json()["flavors"]]


@pytest.mark.parametrize(
    ("version", "brief", "full"),
    [
        ("2.1", {"id", "name", "links"}, FULL_2_1),
        ("2.55", {"id", "name", "links", "description"}, FULL_2_1 | {"description"}),
        ("2.61", {"id", "name", "links", "description"}, FULL_2_61),
        (
            "2.102",
            {"id", "name", "links", "description"},
            FULL_2_61 - {"rxtx_factor", "OS-FLV-DISABLED:disabled"},
        ),
    ],
)
def test_flavors_have_exactly_the_keys_of_the_microversion(
    api: Api, version: str, brief: set[str], full: set[str]
) -> None:
    for role in ({}, MEMBER):
        assert set(api.get("/v2.1/flavors", microversion(version), role).json()["flavors"][0]) == brief
        assert set(api.get("/v2.1/flavors/detail", microversion(version), role).json()["flavors"][0]) == full
        assert set(api.get("/v2.1/flavors/1", microversion(version), role).json()["flavor"]) == full


def test_swap_of_zero_is_empty_until_2_74(api: Api) -> None:
    for version, swap in (("2.74", ""), ("2.75", 0)):
        assert api.get("/v2.1/flavors/1", microversion(version)).json()["flavor"]["swap"] == swap
    assert api.get("/v2.1/flavors/6").json()["flavor"]["swap"] == 1024


def test_flavor_is_created_shown_and_deleted(api: Api) -> None:
    values: dict[str, Any] = {"id": "t", "swap": "16", "os-flavor-access:is_public": "no"}
    created = create(api, **values)
    assert created.status_code == 200
    flavor = created.json()["flavor"]
    assert (flavor["id"], flavor["ram"], flavor["swap"], flavor["rxtx_factor"]) == ("t", 64, 16, 1.0)
    assert flavor["os-flavor-access:is_public"] is False
    assert flavor["links"][0]["href"] == "http://api.test/v2.1/flavors/t"
    assert api.get("/v2.1/flavors/t").json()["flavor"] == flavor
    assert api.request("DELETE", "/v2.1/flavors/t").status_code == 202
    assert api.get("/v2.1/flavors/t").status_code == 404
    assert api.request("DELETE", "/v2.1/flavors/t").status_code == 404


@pytest.mark.parametrize(
    ("version", "values", "status"),
    [
        ("2.1", {"id": None}, 200),
        ("2.1", {"id": 77}, 200),
        ("2.1", {"id": "a b"}, 200),
        ("2.1", {"id": "-1"}, 200),
        ("2.1", {"id": True}, 400),
        ("2.1", {"rxtx_factor": "1.5"}, 200),
        ("2.1", {"rxtx_factor": "+1"}, 400),
        ("2.102", {"rxtx_factor": "1.5"}, 400),
        ("2.54", {"description": "x"}, 400),
        ("2.55", {"description": None}, 200),
        ("2.55", {"description": "two\nlines"}, 400),
        ("2.1", {"ram": 0}, 400),
        ("2.1", {"vcpus": True}, 400),
        ("2.1", {"disk": -1}, 400),
        ("2.1", {"name": " x"}, 400),
        ("2.1", {"name": ""}, 400),
        ("2.1", {"id": "a/b"}, 400),
        ("2.1", {"rxtx_factor": 0}, 400),
        ("2.1", {"color": "red"}, 400),
        ("2.1", {"name": "m1.tiny"}, 409),
        ("2.1", {"id": "1"}, 409),
    ],
)
def test_new_flavor_is_validated(api: Api, version: str, values: dict[str, Any], status: int) -> None:
    assert create(api, version, **values).status_code == status


@pytest.mark.parametrize(("number", "flavor_id"), [(1.0, "1.0"), (-7, "-7"), (77.5, "77.5")])
def test_a_number_as_the_id_of_a_flavor_is_taken_as_it_is_written(api: Api, number: float, flavor_id: str) -> None:
    assert create(api, id=number).json()["flavor"]["id"] == flavor_id
    assert api.get(f"/v2.1/flavors/{flavor_id}").json()["flavor"]["name"] == "tiny"


def test_only_administrators_change_flavors(api: Api) -> None:
    body = {"flavor": {"name": "tiny", "ram": 64, "vcpus": 1, "disk": 0}}
    refused = api.request("POST", "/v2.1/flavors", MEMBER, json=body)
    assert refused.status_code == 403
    assert "os_compute_api:os-flavor-manage:create" in refused.json()["forbidden"]["message"]
    assert api.request("DELETE", "/v2.1/flavors/1", MEMBER).status_code == 403


def test_description_is_changed_from_2_55(api: Api) -> None:
    create(api, id="t")
    body = {"flavor": {"description": "small"}}
    assert api.request("PUT", "/v2.1/flavors/t", microversion("2.54"), json=body).status_code == 404
    changed = api.request("PUT", "/v2.1/flavors/t", microversion("2.55"), json=body)
    assert changed.json()["flavor"]["description"] == "small"
    assert api.request("PUT", "/v2.1/flavors/x", microversion("2.55"), json=body).status_code == 404
    body = {"flavor": {"description": "small", "name": "x"}}
    assert api.request("PUT", "/v2.1/flavors/t", microversion("2.55"), json=body).status_code == 400


def test_pages_of_flavors_are_linked(api: Api) -> None:
    first = api.get("/v2.1/flavors?limit=4&sort_key=name")
    (link,) = first.json()["flavors_links"]
    assert link["href"] == "http://api.test/v2.1/flavors?limit=4&sort_key=name&marker=2"
    second = api.get(link["href"])
    assert ids(first) + ids(second) == ["5", "4", "3", "2", "1", "6"]
    assert "flavors_links" not in second.json()


@pytest.mark.parametrize(
    ("query", "version", "expected"),
    [
        ("minRam=8192", "2.1", ["4", "6"]),
        ("minDisk=80&sort_dir=desc", "2.1", ["6", "4"]),
        ("limit=0", "2.1", []),
        ("name=large", "2.101", ["1", "2", "3", "4", "5", "6"]),
        ("name=large", "2.102", ["4", "5", "6"]),
        ("is_public=false", "2.1", []),
        ("is_public=None", "2.1", ["1", "2", "3", "4", "5", "6"]),
    ],
)
def test_flavors_are_filtered(api: Api, query: str, version: str, expected: list[str]) -> None:
    if version == "2.101":
        assert api.get(f"/v2.1/flavors?{query}", microversion(version)).status_code == 400
    else:
        assert ids(api.get(f"/v2.1/flavors?{query}", microversion(version))) == expected


@pytest.mark.parametrize(
    ("query", "version"),
    [
        ("minRam=much", "2.1"),
        ("minDisk=-1", "2.1"),
        ("limit=x", "2.1"),
        ("marker=nothing", "2.1"),
        ("sort_key=color", "2.1"),
        ("sort_dir=up", "2.1"),
        ("is_public=maybe", "2.1"),
        ("color=red", "2.75"),
        ("name=(", "2.102"),
    ],
)
def test_wrong_query_of_flavors_gets_400(api: Api, query: str, version: str) -> None:
    assert api.get(f"/v2.1/flavors?{query}", microversion(version)).status_code == 400


def test_access_is_given_to_a_project_of_any_name(api: Api) -> None:
    create(api, **PRIVATE | {"id": "named", "name": "named"})
    added = api.request("POST", "/v2.1/flavors/named/action", json={"addTenantAccess": {"tenant": "Team Red"}})
    assert added.json() == {"flavor_access": [{"flavor_id": "named", "tenant_id": "Team Red"}]}
    assert api.request("DELETE", "/v2.1/flavors/named").status_code == 202


def test_private_flavor_is_for_those_who_have_access(api: Api) -> None:
    create(api, **PRIVATE)
    red = {"X-Roles": "member", "X-Project-Id": "red"}
    add, remove = ({name: {"tenant": "red"}} for name in ("addTenantAccess", "removeTenantAccess"))
    assert api.get("/v2.1/flavors/own", red).status_code == 404
    added = api.request("POST", "/v2.1/flavors/own/action", json=add)
    assert added.status_code == 200
    assert added.json() == {"flavor_access": [{"flavor_id": "own", "tenant_id": "red"}]}
    assert api.get("/v2.1/flavors/own/os-flavor-access").json() == added.json()
    assert api.get("/v2.1/flavors/own", red).status_code == 200
    assert "own" in ids(api.get("/v2.1/flavors", red))
    assert api.request("POST", "/v2.1/flavors/own/action", json=add).status_code == 409
    assert api.request("POST", "/v2.1/flavors/own/action", json=remove).json() == {"flavor_access": []}
    assert api.request("POST", "/v2.1/flavors/own/action", json=remove).status_code == 404
    assert api.request("POST", "/v2.1/flavors/own/action", json=add | remove).status_code == 400
    assert api.request("POST", "/v2.1/flavors/own/action", red, json=add).status_code == 403
    assert api.get("/v2.1/flavors/1/os-flavor-access").status_code == 404
    assert api.get("/v2.1/flavors/own/os-flavor-access", red).status_code == 403


def test_extra_specs_are_merged_read_and_removed(api: Api) -> None:
    create(api, id="t")
    url = "/v2.1/flavors/t/os-extra_specs"
    body = {"extra_specs": {"a": "1", "b": "2"}}
    assert api.request("POST", url, json=body).json() == body
    assert api.request("PUT", f"{url}/b", json={"b": "3"}).json() == {"b": "3"}
    assert api.request("PUT", f"{url}/b", json={"c": "3"}).status_code == 400
    assert api.request("PUT", f"{url}/b", json={"b": "3", "c": "3"}).status_code == 400
    assert api.get(url, MEMBER).json() == {"extra_specs": {"a": "1", "b": "3"}}
    assert api.get(f"{url}/b").json() == {"b": "3"}
    deleted = api.request("DELETE", f"{url}/b")
    assert (deleted.status_code, deleted.content) == (200, b"")
    assert api.get(f"{url}/b").status_code == 404
    assert api.request("DELETE", f"{url}/b").status_code == 404
    assert api.request("DELETE", f"{url}/a", MEMBER).status_code == 403
    assert api.request("POST", "/v2.1/flavors/x/os-extra_specs", json=body).status_code == 404


@pytest.mark.parametrize(
    ("name", "value", "status"),
    [
        ("hw:cpu_policy", "whatever", 400),
        ("hw:cpu_policy", "shared", 200),
        ("hw:cpu_policyyyy", "shared", 400),
        ("hw:numa_nodes", "0", 400),
        ("hw:numa_nodes", "2", 200),
        ("hw:numa_cpus.1", "0-3,^2", 200),
        ("hw:numa_mem.one", "512", 400),
        ("hw:mem_page_size", "2MB", 200),
        ("hw:mem_page_size", "huge", 400),
        ("hw:boot_menu", "Yes", 200),
        ("hw:boot_menu", "perhaps", 400),
        ("hw_rng:rate_bytes", "-1", 400),
        ("hw_video:ram_max_mb", "16", 200),
        ("quota:cpu_shares", "many", 400),
        ("quota:disk_read_bytes_sec", "1024", 200),
        ("quota:colour", "1", 400),
        ("resources:VCPU", "N", 400),
        ("resources_of:CUSTOM_GOLD", "1", 200),
        ("resources:VVCPU", "1", 400),
        ("trait:STORAGE_DISK_SSD", "required", 200),
        ("trait1:CUSTOM_GOLD", "wanted", 400),
        ("trait:gold", "required", 400),
        ("hide_hypervisor_id", "maybe", 400),
        ("group_policy", "none", 200),
        ("capabilities:cpu_info:features", "<in> aes", 200),
        ("colour", "red", 200),
        ("ours:colour", "red", 200),
    ],
)
def test_extra_specs_of_known_namespaces_are_checked_from_2_86(api: Api, name: str, value: str, status: int) -> None:
    create(api, id="t")
    url, body = "/v2.1/flavors/t/os-extra_specs", {"extra_specs": {name: value}}
    assert api.request("POST", url, microversion("2.86"), json=body).status_code == status
    assert api.request("PUT", f"{url}/{name}", microversion("2.86"), json={name: value}).status_code == status
    assert api.request("POST", url, microversion("2.85"), json=body).status_code == 200


def test_numbers_in_extra_specs_are_kept_as_text(api: Api) -> None:
    create(api, id="t")
    url = "/v2.1/flavors/t/os-extra_specs"
    assert api.request("POST", url, json={"extra_specs": {"a": 5}}).json() == {"extra_specs": {"a": 5}}
    assert api.request("PUT", f"{url}/b", json={"b": 1.5}).json() == {"b": 1.5}
    assert api.get(url).json() == {"extra_specs": {"a": "5", "b": "1.5"}}
    for wrong in (True, None, ["1"], "x" * 256):
        assert api.request("POST", url, json={"extra_specs": {"a": wrong}}).status_code == 400


SORT_KEYS = [
    *("created_at", "description", "disabled", "ephemeral_gb", "flavorid", "id", "is_public", "memory_mb", "name"),
    *("root_gb", "rxtx_factor", "swap", "updated_at", "vcpu_weight", "vcpus"),
]


@pytest.mark.parametrize("key", SORT_KEYS)
def test_pages_of_every_order_of_flavors_are_the_whole_list(api: Api, key: str) -> None:
    create(api, "2.55", id="0", description="last made")
    for direction in ("asc", "desc"):
        url = f"/v2.1/flavors?sort_key={key}&sort_dir={direction}"
        whole = ids(api.get(url))
        paged: list[str] = []
        while page := ids(api.get(f"{url}&limit=2" + (f"&marker={paged[-1]}" if paged else ""))):
            paged += page
        assert paged == whole
        assert len(whole) == 7
    if key in {"id", "created_at"}:
        assert whole[0] == "0"
