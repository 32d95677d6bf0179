"""Strategy `keystone` against a real identity service: our own one, in a process of its own."""

from collections.abc import Iterator

import httpx
import pytest
from pydantic import SecretStr

from api.identity.keystone import KeystoneIdentity
from api.settings import KeystoneSettings
from tests.contract.compute_fleet import Api, ComputeFleet, compute_fleet
from tests.integration.test_up import free_port
from tests.support.identity import OTHER, PASSWORD, password_login, project_scope, write_directory
from tests.support.live_api import LiveApi, live_api

SERVERS = "/v2.1/servers"


@pytest.fixture(scope="module")
def keystone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveApi]:
    folder = tmp_path_factory.mktemp("keystone")
    (folder / "data").mkdir()
    write_directory(folder / "data" / "identity.json")
    with live_api(folder, "--cells", "1") as service:
        yield service


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ComputeFleet]:
    with compute_fleet(tmp_path_factory.mktemp("fleet")) as fleet:
        fleet.create("north", display_name="mine", project_id="demo")
        fleet.create("east", display_name="theirs", project_id=OTHER)
        fleet.index()
        yield fleet


def settings(auth_url: str) -> KeystoneSettings:
    return KeystoneSettings(
        auth_url=auth_url, username="ada", password=SecretStr(PASSWORD), project_name="demo", cache_time_s=0
    )


@pytest.fixture(scope="module")
def api(fleet: ComputeFleet, keystone: LiveApi) -> Api:
    return fleet.api(identity=KeystoneIdentity(settings(keystone.auth_url)))


def token_of(keystone: LiveApi, name: str, project: str = "demo") -> str:
    body = password_login(name, scope=project_scope(project))
    response = httpx.post(f"{keystone.auth_url}/v3/auth/tokens", json=body)
    assert response.status_code == 201, response.text
    return response.headers["X-Subject-Token"]


def test_a_token_of_keystone_has_its_project_and_roles(api: Api, keystone: LiveApi) -> None:
    bob, ada = token_of(keystone, "bob"), token_of(keystone, "ada", "other")
    assert [server["name"] for server in api.get(SERVERS, {"X-Auth-Token": bob}).json()["servers"]] == ["mine"]
    assert api.get(SERVERS + "?all_tenants=1", {"X-Auth-Token": bob}).status_code == 403
    assert len(api.get(SERVERS + "?all_tenants=1", {"X-Auth-Token": ada}).json()["servers"]) == 2


@pytest.mark.parametrize("headers", [{}, {"X-Auth-Token": "nonsense"}, {"X-Identity-Status": "Confirmed"}])
def test_without_a_token_of_keystone_callers_are_told_where_to_get_one(
    api: Api, keystone: LiveApi, headers: dict[str, str]
) -> None:
    response = api.get(SERVERS, headers)
    assert response.status_code == 401
    assert response.headers["WWW-Authenticate"] == f'Keystone uri="{keystone.auth_url}"'


def test_who_a_caller_claims_to_be_in_other_headers_does_not_count(api: Api, keystone: LiveApi) -> None:
    claims = {"X-Auth-Token": token_of(keystone, "bob"), "X-Roles": "admin", "X-Project-Id": OTHER}
    assert [server["name"] for server in api.get(SERVERS, claims).json()["servers"]] == ["mine"]
    assert api.get(SERVERS + "?all_tenants=1", claims).status_code == 403


def test_a_token_that_was_revoked_at_keystone_is_refused(api: Api, keystone: LiveApi) -> None:
    token = token_of(keystone, "rita")
    assert api.get(SERVERS, {"X-Auth-Token": token}).status_code == 200
    headers = {"X-Auth-Token": token, "X-Subject-Token": token}
    assert httpx.delete(f"{keystone.auth_url}/v3/auth/tokens", headers=headers).status_code == 204
    assert api.get(SERVERS, {"X-Auth-Token": token}).status_code == 401


def test_while_keystone_is_away_the_answer_is_503(fleet: ComputeFleet) -> None:
    api = fleet.api(identity=KeystoneIdentity(settings(f"http://127.0.0.1:{free_port()}/identity")))
    response = api.get(SERVERS, {"X-Auth-Token": "any"})
    assert (response.status_code, list(response.json())) == (503, ["serviceUnavailable"])
