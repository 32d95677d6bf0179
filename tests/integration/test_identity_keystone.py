"""Strategy `keystone` against a real identity service: our own one, in a process of its own.

What Keystone says and our own service never does, such as tokens for a whole system, is played.
"""

from collections.abc import Iterator

import httpx
import pytest
from pydantic import SecretStr

from fleetlight.api.identity.keystone import KeystoneIdentity
from fleetlight.api.settings import KeystoneSettings
from tests.contract.compute_fleet import Api, ComputeFleet, compute_fleet
from tests.contract.streams import stream
from tests.contract.test_browser_session import cookie_of
from tests.integration.test_up import free_port
from tests.support.fleets.identity import OTHER, PASSWORD, password_login, project_scope, write_directory
from tests.support.played.played_keystone import played_keystone
from tests.support.servers.live_api import LiveApi, live_api

pytestmark = pytest.mark.no_rerun

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


def test_stream_of_changes_ends_with_its_token_of_keystone(
    api: Api, fleet: ComputeFleet, keystone: LiveApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fleetlight.listing.watches.watch._HEARTBEAT_S", 0.05)
    fleet.number_changes()
    token = token_of(keystone, "ada")
    headers = {"X-Auth-Token": token, "X-Subject-Token": token}

    async def scenario() -> None:
        async with stream(api, "all_tenants=1", {"X-Auth-Token": token}) as watch:
            await watch.next()
            theirs = fleet.create("north", project_id=OTHER)
            fleet.number_changes()
            assert await watch.told() == ("changed", theirs)
            async with httpx.AsyncClient() as client:
                await client.delete(f"{keystone.auth_url}/v3/auth/tokens", headers=headers)
            fleet.create("north", project_id=OTHER)
            fleet.number_changes()
            assert (await watch.next()).name == "ended"

    api.run(scenario())


def test_while_keystone_is_away_the_answer_is_503(fleet: ComputeFleet) -> None:
    api = fleet.api(identity=KeystoneIdentity(settings(f"http://127.0.0.1:{free_port()}/identity")))
    response = api.get(SERVERS, {"X-Auth-Token": "any"})
    assert (response.status_code, list(response.json())) == (503, ["serviceUnavailable"])


@pytest.fixture(scope="module")
def played() -> Iterator[str]:
    with played_keystone() as auth_url:
        yield auth_url


@pytest.fixture(scope="module")
def other_api(fleet: ComputeFleet, played: str) -> Api:
    return fleet.api(identity=KeystoneIdentity(settings(played)))


def test_roles_count_in_projects_alone(other_api: Api) -> None:
    """A role in a domain, or in the whole system, would otherwise be one in every project."""
    assert other_api.get(SERVERS + "?all_tenants=1", {"X-Auth-Token": "of-a-project"}).status_code == 200
    for token in ("of-the-system", "of-a-domain", "of-nothing"):
        for query in ("", "?all_tenants=1"):
            refused = other_api.get(SERVERS + query, {"X-Auth-Token": token})
            assert (refused.status_code, list(refused.json())) == (403, ["forbidden"]), token
            assert "os_compute_api:servers:index" in refused.text


def test_expired_token_counts_only_when_a_service_acts_for_its_user(other_api: Api) -> None:
    expired = {"X-Auth-Token": "expired"}
    assert other_api.get(SERVERS, expired).status_code == 401
    assert other_api.get(SERVERS, expired | {"X-Service-Token": "of-no-service"}).status_code == 401
    assert other_api.get(SERVERS, expired | {"X-Service-Token": "of-a-service"}).status_code == 200


def test_credential_that_is_good_for_some_requests_only_is_refused(other_api: Api) -> None:
    assert other_api.get(SERVERS, {"X-Auth-Token": "for-some-requests"}).status_code == 401


def test_keystone_that_lacks_our_region_is_no_fault_of_the_caller(fleet: ComputeFleet, played: str) -> None:
    elsewhere = settings(played).model_copy(update={"region_name": "Elsewhere"})
    response = fleet.api(identity=KeystoneIdentity(elsewhere)).get(SERVERS, {"X-Auth-Token": "of-a-project"})
    assert (response.status_code, list(response.json())) == (503, ["serviceUnavailable"])


def test_answers_about_tokens_are_kept_for_a_while(fleet: ComputeFleet) -> None:
    with played_keystone() as auth_url:
        keeping = settings(auth_url).model_copy(update={"cache_time_s": 3600})
        api = fleet.api(identity=KeystoneIdentity(keeping))
        assert api.get(SERVERS, {"X-Auth-Token": "of-a-project"}).status_code == 200
    assert api.get(SERVERS, {"X-Auth-Token": "of-a-project"}).status_code == 200, "Keystone is away"
    assert api.get(SERVERS, {"X-Auth-Token": "of-a-service"}).status_code == 503, "nobody has asked about this one"


SESSION = "/fleetlight/session"
CONSOLE = {"Fleetlight-Request": "console"}


def test_a_browser_logs_in_with_a_password_of_keystone_and_changes_its_project(api: Api) -> None:
    begun = api.request("POST", SESSION, CONSOLE, json={"user": "ada", "password": PASSWORD, "project": "demo"})
    assert begun.status_code == 200, begun.text
    assert (begun.json()["user"]["name"], begun.json()["project"]["name"]) == ("ada", "demo")
    assert [project["name"] for project in begun.json()["projects"]] == ["demo", "other"]
    changed = api.request("POST", SESSION, {**CONSOLE, "Cookie": cookie_of(begun)}, json={"project": "other"})
    assert changed.json()["project"]["name"] == "other"
    cookie = {"Cookie": cookie_of(changed)}
    assert [server["name"] for server in api.get(SERVERS, cookie).json()["servers"]] == ["theirs"]


def test_a_browser_that_names_no_project_gets_one_of_its_user(api: Api) -> None:
    begun = api.request("POST", SESSION, CONSOLE, json={"user": "bob", "password": PASSWORD})
    assert (begun.status_code, begun.json()["project"]["name"]) == (200, "demo")


def test_a_browser_logs_in_with_a_token_of_keystone_and_logging_out_ends_it(api: Api, keystone: LiveApi) -> None:
    begun = api.request("POST", SESSION, CONSOLE, json={"token": token_of(keystone, "bob")})
    cookie = {"Cookie": cookie_of(begun)}
    assert api.get(SESSION, cookie).json()["user"]["name"] == "bob"
    assert api.request("DELETE", SESSION, {**CONSOLE, **cookie}).status_code == 204
    assert api.get(SESSION, cookie).json()["user"] is None
    assert api.request("DELETE", SESSION, {**CONSOLE, **cookie}).status_code == 204


@pytest.mark.parametrize(
    "login",
    [
        {"user": "ada", "password": "wrong"},
        {"user": "eve", "password": PASSWORD},
        {"user": "bob", "password": PASSWORD, "project": "other"},
        {"token": "nonsense"},
    ],
    ids=str,
)
def test_what_keystone_refuses_lets_no_browser_in(api: Api, login: dict[str, str]) -> None:
    refused = api.request("POST", SESSION, CONSOLE, json=login)
    assert (refused.status_code, refused.json()["logins"]) == (401, ["password", "token"])


def test_a_browser_is_told_when_keystone_does_not_answer(fleet: ComputeFleet) -> None:
    away = fleet.api(identity=KeystoneIdentity(settings(f"http://127.0.0.1:{free_port()}/identity")))
    for login in ({"user": "ada", "password": PASSWORD}, {"token": "some"}):
        assert away.request("POST", SESSION, CONSOLE, json=login).status_code == 503
