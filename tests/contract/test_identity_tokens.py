"""The embedded identity service: logins, tokens and what they are good for (contracts/nova-rest, 5)."""

import re
import threading
from base64 import b64encode
from functools import partial

import httpx
import msgspec
import pytest

from fleetlight.api.caller import ROLES
from fleetlight.api.identity.passwords import PasswordChecks
from fleetlight.api.identity.tokens.directory import MOST_REVOKED, Directory
from fleetlight.api.identity.tokens.directory_file import DirectoryFile
from fleetlight.api.identity.watched_file import WatchedFile
from tests.contract.compute_fleet import ComputeFleet
from tests.contract.identity_site import LIFETIME_S, TOKENS, Site, Time, with_two_projects
from tests.support.fleets.identity import DEMO, OTHER, PASSWORD, USERS, login, password_login, project_scope, weak_hash

pytestmark = pytest.mark.no_rerun

SERVERS = "/v2.1/servers"
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")


@pytest.fixture(scope="module")
def fleet(fleet: ComputeFleet) -> ComputeFleet:
    return with_two_projects(fleet)


def listed_names(site: Site, token: str, query: str = "") -> list[str]:
    response = site.get(SERVERS + query, token)
    assert response.status_code == 200, response.text
    return sorted(server["name"] for server in response.json()["servers"])


@pytest.mark.parametrize(("path", "status"), [("/identity", 300), ("/identity/", 300)])
def test_discovery_leads_to_v3(site: Site, path: str, status: int) -> None:
    response = site.api.get(path)
    assert response.status_code == status
    (document,) = response.json()["versions"]["values"]
    assert document["links"] == [{"rel": "self", "href": "http://api.test/identity/v3/"}]
    for v3 in ("/identity/v3", "/identity/v3/"):
        assert site.api.get(v3).json() == {"version": document}


def test_password_login_gives_the_whole_token(site: Site) -> None:
    response = site.post_login(password_login("bob", scope=project_scope()))
    assert response.status_code == 201
    assert response.headers["Vary"] == "X-Auth-Token"
    assert response.headers["X-Openstack-Request-Id"].startswith("req-")
    token = response.json()["token"]
    assert token["methods"] == ["password"]
    assert token["user"] == {
        "id": "id-bob",
        "name": "bob",
        "domain": {"id": "default", "name": "Default"},
        "password_expires_at": None,
    }
    assert token["project"] == {"id": DEMO, "name": "demo", "domain": {"id": "default", "name": "Default"}}
    assert token["is_domain"] is False
    assert [role["name"] for role in token["roles"]] == ["member", "reader"]
    assert TIME.fullmatch(token["issued_at"])
    assert TIME.fullmatch(token["expires_at"])
    assert token["expires_at"].endswith(".000000Z")
    assert [len(audit_id) for audit_id in token["audit_ids"]] == [22]


def test_catalog_has_each_service_at_every_interface_in_the_region(site: Site) -> None:
    catalog = site.post_login(password_login("bob", scope=project_scope())).json()["token"]["catalog"]
    urls = {service["type"]: {endpoint["url"] for endpoint in service["endpoints"]} for service in catalog}
    assert urls["compute"] == {"http://api.test/v2.1"}
    assert urls["identity"] == {"http://api.test/identity/v3"}
    for service in catalog:
        assert {endpoint["interface"] for endpoint in service["endpoints"]} == {"public", "internal", "admin"}
        assert {(endpoint["region"], endpoint["region_id"]) for endpoint in service["endpoints"]} == {
            ("RegionOne", "RegionOne")
        }
    token = site.log_in("bob")
    assert site.get("/identity/v3/auth/catalog", token).json()["catalog"] == catalog
    assert "catalog" not in site.post_login(password_login("bob", scope=project_scope()), "?nocatalog").json()["token"]


@pytest.mark.parametrize("name", USERS)
def test_a_role_brings_those_that_it_implies(site: Site, name: str) -> None:
    token = site.post_login(password_login(name, scope=project_scope())).json()["token"]
    assert [role["name"] for role in token["roles"]] == list(ROLES[ROLES.index(USERS[name]) :])


@pytest.mark.parametrize(
    "body",
    [
        password_login("bob", "wrong", project_scope()),
        password_login("nobody", PASSWORD, project_scope()),
        password_login("zoe", PASSWORD, project_scope()),
        password_login("bob", PASSWORD, project_scope("other")),
        password_login("bob", PASSWORD, project_scope("no such project")),
        password_login("bob", PASSWORD, {"project": {"id": OTHER}}),
        password_login("bob", PASSWORD, {"project": {"name": "demo", "domain": {"name": "Elsewhere"}}}),
        password_login("ada", PASSWORD, {"domain": {"id": "default"}}),
        password_login("ada", PASSWORD, {"system": {"all": True}}),
        login("password", {"user": {"name": "bob", "domain": {"name": "Elsewhere"}, "password": PASSWORD}}),
        login("password", {"user": {"id": "bob", "password": PASSWORD}}),
        login("token", {"id": "no token"}),
        login("application_credential", {"id": "none", "secret": "none"}),
        login("totp", {"user": {"id": "id-bob", "passcode": "123456"}}),
    ],
)
def test_every_refused_login_gets_the_same_answer(site: Site, body: object) -> None:
    response = site.post_login(body)
    assert response.status_code == 401
    assert response.headers["WWW-Authenticate"] == 'Keystone uri="http://api.test/identity"'
    assert response.json() == {
        "error": {
            "code": 401,
            "message": "The request you have made requires authentication.",
            "title": "Unauthorized",
        }
    }


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"\xff",
        b"[]",
        b"{}",
        b'{"auth": {}}',
        b'{"auth": {"identity": {"methods": []}}}',
        b'{"auth": {"identity": {"methods": ["password", "token"]}}}',
        b'{"auth": {"identity": {"methods": ["password"]}}}',
        b'{"auth": {"identity": {"methods": ["password"], "password": {"user": {"name": "bob", "password": "x"}}}}}',
        b'{"auth": {"identity": {"methods": ["password"], "password": {"user": {"id": "id-bob"}}}}}',
        b'{"auth": {"identity": {"methods": ["password"], "password": {"user": {"id": 7, "password": "secret"}}}}}',
        b'{"auth": {"identity": {"methods": ["token"], "token": {"id": "x"}}, "scope": "everything"}}',
        b'{"auth": {"identity": {"methods": ["token"], "token": {"id": "x"}},'
        b' "scope": {"project": {"id": "x"}, "domain": {"id": "default"}}}}',
        b'{"auth": {"identity": {"methods": ["token"], "token": {"id": "x"}},'
        b' "scope": {"project": {"id": "x"}, "system": {"all": true}}}}',
        b"[" * 100_000,
    ],
)
def test_malformed_login_gets_400_that_repeats_no_secret(site: Site, body: bytes) -> None:
    response = site.api.request("POST", TOKENS, content=body)
    assert response.status_code == 400
    assert response.json()["error"]["title"] == "Bad Request"
    assert "secret" not in response.text


def test_body_that_is_too_large_gets_413(site: Site) -> None:
    response = site.api.request("POST", TOKENS, content=b" " * 200_000)
    assert response.status_code == 413
    assert response.json()["error"]["code"] == 413


def test_a_token_lists_the_servers_of_its_project(site: Site) -> None:
    assert listed_names(site, site.log_in("bob")) == ["mine"]
    assert listed_names(site, site.log_in("ada", "other")) == ["theirs"]
    assert listed_names(site, site.log_in("ada"), "?all_tenants=1") == ["mine", "theirs"]
    assert site.get(SERVERS + "?all_tenants=1", site.log_in("bob")).status_code == 403


@pytest.mark.parametrize("token", [None, "", "nonsense", "a.b.c", "\x7f"])
def test_without_a_good_token_compute_says_where_to_get_one(site: Site, token: str | None) -> None:
    response = site.api.get(SERVERS, {} if token is None else {"X-Auth-Token": token})
    assert response.status_code == 401
    assert response.headers["WWW-Authenticate"] == 'Keystone uri="http://api.test/identity"'
    assert response.json()["error"]["code"] == 401
    assert site.api.get("/v2.1/").status_code == 200


def test_a_token_signed_with_another_key_or_with_none_is_refused(site: Site) -> None:
    token = site.log_in("ada")
    header, payload, _ = token.split(".")
    unsigned = "eyJhbGciOiJub25lIn0"  # {"alg":"none"}
    for forged in (f"{unsigned}.{payload}.", f"{header}.{payload}.", f"{header}.{payload}.AAAA"):
        assert site.get(SERVERS, forged).status_code == 401
    site.users.change(lambda directory: msgspec.structs.replace(directory, signing_key="00" * 32))
    assert site.get(SERVERS, token).status_code == 401


def test_an_expired_token_gets_401(site: Site, time: Time) -> None:
    token = site.log_in("bob")
    time.now += (LIFETIME_S - 1) * 1_000_000
    assert site.get(SERVERS, token).status_code == 200
    time.now += 2_000_000
    assert site.get(SERVERS, token).status_code == 401
    assert site.about("GET", token, site.log_in("ada")).status_code == 404


def test_a_revoked_token_gets_401_and_others_do_not(site: Site) -> None:
    token, other = site.log_in("bob"), site.log_in("bob")
    assert site.about("DELETE", token).status_code == 204
    assert site.get(SERVERS, token).status_code == 401
    assert site.about("DELETE", token).status_code == 401
    assert site.get(SERVERS, other).status_code == 200


def made_from(site: Site, token: str) -> httpx.Response:
    return site.post_login(login("token", {"id": token}, project_scope()))


def test_tokens_made_from_a_revoked_token_die_with_it_and_no_others(site: Site) -> None:
    first = site.log_in("bob")
    second = made_from(site, first).headers["X-Subject-Token"]
    third = made_from(site, second).headers["X-Subject-Token"]
    fourth = made_from(site, third).headers["X-Subject-Token"]
    assert site.about("DELETE", second).status_code == 204
    assert [site.get(SERVERS, token).status_code for token in (first, second, third, fourth)] == [200, 401, 401, 401]
    assert made_from(site, fourth).status_code == 401
    sibling = made_from(site, first)
    assert len(sibling.json()["token"]["audit_ids"]) == 2
    assert site.about("DELETE", first).status_code == 204
    assert site.get(SERVERS, sibling.headers["X-Subject-Token"]).status_code == 401


def test_token_made_from_a_token_lives_no_longer_than_it(site: Site, time: Time) -> None:
    token = first = site.log_in("bob")
    expires_at = site.about("GET", first).json()["token"]["expires_at"]
    for _ in range(3):
        time.now += LIFETIME_S // 4 * 1_000_000
        answer = made_from(site, token)
        assert answer.json()["token"]["expires_at"] == expires_at
        token = answer.headers["X-Subject-Token"]
    assert site.get(SERVERS, token).status_code == 200
    time.now += (LIFETIME_S // 4 + 1) * 1_000_000
    assert [site.get(SERVERS, each).status_code for each in (first, token)] == [401, 401]


def test_chain_of_tokens_made_from_each_other_has_an_end(site: Site) -> None:
    """They name all those before them, and a caller must not make them grow without end."""
    token, made = site.log_in("bob"), 1
    while (answer := made_from(site, token)).status_code == 201:
        token, made = answer.headers["X-Subject-Token"], made + 1
        assert len(answer.json()["token"]["audit_ids"]) == 2
    assert (answer.status_code, made, len(token) < 2048) == (401, 32, True)
    assert site.get(SERVERS, token).status_code == 200


def test_revoked_tokens_are_forgotten_once_they_have_expired(site: Site, time: Time) -> None:
    assert site.about("DELETE", site.log_in("bob")).status_code == 204
    time.now += (LIFETIME_S + 10) * 1_000_000
    assert site.about("DELETE", site.log_in("bob")).status_code == 204
    assert len(site.users.read().users["id-bob"].revoked) == 1


def test_user_who_revokes_too_many_tokens_loses_all_instead_of_filling_the_file(site: Site, time: Time) -> None:
    token, of_another = site.log_in("bob"), site.log_in("rita")

    def with_most(directory: Directory) -> Directory:
        for number in range(MOST_REVOKED):
            directory = directory.with_revoked("id-bob", f"a{number}", time.now + LIFETIME_S * 1_000_000, time.now)
        return directory

    site.users.change(with_most)
    assert len(site.users.read().users["id-bob"].revoked) == MOST_REVOKED
    assert site.get(SERVERS, token).status_code == 200
    last = made_from(site, token).headers["X-Subject-Token"]
    assert site.about("DELETE", last).status_code == 204
    assert site.users.read().users["id-bob"].revoked == {}
    assert [site.get(SERVERS, each).status_code for each in (token, last, of_another)] == [401, 401, 200]
    time.now += 1
    assert site.get(SERVERS, site.log_in("bob")).status_code == 200


def test_changed_file_is_read_once_for_all_requests_and_never_in_the_event_loop(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = site.log_in("bob")
    load, readers = WatchedFile.load, list[threading.Thread]()

    def noted_load(self: WatchedFile[object]) -> object:
        readers.append(threading.current_thread())
        return load(self)

    monkeypatch.setattr(WatchedFile, "load", noted_load)
    DirectoryFile(site.users.path).change(lambda directory: directory)
    readers.clear()
    answers = site.api.at_once(20, "GET", SERVERS, {"X-Auth-Token": token})
    assert {answer.status_code for answer in answers} == {200}
    assert len(readers) == 1
    assert threading.main_thread() not in readers
    # What the process itself has written it knows: the change is made from what the file says then, and that is all.
    assert site.about("DELETE", token).status_code == 204
    assert site.get(SERVERS, token).status_code == 401
    assert len(readers) == 2
    assert threading.main_thread() not in readers


def test_what_a_token_is_can_be_asked_for_by_its_user_and_administrators(site: Site) -> None:
    bob, rita, ada = site.log_in("bob"), site.log_in("rita"), site.log_in("ada")
    for asking in (bob, ada):
        response = site.about("GET", bob, asking)
        assert response.status_code == 200
        assert response.headers["X-Subject-Token"] == bob
        assert response.json()["token"]["user"]["name"] == "bob"
        head = site.about("HEAD", bob, asking)
        assert (head.status_code, head.headers["X-Subject-Token"]) == (200, bob)
    assert site.about("GET", bob, rita).status_code == 403
    assert site.about("GET", "nonsense", ada).status_code == 404
    assert site.about("GET", bob, "nonsense").status_code == 401


def test_a_change_of_the_user_counts_for_tokens_in_use(site: Site, time: Time) -> None:
    file, token = site.users, site.log_in("bob")
    bob = file.read().users["id-bob"]
    file.change(lambda directory: directory.with_user(msgspec.structs.replace(bob, enabled=False)))
    assert site.get(SERVERS, token).status_code == 401
    assert site.post_login(password_login("bob", scope=project_scope())).status_code == 401
    file.change(lambda directory: directory.with_user(bob))
    assert site.get(SERVERS, token).status_code == 200
    file.change(lambda directory: directory.without_role(bob, directory.projects[DEMO], "member"))
    assert site.get(SERVERS, token).status_code == 401
    file.change(lambda directory: directory.with_user(msgspec.structs.replace(bob, valid_from=time.now + 1)))
    assert site.get(SERVERS, token).status_code == 401
    time.now += 2
    assert site.get(SERVERS, site.log_in("bob")).status_code == 200


def test_login_with_a_password_that_is_changed_meanwhile_is_refused(
    site: Site, time: Time, monkeypatch: pytest.MonkeyPatch
) -> None:
    bob = site.users.read().users["id-bob"]
    is_password_of = PasswordChecks.is_password_of

    async def change_it_meanwhile(self: PasswordChecks, hashed: str | None, password: str) -> bool:
        is_right = await is_password_of(self, hashed, password)
        time.now += 1
        changed = msgspec.structs.replace(bob, password_hash=weak_hash("another"), valid_from=time.now)
        site.users.change(partial(Directory.with_user, user=changed))
        time.now += 1
        return is_right

    monkeypatch.setattr(PasswordChecks, "is_password_of", change_it_meanwhile)
    assert site.post_login(password_login("bob", scope=project_scope())).status_code == 401
    monkeypatch.undo()
    assert site.post_login(password_login("bob", "another", project_scope())).status_code == 201


def test_without_a_project_a_token_is_good_for_getting_another(site: Site) -> None:
    unscoped = site.log_in("bob", None)
    assert site.get(SERVERS, unscoped).status_code == 403
    assert site.get("/identity/v3/auth/catalog", unscoped).status_code == 403
    assert [each["name"] for each in site.get("/identity/v3/auth/projects", unscoped).json()["projects"]] == ["demo"]
    assert site.get("/identity/v3/auth/domains", unscoped).json()["domains"] == []
    response = site.post_login(login("token", {"id": unscoped}, project_scope()))
    assert response.status_code == 201
    assert listed_names(site, response.headers["X-Subject-Token"]) == ["mine"]
    first = site.about("GET", unscoped).json()["token"]
    second = response.json()["token"]
    assert second["methods"] == ["password", "token"]
    assert second["expires_at"] == first["expires_at"]
    assert second["audit_ids"][1:] == first["audit_ids"]
    assert "project" not in first
    assert "catalog" not in first


def test_without_a_scope_the_default_project_counts_if_there_is_one(site: Site) -> None:
    assert "project" not in site.post_login(password_login("bob")).json()["token"]
    bob = site.users.read().users["id-bob"]
    for default, project in ((DEMO, "demo"), (OTHER, None), ("gone", None)):
        changed = msgspec.structs.replace(bob, default_project_id=default)
        site.users.change(partial(Directory.with_user, user=changed))
        token = site.post_login(password_login("bob")).json()["token"]
        assert token.get("project", {}).get("name") == project


def test_the_project_in_the_address_must_be_that_of_the_token(site: Site) -> None:
    token = site.log_in("bob")
    assert site.get(f"/v2.1/{DEMO}/servers", token).status_code == 200
    assert site.get(f"/v2.1/{OTHER}/servers", token).status_code == 400


@pytest.mark.parametrize("damage", ["", "{", "[]", None])
def test_when_the_users_cannot_be_read_nobody_is_let_in_and_the_answer_says_so(site: Site, damage: str | None) -> None:
    token = site.log_in("bob")
    if damage is None:
        site.users.path.unlink()
    else:
        site.users.path.write_text(damage)
    response = site.get(SERVERS, token)
    assert (response.status_code, list(response.json())) == (503, ["serviceUnavailable"])
    refused = site.post_login(password_login("bob"))
    assert (refused.status_code, refused.json()["error"]["title"]) == (503, "Service Unavailable")
    assert str(site.users.path) not in response.text + refused.text


def test_unknown_addresses_get_404_in_the_form_of_the_service(site: Site) -> None:
    for method, path in (("GET", "/identity/v2.0"), ("GET", "/identity/v3/nothing"), ("PUT", TOKENS)):
        response = site.api.request(method, path)
        assert response.status_code == 404
        assert response.json()["error"]["title"] == "Not Found"


def test_after_ten_wrong_passwords_a_name_has_to_wait(site: Site, time: Time) -> None:
    """A token that is there already goes on."""
    token = site.log_in("mia")
    answers = [site.post_login(password_login("mia", "guess", project_scope())) for _ in range(11)]
    assert [answer.status_code for answer in answers] == [401] * 10 + [429]
    assert (answers[-1].headers["Retry-After"], answers[-1].json()["error"]["code"]) == ("60", 429)
    assert site.post_login(password_login("mia", scope=project_scope())).status_code == 429
    assert site.get("/v2.1/servers", token).status_code == 200
    time.now += 60_000_000
    assert site.post_login(password_login("mia", scope=project_scope())).status_code == 201


def basic(name: str, password: str) -> dict[str, str]:
    return {"Authorization": f"Basic {b64encode(f'{name}:{password}'.encode()).decode()}"}


def test_program_that_gets_no_token_sends_name_and_password(site: Site) -> None:
    listed = site.api.get(SERVERS, basic("bob", PASSWORD))
    assert [server["name"] for server in listed.json()["servers"]] == ["mine"]


def test_application_credential_is_sent_as_name_and_password_with_its_roles_alone(site: Site, time: Time) -> None:
    expires_at = "2126-01-01T00:00:00.000000Z"
    credential = site.new_credential("ada", roles=[{"name": "reader"}], expires_at=expires_at)
    headers = basic(credential["id"], credential["secret"])
    assert site.api.get(SERVERS, headers).status_code == 200
    assert site.api.get("/fleetlight/cells", headers).status_code == 403
    assert site.api.get(SERVERS, basic(credential["id"], "wrong")).status_code == 401
    time.now += 100 * 366 * 86_400_000_000
    assert site.api.get(SERVERS, headers).status_code == 401


@pytest.mark.parametrize(
    "headers",
    [
        basic("bob", "wrong"),
        basic("nobody", PASSWORD),
        {"Authorization": "Bearer bob"},
        {"Authorization": "Basic"},
        {"Authorization": "Basic bob"},
        basic("bob", PASSWORD) | {"X-Auth-Token": "none"},
    ],
)
def test_other_authorization_is_refused_as_a_bad_token_is(site: Site, headers: dict[str, str]) -> None:
    response = site.api.get(SERVERS, headers)
    assert response.status_code == 401
    assert response.headers["WWW-Authenticate"] == 'Keystone uri="http://api.test/identity"'
