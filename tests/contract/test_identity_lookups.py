"""The embedded identity service: looking things up, and application credentials (contracts/nova-rest, 5.4)."""

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from fleetlight.api.identity.passwords import PasswordChecks
from fleetlight.api.identity.tokens.directory import Credential, Directory
from fleetlight.api.identity.tokens.directory_file import DirectoryFile
from tests.contract.compute_fleet import ComputeFleet
from tests.contract.identity_site import TOKENS, Site
from tests.support.callers import asked_flows, client_at
from tests.support.fleets.identity import DEMO, OTHER, login, project_scope, weak_hash
from tests.support.waiting import eventually

pytestmark = pytest.mark.no_rerun

V3 = "/identity/v3"
# By the path, the rule of Keystone that guards it.
FOR_ADMINISTRATORS = {
    "projects": "list_projects",
    "users": "list_users",
    "domains": "list_domains",
    "domains/none": "get_domain",
    "roles": "list_roles",
    "roles/none": "get_role",
    "role_assignments": "list_role_assignments",
    "services": "list_services",
    "endpoints": "list_endpoints",
    "regions": "list_regions",
    "services/none": "get_service",
    "endpoints/none": "get_endpoint",
    "regions/none": "get_region",
    f"projects/{OTHER}": "get_project",
    "projects/none": "get_project",
    "users/id-ada": "get_user",
    "users/none": "get_user",
    "users/id-ada/projects": "list_user_projects",
    "users/id-ada/application_credentials": "list_application_credentials",
}


@pytest.fixture
def site(fleet: ComputeFleet, tmp_path: Path) -> Site:
    return Site(fleet, tmp_path)


@pytest.mark.parametrize(("path", "rule"), FOR_ADMINISTRATORS.items())
def test_what_is_not_ones_own_is_for_administrators_and_looks_the_same_whether_it_is_there(
    site: Site, path: str, rule: str
) -> None:
    response = site.get(f"{V3}/{path}", site.log_in("bob"))
    assert (response.status_code, response.json()["error"]["title"]) == (403, "Forbidden")
    assert f" identity:{rule} " in f"{response.json()['error']['message']} "
    assert site.api.get(f"{V3}/{path}").status_code == 401


def test_administrators_list_everything(site: Site) -> None:
    token = site.log_in("ada")
    lists = {
        name: site.get(f"{V3}/{name}", token).json()[name]
        for name in ("projects", "users", "domains", "roles", "services", "endpoints", "regions")
    }
    names = {kind: [each["name"] for each in lists[kind]] for kind in ("projects", "users", "domains", "roles")}
    assert names == {
        "projects": ["demo", "other"],
        "users": ["ada", "mia", "bob", "rita", "zoe"],
        "domains": ["Default"],
        "roles": ["admin", "manager", "member", "reader"],
    }
    assert {each["service_id"] for each in lists["endpoints"]} == {each["id"] for each in lists["services"]}
    assert [each["id"] for each in lists["regions"]] == ["RegionOne"]
    for kind in ("service", "endpoint", "region"):
        for each in lists[f"{kind}s"]:
            assert site.get(f"{V3}/{kind}s/{each['id']}", token).json() == {kind: each}
        assert site.get(f"{V3}/{kind}s/none", token).status_code == 404
    assert not any("password_hash" in user for user in lists["users"])


@pytest.mark.parametrize(
    ("kind", "identifier", "name"),
    [("project", OTHER, "other"), ("user", "id-bob", "bob"), ("domain", "default", "Default")],
)
def test_a_name_in_the_place_of_an_id_is_not_found_and_the_list_finds_it(
    site: Site, kind: str, identifier: str, name: str
) -> None:
    token = site.log_in("ada")
    assert site.get(f"{V3}/{kind}s/{identifier}", token).json()[kind]["name"] == name
    missing = site.get(f"{V3}/{kind}s/{name}", token)
    assert (missing.status_code, missing.json()["error"]["title"]) == (404, "Not Found")
    (found,) = site.get(f"{V3}/{kind}s?name={name}", token).json()[f"{kind}s"]
    assert found["id"] == identifier
    assert found["links"]["self"] == f"http://api.test{V3}/{kind}s/{identifier}"
    assert site.get(f"{V3}/{kind}s?name=none", token).json()[f"{kind}s"] == []


def test_lists_are_filtered_by_domain_and_state(site: Site) -> None:
    token = site.log_in("ada")
    for query, count in (("domain_id=default", 2), ("domain_id=none", 0), ("enabled=true", 2), ("enabled=False", 0)):
        assert len(site.get(f"{V3}/projects?{query}", token).json()["projects"]) == count


def test_callers_see_themselves_and_their_project(site: Site) -> None:
    token = site.log_in("bob")
    assert site.get(f"{V3}/users/id-bob", token).json()["user"]["name"] == "bob"
    assert site.get(f"{V3}/projects/{DEMO}", token).json()["project"]["name"] == "demo"
    assert [each["id"] for each in site.get(f"{V3}/users/id-bob/projects", token).json()["projects"]] == [DEMO]


def test_role_assignments_are_those_given_unless_effective_ones_are_asked_for(site: Site) -> None:
    token = site.log_in("ada")

    def roles(query: str) -> list[tuple[str, str, str]]:
        found = site.get(f"{V3}/role_assignments?include_names&{query}", token).json()["role_assignments"]
        return [(each["user"]["name"], each["scope"]["project"]["name"], each["role"]["name"]) for each in found]

    assert roles("user.id=id-bob") == [("bob", "demo", "member")]
    assert roles("user.id=id-bob&effective") == [("bob", "demo", "member"), ("bob", "demo", "reader")]
    assert roles(f"scope.project.id={OTHER}") == [("ada", "other", "admin")]
    assert roles("group.id=any") == []


def test_an_application_credential_logs_in_for_its_project_with_its_roles(site: Site) -> None:
    (reader,) = [
        each for each in site.get(f"{V3}/roles", site.log_in("ada")).json()["roles"] if each["name"] == "reader"
    ]
    credential = site.new_credential("bob", roles=[{"id": reader["id"]}], description="nightly")
    response = site.use_credential(credential["id"], credential["secret"])
    assert response.status_code == 201
    token = response.json()["token"]
    assert token["methods"] == ["application_credential"]
    assert [role["name"] for role in token["roles"]] == ["reader"]
    assert token["project"]["name"] == "demo"
    assert token["application_credential"] == {"id": credential["id"], "name": "backup", "restricted": True}
    assert site.get("/v2.1/servers", response.headers["X-Subject-Token"]).status_code == 200
    by_name = {"name": "backup", "user": {"name": "bob", "domain": {"id": "default"}}, "secret": credential["secret"]}
    assert site.post_login(login("application_credential", by_name)).status_code == 201


@pytest.mark.parametrize("values", [{}, {"roles": None}, {"roles": []}], ids=["nothing", "null", "none named"])
def test_an_application_credential_has_all_roles_of_its_maker_unless_told(site: Site, values: dict[str, Any]) -> None:
    assert [role["name"] for role in site.new_credential("bob", **values)["roles"]] == ["member", "reader"]


def test_the_secret_of_an_application_credential_is_shown_once(site: Site) -> None:
    credential = site.new_credential("bob", secret="a secret of my own")
    assert credential["secret"] == "a secret of my own"
    token, path = site.log_in("bob"), f"{V3}/users/id-bob/application_credentials"
    (listed,) = site.get(path, token).json()["application_credentials"]
    shown = site.get(f"{path}/{credential['id']}", token).json()["application_credential"]
    assert listed == shown == {name: value for name, value in credential.items() if name != "secret"}
    assert "a secret of my own" not in site.users.path.read_text()


def post_credential(site: Site, token: str, **values: object) -> httpx.Response:
    body = {"application_credential": {"name": "backup", **values}}
    path = f"{V3}/users/id-rita/application_credentials"
    return site.api.request("POST", path, {"X-Auth-Token": token}, json=body)


@pytest.mark.parametrize(
    "values",
    [
        {"secret": ""},
        {"secret": "fifteen letters"},
        {"secret": "s" * 256},
        {"description": "d" * 256},
        {"name": "n" * 256},
    ],
    ids=lambda values: f"{next(iter(values))} of {len(next(iter(values.values())))}",
)
def test_what_an_application_credential_says_is_neither_too_short_nor_too_long(
    site: Site, values: dict[str, str]
) -> None:
    before = site.users.path.read_bytes()
    assert post_credential(site, site.log_in("rita"), **values).status_code == 400
    assert site.users.path.read_bytes() == before
    longest = {"secret": "s" * 255, "description": "d" * 255, "name": "n" * 255}
    assert post_credential(site, site.log_in("rita"), **longest).status_code == 201
    assert post_credential(site, site.log_in("rita"), secret="sixteen letters.").status_code == 201


def test_user_can_make_so_many_application_credentials_and_no_more_also_at_once(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = site.log_in("rita")
    hashed: list[str] = []

    async def hash_password(_self: PasswordChecks, secret: str) -> str:
        hashed.append(secret)
        return weak_hash(secret)

    monkeypatch.setattr(PasswordChecks, "hash_password", hash_password)
    for number in range(15):
        assert post_credential(site, token, name=f"c{number}").status_code == 201
    requests = [
        ("POST", f"{V3}/users/id-rita/application_credentials", {"X-Auth-Token": token}, {"json": body})
        for body in ({"application_credential": {"name": f"at once {number}"}} for number in range(10))
    ]
    assert sorted(answer.status_code for answer in site.api.together(requests)) == [201] * 5 + [403] * 5
    size, hashes = site.users.path.stat().st_size, len(hashed)
    refused = post_credential(site, token, name="one more")
    assert (refused.status_code, refused.json()["error"]["title"]) == (403, "Forbidden")
    assert "there are 20, as many as a user may have" in refused.text
    # Nothing was done for it.
    assert (site.users.path.stat().st_size, len(hashed)) == (size, hashes)
    assert size < 20_000
    assert site.new_credential("bob")["name"] == "backup"
    (first, *_) = site.users.read().credentials_of("id-rita")
    path = f"{V3}/users/id-rita/application_credentials/{first.id}"
    assert site.api.request("DELETE", path, {"X-Auth-Token": token}).status_code == 204
    assert post_credential(site, token, name="one more").status_code == 201


def test_many_changes_of_one_user_at_once_are_refused_and_another_user_has_a_turn(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = [site.log_in("rita", None) for _ in range(30)]
    of_bob = site.log_in("bob")
    change, go_on, order = DirectoryFile.change, threading.Event(), list[str]()

    def held_change(self: DirectoryFile, made: Callable[[Directory], Directory]) -> Directory:
        assert go_on.wait(60)
        changed = change(self, made)
        order.append("bob" if changed.users["id-bob"].revoked else "rita")
        return changed

    monkeypatch.setattr(DirectoryFile, "change", held_change)
    flows = asked_flows(monkeypatch)

    async def story() -> None:
        async with client_at(site.api.app, "192.0.2.1") as client:

            async def revoke(token: str) -> int:
                headers = {"X-Auth-Token": token, "X-Subject-Token": token}
                return (await client.delete(TOKENS, headers=headers)).status_code

            of_rita = [asyncio.create_task(revoke(token)) for token in own]
            # One is under way, and sixteen may wait.
            await eventually(lambda: sum(each.done() for each in of_rita) == 13)
            bob = asyncio.create_task(revoke(of_bob))
            await eventually(lambda: len(flows) == 2)
            go_on.set()
            assert await bob == 204
            assert sorted(await asyncio.gather(*of_rita)) == [204] * 17 + [429] * 13

    site.api.run(story())
    assert order.index("bob") <= 2


def test_a_wrong_secret_or_a_scope_of_ones_own_is_refused(site: Site) -> None:
    credential = site.new_credential("bob")
    assert site.use_credential(credential["id"], "wrong").status_code == 401
    right = {"id": credential["id"], "secret": credential["secret"]}
    assert site.post_login(login("application_credential", right, project_scope())).status_code == 401


def test_a_removed_application_credential_ends_its_tokens(site: Site) -> None:
    credential = site.new_credential("bob")
    with_credential = site.use_credential(credential["id"], credential["secret"]).headers["X-Subject-Token"]
    path = f"{V3}/users/id-bob/application_credentials/{credential['id']}"
    assert site.api.request("DELETE", path, {"X-Auth-Token": site.log_in("bob")}).status_code == 204
    assert site.get("/v2.1/servers", with_credential).status_code == 401
    assert site.use_credential(credential["id"], credential["secret"]).status_code == 401
    assert site.api.request("DELETE", path, {"X-Auth-Token": site.log_in("bob")}).status_code == 404


def test_an_application_credential_can_neither_make_nor_become_another(site: Site) -> None:
    credential = site.new_credential("bob")
    token = site.use_credential(credential["id"], credential["secret"]).headers["X-Subject-Token"]
    path = f"{V3}/users/id-bob/application_credentials"
    more = site.api.request("POST", path, {"X-Auth-Token": token}, json={"application_credential": {"name": "more"}})
    assert more.status_code == 403
    assert site.api.request("DELETE", f"{path}/{credential['id']}", {"X-Auth-Token": token}).status_code == 403
    assert site.post_login(login("token", {"id": token}, project_scope())).status_code == 401


def test_an_application_credential_may_be_good_until_the_last_moment_there_is(site: Site) -> None:
    credential = site.new_credential("bob", expires_at="9999-12-31T23:59:59.999999")
    assert credential["expires_at"] == "9999-12-31T23:59:59.999999Z"
    path = f"{V3}/users/id-bob/application_credentials"
    assert site.get(path, site.log_in("bob")).json()["application_credentials"] == [
        {name: value for name, value in credential.items() if name != "secret"}
    ]


@pytest.mark.parametrize("gone", ["user", "project"])
def test_an_application_credential_is_not_made_for_who_is_removed_meanwhile(
    site: Site, gone: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = site.log_in("bob")

    def remove_first(self: Directory, credential: Credential) -> Directory:
        remove = Directory.without_user if gone == "user" else Directory.without_project
        things: Any = self.users if gone == "user" else self.projects
        found = things[credential.user_id if gone == "user" else credential.project_id]
        return with_credential(remove(self, found), credential)

    with_credential = Directory.with_credential
    monkeypatch.setattr(Directory, "with_credential", remove_first)
    path = f"{V3}/users/id-bob/application_credentials"
    answer = site.api.request("POST", path, {"X-Auth-Token": token}, json={"application_credential": {"name": "x"}})
    assert answer.status_code == 409, answer.text
    assert not site.users.read().credentials


@pytest.mark.parametrize(
    ("asked", "status"),
    [
        ({}, 400),
        ({"name": ""}, 400),
        ({"name": " \t"}, 400),
        ({"name": "x" * 256}, 400),
        ({"name": "x\0"}, 400),
        ({"name": "\x1b[31mx"}, 400),
        ({"name": "x", "secret": ""}, 400),
        ({"name": "x", "roles": [{"name": "admin"}]}, 400),
        ({"name": "x", "roles": [{"name": "unknown"}]}, 400),
        ({"name": "x", "unrestricted": True}, 400),
        ({"name": "x", "access_rules": [{"path": "/v2.1/servers", "method": "GET", "service": "compute"}]}, 400),
        ({"name": "x", "expires_at": "2001-01-01T00:00:00"}, 400),
        ({"name": "x", "expires_at": "tomorrow"}, 400),
        ({"name": "x", "expires_at": "9999-12-31T23:59:59-05:00"}, 400),
        ({"name": "x", "expires_at": "0001-01-01T00:00:00+05:00"}, 400),
        ({"name": "backup"}, 409),
    ],
)
def test_an_application_credential_that_cannot_be_made_is_refused(
    site: Site, asked: dict[str, object], status: int
) -> None:
    site.new_credential("bob")
    path = f"{V3}/users/id-bob/application_credentials"
    headers = {"X-Auth-Token": site.log_in("bob")}
    assert site.api.request("POST", path, headers, json={"application_credential": asked}).status_code == status
    others = f"{V3}/users/id-rita/application_credentials"
    assert site.api.request("POST", others, headers, json={"application_credential": {"name": "x"}}).status_code == 403
