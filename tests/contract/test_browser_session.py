"""Logins of browsers: a cookie that every face takes, and that ends when it should (`/fleetlight/session`)."""

from collections.abc import Mapping
from dataclasses import dataclass
from http.cookies import SimpleCookie
from pathlib import Path
from typing import Any

import httpx
import pytest

from fleetlight.api.identity.basic import BasicIdentity
from fleetlight.api.identity.tokens.login import Logins
from fleetlight.api.identity.tokens.token import sign
from fleetlight.api.limits.login_limit import MOST_FAILURES
from fleetlight.cells.errors import FleetUnreachableError
from fleetlight.cells.fleet.ended_sessions import MOST_OF_USER, EndedSessions
from tests.contract.compute_fleet import Api, ComputeFleet
from tests.contract.identity_site import LIFETIME_S, Site, Time, with_two_projects
from tests.support.fleets.identity import DEMO, OTHER, PASSWORD, weak_hash

pytestmark = pytest.mark.no_rerun

SESSION = "/fleetlight/session"
CONSOLE = {"Fleetlight-Request": "console"}
ADA, BOB = ({"user": name, "password": PASSWORD} for name in ("ada", "bob"))


@dataclass(frozen=True, slots=True)
class Browser:
    """A browser that takes no cookie but those that a test gives it."""

    api: Api

    def log_in(self, body: Mapping[str, Any]) -> str:
        """The cookie of a login that must be a success."""
        response = self.post(body)
        assert response.status_code == 200, response.text
        return cookie_of(response)

    def post(self, body: Mapping[str, Any], **headers: str) -> httpx.Response:
        return self.api.request("POST", SESSION, {**CONSOLE, **headers}, json=body)

    def get(self, path: str, cookie: str) -> httpx.Response:
        return self.api.get(path, {"Cookie": cookie})

    def log_out(self, cookie: str) -> httpx.Response:
        return self.api.request("DELETE", SESSION, {**CONSOLE, "Cookie": cookie})


def cookie_of(response: httpx.Response) -> str:
    """What the browser sends from now on."""
    (morsel,) = SimpleCookie(response.headers["Set-Cookie"]).values()
    return f"{morsel.key}={morsel.value}"


@pytest.fixture(scope="module")
def fleet(fleet: ComputeFleet) -> ComputeFleet:
    return with_two_projects(fleet)


@pytest.fixture
def htpasswd(tmp_path: Path) -> Path:
    path = tmp_path / "htpasswd"
    write_htpasswd(path)
    return path


def write_htpasswd(path: Path, password: str = PASSWORD, roles: str = "admin") -> None:
    path.write_text(f"ada:{weak_hash(password)}:{DEMO}:{roles}\nbob:{weak_hash(PASSWORD)}:{DEMO}:member\n")


@pytest.fixture(params=["tokens", "basic"])
def browser(request: pytest.FixtureRequest, fleet: ComputeFleet, time: Time) -> Browser:
    """A browser at an API of each strategy with users."""
    if request.param == "tokens":
        return Browser(request.getfixturevalue("site").api)
    identity = BasicIdentity(request.getfixturevalue("htpasswd"), LIFETIME_S, time)
    return Browser(fleet.api(identity=identity))


def test_the_cookie_is_for_no_script_and_no_other_site(browser: Browser) -> None:
    said = browser.post(ADA).headers["Set-Cookie"].lower()
    assert {"httponly", "samesite=strict", "path=/"} <= set(said.split("; "))
    assert "secure" not in said
    assert "max-age" not in said


def test_the_cookie_of_an_encrypted_site_is_sent_encrypted_alone(browser: Browser) -> None:
    response = browser.api.request("POST", f"https://api.test{SESSION}", CONSOLE, json=ADA)
    said = response.headers["Set-Cookie"]
    # With this prefix, path and flag, and without a domain, browsers let no other site set it.
    assert said.startswith("__Host-fleetlight_session=")
    assert {"secure", "path=/"} <= set(said.lower().split("; "))
    assert "domain" not in said.lower()


def test_an_encrypted_site_takes_no_cookie_that_another_site_may_have_set(browser: Browser) -> None:
    url = f"https://api.test{SESSION}"
    cookie = cookie_of(browser.api.request("POST", url, CONSOLE, json=ADA))
    assert browser.get(url, cookie).json()["user"]["name"] == "ada"
    planted = cookie.removeprefix("__Host-")
    assert browser.get(url, planted).json()["user"] is None
    assert browser.get(url, f"{planted}; {cookie}").json()["user"]["name"] == "ada"
    ended = browser.api.request("DELETE", url, {**CONSOLE, "Cookie": cookie})
    assert ended.headers["Set-Cookie"].startswith('__Host-fleetlight_session="";')
    assert browser.get(url, cookie).json()["user"] is None


def test_every_face_takes_the_cookie(browser: Browser) -> None:
    cookie = browser.log_in(ADA)
    assert [server["name"] for server in browser.get("/v2.1/servers", cookie).json()["servers"]] == ["mine"]
    for path in ("/fleetlight/query/fields", "/fleetlight/capacity", "/2/instances", "/fleetlight/session"):
        assert browser.get(path, cookie).status_code == 200, path


def test_a_session_says_who_is_logged_in(browser: Browser) -> None:
    shown = browser.get(SESSION, browser.log_in(BOB)).json()
    assert (shown["user"]["name"], shown["project"]["name"], shown["is_admin"]) == ("bob", "demo", False)
    assert "member" in shown["roles"]
    assert shown["project"] in shown["projects"]


def test_without_a_login_a_browser_is_told_how_and_does_not_ask_by_itself(browser: Browser) -> None:
    shown = browser.api.get(SESSION)
    assert shown.status_code == 200
    assert shown.json()["user"] is None
    assert "password" in shown.json()["logins"]
    refused = browser.post({"user": "ada", "password": "wrong"})
    assert refused.status_code == 401
    assert "password" in refused.json()["logins"]
    assert refused.headers["WWW-Authenticate"] == "Fleetlight-Session"


@pytest.mark.parametrize("body", [{"user": "ada", "password": "wrong"}, {"user": "eve", "password": "wrong"}], ids=str)
def test_wrong_logins_are_refused_alike_and_counted(browser: Browser, body: Mapping[str, str]) -> None:
    statuses = [browser.post(body).status_code for _ in range(MOST_FAILURES + 1)]
    assert statuses == [401] * MOST_FAILURES + [429]


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"user": "ada"},
        {"password": PASSWORD},
        {"user": "ada", "password": PASSWORD, "token": "t"},
        {"user": 1, "password": PASSWORD},
        {"user": "ada", "password": PASSWORD, "extra": 1},
        [],
        "text",
    ],
    ids=str,
)
def test_a_login_that_is_none_is_refused_without_its_secrets(browser: Browser, body: Any) -> None:
    response = browser.post(body)
    assert response.status_code == 400
    assert PASSWORD not in response.text


@pytest.mark.parametrize(
    ("method", "path"),
    [("POST", "/v2.1/servers"), ("DELETE", SESSION), ("POST", SESSION), ("PUT", "/2/instances/x/reboot")],
)
def test_what_changes_something_needs_the_header_besides(browser: Browser, method: str, path: str) -> None:
    cookie = browser.log_in(ADA)
    refused = browser.api.request(method, path, {"Cookie": cookie}, json={})
    assert refused.status_code == 403
    assert "Fleetlight-Request: console" in refused.text
    assert browser.api.request(method, path, {"Cookie": cookie, **CONSOLE}, json={}).status_code != 403


def test_a_login_in_a_header_needs_no_other_whatever_the_cookies_say(site: Site) -> None:
    headers = {"X-Auth-Token": site.log_in("bob"), "Cookie": "fleetlight_session=nonsense"}
    assert site.api.request("POST", "/v2.1/os-keypairs", headers, json={"keypair": {}}).status_code == 400


@pytest.mark.parametrize("value", ["nonsense", "a.b.c.d", "YWRh.e30.e30.e30", "\\303\\050", "%00", "=" * 20], ids=ascii)
def test_a_cookie_that_is_none_lets_nobody_in_and_goes(browser: Browser, value: str) -> None:
    cookie = f"fleetlight_session={value}"
    assert browser.get("/v2.1/servers", cookie).status_code == 401
    shown = browser.get(SESSION, cookie)
    assert shown.json()["user"] is None
    assert "Max-Age=0" in shown.headers["Set-Cookie"]


def test_logging_out_ends_the_login_wherever_its_cookie_is(browser: Browser) -> None:
    cookie, other = browser.log_in(ADA), browser.log_in(ADA)
    ended = browser.log_out(cookie)
    assert ended.status_code == 204
    assert "Max-Age=0" in ended.headers["Set-Cookie"]
    assert browser.get("/v2.1/servers", cookie).status_code == 401
    assert browser.get("/v2.1/servers", other).status_code == 200
    assert browser.log_out(cookie).status_code == 204


def test_a_login_ends_by_itself(browser: Browser, time: Time) -> None:
    cookie = browser.log_in(ADA)
    time.pass_s(LIFETIME_S - 1)
    assert browser.get(SESSION, cookie).json()["user"]["name"] == "ada"
    time.pass_s(2)
    assert browser.get(SESSION, cookie).json()["user"] is None
    # At the challenge of a password a browser would show a form of its own.
    assert "Basic" not in browser.get("/v2.1/servers", cookie).headers["WWW-Authenticate"]


def test_a_new_password_and_new_roles_count_at_once_with_basic(fleet: ComputeFleet, htpasswd: Path) -> None:
    browser = Browser(fleet.api(identity=BasicIdentity(htpasswd)))
    cookie = browser.log_in(ADA)
    hashed = htpasswd.read_text().splitlines()[0].split(":")[1]
    htpasswd.write_text(f"ada:{hashed}:{DEMO}:reader\n")
    assert browser.get("/fleetlight/capacity", cookie).status_code == 403
    write_htpasswd(htpasswd)
    assert browser.get("/fleetlight/capacity", cookie).status_code == 401


def test_a_session_of_basic_counts_in_every_process_that_reads_the_file(fleet: ComputeFleet, htpasswd: Path) -> None:
    cookie = Browser(fleet.api(identity=BasicIdentity(htpasswd))).log_in(ADA)
    shown = Browser(fleet.api(identity=BasicIdentity(htpasswd))).get(SESSION, cookie).json()
    assert shown["user"]["name"] == "ada"


def test_a_session_of_basic_that_was_ended_is_over_at_every_process_and_after_a_restart(
    fleet: ComputeFleet, htpasswd: Path
) -> None:
    first, second = (Browser(fleet.api(identity=BasicIdentity(htpasswd))) for _ in range(2))
    cookie, other = first.log_in(ADA), first.log_in(ADA)
    assert second.get("/v2.1/servers", cookie).status_code == 200
    first.log_out(cookie)
    restarted = Browser(fleet.api(identity=BasicIdentity(htpasswd)))
    for browser in (first, second, restarted):
        assert browser.get("/v2.1/servers", cookie).status_code == 401
        assert browser.get("/v2.1/servers", other).status_code == 200


def test_a_user_who_logs_out_without_end_brings_back_no_session(
    fleet: ComputeFleet, htpasswd: Path, time: Time
) -> None:
    browser = Browser(fleet.api(identity=BasicIdentity(htpasswd, LIFETIME_S, time)))
    of_bob, open_of_bob = browser.log_in(BOB), browser.log_in(BOB)
    browser.log_out(of_bob)
    ended = [browser.log_in(ADA) for _ in range(MOST_OF_USER + 5)]
    forgotten = browser.log_in(ADA)
    for cookie in ended:
        browser.log_out(cookie)
    time.pass_s(1)
    cookie = browser.log_in(ADA)
    for over in (*ended, of_bob):
        assert browser.get(SESSION, over).json()["user"] is None
    assert browser.get(SESSION, forgotten).json()["user"] is None, "those that were open went with them"
    for good in (cookie, open_of_bob):
        assert browser.get(SESSION, good).json()["user"] is not None


def test_sessions_that_were_seen_to_count_go_on_while_the_fleet_database_is_away(
    fleet: ComputeFleet, htpasswd: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    browser = Browser(fleet.api(identity=BasicIdentity(htpasswd)))
    seen, ended = browser.log_in(ADA), browser.log_in(ADA)
    browser.log_out(ended)
    unseen = Browser(fleet.api(identity=BasicIdentity(htpasswd))).log_in(ADA)

    def fail(*_: object) -> bool:
        raise FleetUnreachableError("gone")

    monkeypatch.setattr(EndedSessions, "has", fail)
    assert browser.get(SESSION, seen).json()["user"]["name"] == "ada"
    for cookie in (ended, unseen):
        assert browser.get(SESSION, cookie).status_code == 503


def test_no_user_of_basic_gets_into_another_project(fleet: ComputeFleet, htpasswd: Path) -> None:
    browser = Browser(fleet.api(identity=BasicIdentity(htpasswd)))
    assert browser.post({**ADA, "project": OTHER}).status_code == 401


def test_a_role_that_is_taken_away_counts_at_once_with_tokens(site: Site) -> None:
    browser = Browser(site.api)
    cookie = browser.log_in(ADA)
    site.users.change(lambda now: now.without_role(now.users["id-ada"], now.projects[DEMO], "admin"))
    assert browser.get(SESSION, cookie).json()["user"] is None


@pytest.mark.parametrize("project", ["other", OTHER])
def test_a_session_changes_to_another_project_of_its_user(site: Site, project: str) -> None:
    browser = Browser(site.api)
    cookie = browser.log_in(ADA)
    changed = browser.post({"project": project}, Cookie=cookie)
    assert changed.json()["project"] == {"id": OTHER, "name": "other"}
    other = cookie_of(changed)
    assert [server["name"] for server in browser.get("/v2.1/servers", other).json()["servers"]] == ["theirs"]
    # It is the same login, so one end is the end of both.
    browser.log_out(other)
    assert browser.get(SESSION, cookie).json()["user"] is None


def test_no_session_changes_to_a_project_without_a_role(site: Site) -> None:
    browser = Browser(site.api)
    cookie = browser.log_in(BOB)
    assert browser.post({"project": "other"}, Cookie=cookie).status_code == 401
    assert browser.post({**BOB, "project": "other"}).status_code == 401
    assert browser.post({"project": "demo"}).status_code == 401


def test_a_user_without_any_role_is_logged_in_to_no_project(site: Site) -> None:
    shown = Browser(site.api).post({"user": "zoe", "password": PASSWORD}).json()
    assert (shown["project"], shown["projects"], shown["roles"]) == (None, [], [])


def test_a_pasted_token_counts_on_when_its_session_ends(site: Site) -> None:
    browser, token = Browser(site.api), site.log_in("ada")
    cookie = browser.log_in({"token": token})
    browser.log_out(cookie)
    assert browser.get(SESSION, cookie).json()["user"] is None
    assert site.get("/v2.1/servers", token).status_code == 200


def test_a_session_dies_with_the_token_that_it_was_begun_with(site: Site) -> None:
    browser, token = Browser(site.api), site.log_in("ada")
    cookie = browser.log_in({"token": token})
    assert site.about("DELETE", token).status_code == 204
    assert browser.get(SESSION, cookie).json()["user"] is None


def test_a_token_of_an_application_credential_is_for_its_project_alone(site: Site) -> None:
    browser, made = Browser(site.api), site.new_credential("ada")
    token = site.use_credential(made["id"], made["secret"]).headers["X-Subject-Token"]
    cookie = browser.log_in({"token": token})
    assert [each["name"] for each in browser.get(SESSION, cookie).json()["projects"]] == ["demo"]
    assert browser.post({"project": "other"}, Cookie=cookie).status_code == 401


def link_of(site: Site, time: Time, lifetime_s: int = 600) -> str:
    """The token of a login link of ada."""
    directory = site.users.read()
    logins = Logins(lifetime_s=lifetime_s, clock=time)
    link = logins.token_for(directory.users["id-ada"], directory.projects[DEMO], is_link=True)
    return sign(link, directory.signing_key)


def test_a_login_link_is_good_for_one_session_and_for_no_request(site: Site, time: Time) -> None:
    browser, link = Browser(site.api), link_of(site, time)
    assert site.get("/v2.1/servers", link).status_code == 401
    begun = site.api.at_once(5, "POST", SESSION, CONSOLE, json={"link": link})
    assert sorted(response.status_code for response in begun) == [200, 401, 401, 401, 401]
    (cookie,) = (cookie_of(response) for response in begun if response.status_code == 200)
    time.pass_s(1200)
    assert browser.get(SESSION, cookie).json()["user"]["name"] == "ada"


def test_a_token_is_no_login_link_and_a_link_is_no_token(site: Site, time: Time) -> None:
    browser, link = Browser(site.api), link_of(site, time)
    token = browser.log_in(ADA).partition("=")[2]
    assert browser.post({"link": token}).status_code == 401
    assert browser.post({"token": link}).status_code == 401


def test_refused_login_takes_no_session_away(site: Site) -> None:
    browser = Browser(site.api)
    cookie = browser.log_in(ADA)
    for body in ({"link": "garbage"}, {"token": "garbage"}, {"user": "ada", "password": "wrong"}):
        refused = site.api.request("POST", SESSION, {**CONSOLE, "Cookie": cookie}, json=body)
        assert (refused.status_code, "Set-Cookie" in refused.headers) == (401, False)
    gone = site.api.request("POST", SESSION, {**CONSOLE, "Cookie": "fleetlight_session=x"}, json={"project": "demo"})
    assert (gone.status_code, "Set-Cookie" in gone.headers) == (401, True)


def test_a_login_link_ends_by_itself(site: Site, time: Time) -> None:
    link = link_of(site, time)
    time.pass_s(602)
    assert Browser(site.api).post({"link": link}).status_code == 401


def test_where_every_caller_is_let_in_everybody_is_logged_in(api: Api) -> None:
    shown = api.get(SESSION).json()
    assert (shown["logins"], shown["is_admin"], shown["project"]["name"]) == ([], True, "demo")
    assert api.request("POST", SESSION, CONSOLE, json=ADA).status_code == 400
    assert api.request("DELETE", SESSION, CONSOLE).status_code == 204
