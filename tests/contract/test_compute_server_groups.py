"""Server groups, by microversion."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.contract.compute_fleet import Api, ComputeFleet, microversion

RED = {"X-Roles": "member", "X-Project-Id": "red", "X-User-Id": "ada"}
READER = {"X-Roles": "reader", "X-Project-Id": "red"}
URL = "/v2.1/os-server-groups"
OLD = {"id", "name", "policies", "metadata", "members"}
OWNERS = {"project_id", "user_id"}


@pytest.fixture
def api(fleet: ComputeFleet, api: Api) -> Iterator[Api]:
    yield api
    for group in fleet.fleet.server_groups.page(None, limit=1000):
        fleet.fleet.server_groups.delete(group.uuid, project_id=None)


def create(api: Api, version: str, values: dict[str, Any]) -> httpx.Response:
    return api.request("POST", URL, RED | microversion(version), json={"server_group": {"name": "g"} | values})


@pytest.mark.parametrize(
    ("version", "values", "keys"),
    [
        ("2.1", {"policies": ["affinity"]}, OLD),
        ("2.13", {"policies": ["affinity"]}, OLD | OWNERS),
        ("2.64", {"policy": "affinity"}, {"id", "name", "policy", "rules", "members"} | OWNERS),
    ],
)
def test_group_has_exactly_the_keys_of_the_microversion(
    api: Api, version: str, values: dict[str, Any], keys: set[str]
) -> None:
    created = create(api, version, values)
    assert created.status_code == 200
    group = created.json()["server_group"]
    assert set(group) == keys
    asked = microversion(version)
    assert api.get(f"{URL}/{group['id']}", READER, asked).json()["server_group"] == group
    assert api.get(URL, READER, asked).json()["server_groups"] == [group]


@pytest.mark.parametrize(
    ("version", "values", "status"),
    [
        ("2.14", {"policies": ["soft-affinity"]}, 400),
        ("2.15", {"policies": ["soft-affinity"]}, 200),
        ("2.1", {"policies": []}, 400),
        ("2.1", {"policies": ["affinity", "anti-affinity"]}, 400),
        ("2.63", {"policy": "affinity"}, 400),
        ("2.64", {"policies": ["affinity"]}, 400),
        ("2.64", {"policy": "anti-affinity", "rules": {"max_server_per_host": "3"}}, 200),
        ("2.64", {"policy": "affinity", "rules": {"max_server_per_host": 3}}, 400),
        ("2.64", {"policy": "anti-affinity", "rules": {"max_server_per_host": 0}}, 400),
    ],
)
def test_new_group_is_validated(api: Api, version: str, values: dict[str, Any], status: int) -> None:
    assert create(api, version, values).status_code == status


def test_groups_belong_to_projects(api: Api) -> None:
    group = create(api, "2.64", {"policy": "anti-affinity", "rules": {"max_server_per_host": 3}}).json()["server_group"]
    assert group["rules"] == {"max_server_per_host": 3}
    blue = {"X-Roles": "member", "X-Project-Id": "blue"}
    url = f"{URL}/{group['id']}"
    assert api.get(url, blue).status_code == 404
    assert api.get(URL, blue).json() == {"server_groups": []}
    assert api.get(f"{URL}?all_projects=1", blue).json() == {"server_groups": []}
    own = api.get(f"{URL}?all_projects=1", READER | {"X-Project-Id": "red"}).json()["server_groups"]
    assert [each["id"] for each in own] == [group["id"]]
    assert len(api.get(f"{URL}?all_projects=1").json()["server_groups"]) == 1
    assert api.get(URL).json() == {"server_groups": []}
    assert api.request("DELETE", url, blue).status_code == 404
    assert api.request("DELETE", url, READER).status_code == 403
    assert api.request("DELETE", url, RED).status_code == 204
    assert api.get(url, RED).status_code == 404


def test_readers_create_no_groups(api: Api) -> None:
    body = {"server_group": {"name": "g", "policies": ["affinity"]}}
    assert api.request("POST", URL, READER, json=body).status_code == 403


def test_groups_are_limited_by_quota(api: Api, fleet: ComputeFleet) -> None:
    fleet.fleet.quotas.set_limits("red", {"server_groups": 1})
    assert create(api, "2.1", {"policies": ["affinity"]}).status_code == 200
    assert create(api, "2.1", {"policies": ["affinity"]}).status_code == 403
    fleet.fleet.quotas.reset("red")


def test_groups_are_paged_by_offset(api: Api) -> None:
    uuids = [create(api, "2.1", {"policies": ["affinity"]}).json()["server_group"]["id"] for _ in range(3)]
    page = api.get(f"{URL}?limit=1&offset=1", RED).json()["server_groups"]
    assert [group["id"] for group in page] == [uuids[1]]
    assert api.get(f"{URL}?limit=x", RED).status_code == 400
