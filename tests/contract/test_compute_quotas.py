"""Limits, quota sets and quota classes, by microversion."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine

from fleetlight.cells.errors import CellUnreachableError
from fleetlight.cells.fan_out.quota_usage import size_in
from fleetlight.cells.fleet.compute.quotas import DEFAULT_CLASS, DEFAULTS
from fleetlight.cells.model import Cell
from fleetlight.resources.amount import Amount
from tests.contract.compute_fleet import MEMBER, Api, ComputeFleet, microversion
from tests.contract.identity_site import Site
from tests.support.fleets.identity import OTHER

ALWAYS = {"instances", "cores", "ram", "metadata_items", "key_pairs", "server_groups", "server_group_members"}
FILES = {"injected_files", "injected_file_content_bytes", "injected_file_path_bytes"}
NETWORK = {"floating_ips", "fixed_ips", "security_groups", "security_group_rules"}
ABSOLUTE = {
    "maxTotalInstances",
    "maxTotalCores",
    "maxTotalRAMSize",
    "maxServerMeta",
    "maxTotalKeypairs",
    "maxServerGroups",
    "maxServerGroupMembers",
    "totalInstancesUsed",
    "totalCoresUsed",
    "totalRAMUsed",
    "totalServerGroupsUsed",
}
PERSONALITY = {"maxPersonality", "maxPersonalitySize"}
FLOATING = {
    "maxTotalFloatingIps",
    "maxSecurityGroups",
    "maxSecurityGroupRules",
    "totalFloatingIpsUsed",
    "totalSecurityGroupsUsed",
}
RED = {"X-Roles": "member", "X-Project-Id": "red"}


@pytest.fixture(scope="module")
def fleet(fleet: ComputeFleet) -> ComputeFleet:
    flavor = fleet.fleet.flavors.find("4")
    for cell in ("north", "east"):
        fleet.create(cell, flavor=flavor.payload(), instance_type_id=flavor.number)
    return fleet


@pytest.fixture
def api(fleet: ComputeFleet, api: Api) -> Iterator[Api]:
    yield api
    for project in ("demo", "red"):
        fleet.fleet.quotas.reset(project)
    fleet.fleet.quotas.set_class(DEFAULT_CLASS, DEFAULTS)


@pytest.mark.parametrize(
    ("version", "keys"),
    [
        ("2.1", ABSOLUTE | PERSONALITY | FLOATING | {"maxImageMeta"}),
        ("2.36", ABSOLUTE | PERSONALITY | {"maxImageMeta"}),
        ("2.39", ABSOLUTE | PERSONALITY),
        ("2.57", ABSOLUTE),
    ],
)
def test_limits_have_exactly_the_keys_of_the_microversion(api: Api, version: str, keys: set[str]) -> None:
    limits = api.get("/v2.1/limits", microversion(version), {"X-Roles": "reader"}).json()["limits"]
    assert limits["rate"] == []
    assert set(limits["absolute"]) == keys


def test_limits_count_what_the_cells_have(api: Api) -> None:
    absolute = api.get("/v2.1/limits").json()["limits"]["absolute"]
    used = {name: value for name, value in absolute.items() if name.endswith("Used") and value}
    assert used == {"totalInstancesUsed": 2, "totalCoresUsed": 8, "totalRAMUsed": 16384}
    assert absolute["maxTotalCores"] == 20


def test_limits_of_another_project_are_for_administrators(api: Api) -> None:
    assert api.get("/v2.1/limits?tenant_id=demo", RED).status_code == 403
    assert api.get("/v2.1/limits?tenant_id=red", RED).status_code == 200
    absolute = api.get("/v2.1/limits?tenant_id=red").json()["limits"]["absolute"]
    assert absolute["totalInstancesUsed"] == 0


@pytest.mark.parametrize(
    ("version", "keys"), [("2.1", ALWAYS | FILES | NETWORK), ("2.36", ALWAYS | FILES), ("2.57", ALWAYS)]
)
def test_quotas_have_exactly_the_keys_of_the_microversion(api: Api, version: str, keys: set[str]) -> None:
    asked = microversion(version)
    for url in ("/v2.1/os-quota-sets/demo", "/v2.1/os-quota-sets/demo/defaults", "/v2.1/os-quota-sets/demo/detail"):
        assert set(api.get(url, asked).json()["quota_set"]) == keys | {"id"}
    changed = api.request("PUT", "/v2.1/os-quota-sets/red", asked, json={"quota_set": {"cores": 5}})
    assert set(changed.json()["quota_set"]) == keys
    assert changed.json()["quota_set"]["cores"] == 5


def test_detail_says_what_is_in_use(api: Api) -> None:
    detail = api.get("/v2.1/os-quota-sets/demo/detail").json()["quota_set"]
    assert detail["cores"] == {"limit": 20, "in_use": 8, "reserved": 0}


def test_use_is_complete_only_with_all_cells_that_the_project_has_something_in(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    def size(engine: Engine, cell: Cell, project_id: str) -> Amount:
        if cell.name == "east":
            raise CellUnreachableError(cell.name, "it is stopped")
        return size_in(engine, cell, project_id)

    urls = ("/v2.1/limits", "/v2.1/os-quota-sets/demo/detail")
    assert [api.get(url).headers["Fleetlight-Complete"] for url in urls] == ["true", "true"]
    monkeypatch.setattr("fleetlight.api.shared.fleet_access.size_in", size)
    assert [api.get(url).headers["Fleetlight-Complete"] for url in urls] == ["false", "false"]
    assert api.get("/v2.1/limits", RED).headers["Fleetlight-Complete"] == "true"


def test_quota_below_use_must_be_forced(api: Api) -> None:
    url = "/v2.1/os-quota-sets/demo"
    assert api.request("PUT", url, json={"quota_set": {"cores": 7}}).status_code == 400
    assert api.request("PUT", url, json={"quota_set": {"cores": 7, "force": "true"}}).status_code == 200
    assert api.get(url).json()["quota_set"]["cores"] == 7
    assert api.request("PUT", url, json={"quota_set": {"cores": -1}}).status_code == 200
    assert api.request("DELETE", url).status_code == 202
    assert api.get(url).json()["quota_set"]["cores"] == 20


@pytest.mark.parametrize(
    ("version", "values"),
    [
        ("2.1", {"cores": -2}),
        ("2.1", {"cores": "many"}),
        ("2.1", {"color": 1}),
        ("2.36", {"floating_ips": 1}),
        ("2.57", {"injected_files": 1}),
    ],
)
def test_wrong_quotas_are_refused(api: Api, version: str, values: dict[str, object]) -> None:
    url = "/v2.1/os-quota-sets/demo"
    assert api.request("PUT", url, microversion(version), json={"quota_set": values}).status_code == 400


def test_quotas_are_read_by_their_project_and_changed_by_administrators(api: Api) -> None:
    assert api.get("/v2.1/os-quota-sets/red", RED).status_code == 200
    assert api.get("/v2.1/os-quota-sets/demo", RED).status_code == 403
    assert api.get("/v2.1/os-quota-sets/demo/defaults", RED).status_code == 200
    assert api.request("PUT", "/v2.1/os-quota-sets/red", RED, json={"quota_set": {}}).status_code == 403
    assert api.request("DELETE", "/v2.1/os-quota-sets/red", RED).status_code == 403
    assert api.request("DELETE", "/v2.1/os-quota-sets/red?user_id=ada").status_code == 501


def test_quotas_are_those_of_a_project_that_there_is(fleet: ComputeFleet, tmp_path: Path) -> None:
    """Where that can be said: any project is taken that another identity service may know."""
    site = Site(fleet, tmp_path)
    url, token = "/v2.1/os-quota-sets", site.log_in("ada")
    admin = {"X-Auth-Token": token}
    assert site.get(f"{url}/{OTHER}", token).status_code == 200
    for path in ("", "/detail", "/defaults"):
        refused = site.get(f"{url}/no-such{path}", token)
        assert (refused.status_code, "not a valid project" in refused.json()["badRequest"]["message"]) == (400, True)
    # Whoever may not read the quotas of other projects does not learn here which of them there are.
    of_bob = [site.get(f"{url}/{project}/defaults", site.log_in("bob")) for project in (OTHER, "no-such")]
    assert [answer.status_code for answer in of_bob] == [200, 200]
    for project, status in (("no-such", 400), (OTHER, 200)):
        changed = site.api.request("PUT", f"{url}/{project}", admin, json={"quota_set": {"cores": 30}})
        assert changed.status_code == status
    assert site.api.request("DELETE", f"{url}/no-such", admin).status_code == 202, (
        "what a removed project leaves behind"
    )


def test_default_class_is_what_projects_have(api: Api) -> None:
    url = "/v2.1/os-quota-class-sets/default"
    until_49 = {"id"} | FILES | NETWORK | {name for name in ALWAYS if not name.startswith("server_group")}
    assert set(api.get(url, microversion("2.49")).json()["quota_class_set"]) == until_49
    assert set(api.get(url, microversion("2.50")).json()["quota_class_set"]) == {"id"} | FILES | ALWAYS
    assert set(api.get(url, microversion("2.57")).json()["quota_class_set"]) == {"id"} | ALWAYS
    changed = api.request("PUT", url, microversion("2.57"), json={"quota_class_set": {"cores": 3}})
    assert set(changed.json()["quota_class_set"]) == ALWAYS
    assert api.get("/v2.1/os-quota-sets/red").json()["quota_set"]["cores"] == 3
    assert api.get(url, MEMBER).status_code == 403
    by_version = {
        version: api.request("PUT", url, microversion(version), json={"quota_class_set": {"fixed_ips": 3}})
        for version in ("2.49", "2.50")
    }
    assert {version: answer.status_code for version, answer in by_version.items()} == {"2.49": 200, "2.50": 400}


def test_other_classes_are_kept_and_mean_nothing(api: Api) -> None:
    url = "/v2.1/os-quota-class-sets/gold"
    shown = api.get(url, microversion("2.57")).json()["quota_class_set"]
    assert shown == {"id": "gold"} | {name: DEFAULTS[name] for name in ALWAYS}
    changed = api.request("PUT", url, microversion("2.57"), json={"quota_class_set": {"cores": 3}})
    assert changed.json()["quota_class_set"] == {name: DEFAULTS[name] for name in ALWAYS} | {"cores": 3}
    assert api.get(url, microversion("2.57")).json()["quota_class_set"]["cores"] == 3
    assert api.get("/v2.1/os-quota-class-sets/default").json()["quota_class_set"]["cores"] == DEFAULTS["cores"]
    assert api.get("/v2.1/os-quota-sets/red").json()["quota_set"]["cores"] == DEFAULTS["cores"]
    too_long = api.request("PUT", f"/v2.1/os-quota-class-sets/{'x' * 256}", json={"quota_class_set": {"cores": 3}})
    assert too_long.status_code == 400


@pytest.mark.parametrize("url", ["/v2.1/os-quota-sets/red", "/v2.1/os-quota-class-sets/default"])
def test_no_limit_is_no_value(api: Api, url: str) -> None:
    key = "quota_set" if "red" in url else "quota_class_set"
    refused = api.request("PUT", url, microversion("2.57"), json={key: {"key_pairs": None}})
    assert refused.status_code == 400, refused.text
