"""Readers read what is their project's, and change nothing (contracts/nova-rest, section 7)."""

import pytest

from tests.contract.compute_fleet import ComputeFleet, microversion

pytestmark = pytest.mark.no_rerun

READER = {"X-Roles": "reader", **microversion("2.64")}
IMAGE = "21eb97bb-faf1-58a0-a8b8-3119f3d1b613"
NEW_SERVER = {"name": "x", "flavorRef": "1", "imageRef": IMAGE, "networks": "none"}


@pytest.mark.parametrize(
    ("method", "path", "body", "rule"),
    [
        ("POST", "/servers", {"server": NEW_SERVER}, "servers:create"),
        ("PUT", "/servers/{mine}", {"server": {"name": "y"}}, "servers:update"),
        ("DELETE", "/servers/{mine}", None, "servers:delete"),
        ("POST", "/servers/{mine}/action", {"os-stop": None}, "servers:stop"),
        ("POST", "/servers/{mine}/action", {"lock": None}, "os-lock-server:lock"),
        ("POST", "/servers/{mine}/metadata", {"metadata": {"a": "b"}}, "server-metadata:create"),
        ("PUT", "/servers/{mine}/tags", {"tags": ["a"]}, "os-server-tags:update_all"),
        ("PUT", "/servers/{mine}/tags/a", None, "os-server-tags:update"),
        ("POST", "/os-server-groups", {"server_group": {"name": "x", "policy": "affinity"}}, "os-server-groups:create"),
    ],
)
def test_readers_are_refused_what_changes_something(
    fleet: ComputeFleet, method: str, path: str, body: object, rule: str
) -> None:
    mine, theirs = fleet.create("north"), fleet.create("north", project_id="other")
    api = fleet.api()
    response = api.request(method, "/v2.1" + path.format(mine=mine), READER, json=body)
    assert response.status_code == 403, response.text
    assert f"os_compute_api:{rule} " in response.json()["forbidden"]["message"]
    if "{mine}" in path:
        hidden = api.request(method, "/v2.1" + path.format(mine=theirs), READER, json=body)
        assert hidden.status_code == 404, hidden.text


def test_readers_read(fleet: ComputeFleet) -> None:
    mine, theirs = fleet.create("east"), fleet.create("east", project_id="other")
    api = fleet.api()
    for path in ("", "/metadata", "/tags", "/ips", "/os-instance-actions"):
        assert api.get(f"/v2.1/servers/{mine}{path}", READER).status_code == 200
        assert api.get(f"/v2.1/servers/{theirs}{path}", READER).status_code == 404
