"""Logins of browsers at an OpenID provider: what begins a session, what does not, and when it ends."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from http.cookies import SimpleCookie
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import httpx
import pytest
from joserfc.jwk import OctKey
from pydantic import SecretStr, ValidationError

from fleetlight.api.http.errors import IdentityConfigurationError, IdentityServiceError
from fleetlight.api.identity.basic import BasicIdentity
from fleetlight.api.identity.browser import BrowserIdentity
from fleetlight.api.identity.none import NoIdentity
from fleetlight.api.identity.openid.provider import OpenIdProvider
from fleetlight.api.identity.openid.strategy import CALLBACK, OpenIdIdentity
from fleetlight.api.identity.opening import open_identity
from fleetlight.api.identity.tokens.strategy import TokenIdentity
from fleetlight.api.settings import ApiSettings, IdentitySettings, KeystoneSettings, OpenIdSettings
from tests.contract.compute_fleet import Api, ComputeFleet
from tests.contract.identity_site import LIFETIME_S, Time, with_two_projects
from tests.contract.streams import stream
from tests.contract.test_browser_session import CONSOLE, SESSION, write_htpasswd
from tests.support.fleets.identity import DEMO, OTHER, PASSWORD, write_directory
from tests.support.played.played_openid import CLIENT, NEW_KEY, SECRET, PlayedOpenId, played_openid

pytestmark = pytest.mark.no_rerun

LOGIN = "/fleetlight/session/openid"
PUBLIC = "https://fleet.test"
KEY = "shared by all processes"
API = ApiSettings(compute_link_prefix=PUBLIC)


@pytest.fixture(scope="module")
def fleet(fleet: ComputeFleet) -> ComputeFleet:
    return with_two_projects(fleet)


@pytest.fixture
def provider() -> Iterator[PlayedOpenId]:
    with played_openid() as provider:
        provider.claims["groups"] = ["staff", f"{DEMO}:member"]
        yield provider


def openid(provider: PlayedOpenId, programs: BrowserIdentity, time: Time, **changes: Any) -> OpenIdIdentity:
    settings = OpenIdSettings(
        **{
            "issuer": provider.issuer,
            "client_id": CLIENT,
            "client_secret": SecretStr(SECRET),
            "name": "Example",
            "administrator": "operators",
            **changes,
        }
    )
    return OpenIdIdentity(
        programs,
        OpenIdProvider(settings, PUBLIC + CALLBACK, time),
        settings,
        key=KEY,
        lifetime_s=LIFETIME_S,
        clock=time,
    )


@dataclass
class Browser:
    """A browser at the API, and the user at the provider. kept: what it keeps while it is away."""

    api: Api
    provider: PlayedOpenId
    kept: str = ""

    def go(self, query: str = "") -> str:
        """The page of the provider that a login leads to."""
        response = self.api.get(LOGIN + query)
        assert response.status_code == 303, response.text
        self.kept = cookies_of(response)["fleetlight_openid"]
        return response.headers["Location"]

    def come_back(self, answer: Mapping[str, str], kept: str | None = None) -> httpx.Response:
        kept = self.kept if kept is None else kept
        return self.api.get(f"{CALLBACK}?{urlencode(answer)}", {"Cookie": f"fleetlight_openid={kept}"})

    def try_to_log_in(self) -> httpx.Response:
        return self.come_back(self.provider.let_in(self.go()))

    def log_in(self) -> str:
        """The cookie of a login that must be a success."""
        response = self.try_to_log_in()
        assert response.status_code == 303, response.text
        return f"__Host-fleetlight_session={cookies_of(response)['__Host-fleetlight_session']}"

    def session(self, cookie: str) -> Mapping[str, Any]:
        document: Mapping[str, Any] = self.api.get(SESSION, {"Cookie": cookie}).json()
        return document


def cookies_of(response: httpx.Response) -> dict[str, str]:
    return {
        morsel.key: morsel.value
        for header in response.headers.get_list("Set-Cookie")
        for morsel in SimpleCookie(header).values()
    }


@pytest.fixture
def htpasswd(tmp_path: Path) -> BasicIdentity:
    write_htpasswd(tmp_path / "htpasswd")
    return BasicIdentity(tmp_path / "htpasswd")


@pytest.fixture
def browser(fleet: ComputeFleet, provider: PlayedOpenId, htpasswd: BasicIdentity, time: Time) -> Browser:
    return Browser(fleet.api(identity=openid(provider, htpasswd, time), settings=API), provider)


def refused(response: httpx.Response, status: int, words: str) -> None:
    """A page says so in plain words, and no session has begun."""
    assert response.status_code == status, response.text
    assert response.headers["Content-Type"].startswith("text/html")
    assert "default-src 'none'" in response.headers["Content-Security-Policy"]
    assert words in response.text
    assert not cookies_of(response).get("__Host-fleetlight_session")


def test_a_login_at_the_provider_is_a_session_for_every_face(browser: Browser) -> None:
    cookie = browser.log_in()
    shown = browser.session(cookie)
    assert (shown["user"]["name"], shown["project"], shown["is_admin"]) == ("ada", {"id": DEMO, "name": DEMO}, False)
    assert "member" in shown["roles"]
    for path in ("/v2.1/servers", "/fleetlight/query/fields", "/2/instances"):
        assert browser.api.get(path, {"Cookie": cookie}).status_code == 200, path
    names = [each["name"] for each in browser.api.get("/v2.1/servers", {"Cookie": cookie}).json()["servers"]]
    assert names == ["mine"]


def test_the_session_names_the_provider_and_programs_log_in_as_ever(browser: Browser) -> None:
    shown = browser.api.get(SESSION).json()
    assert (shown["user"], shown["logins"], shown["openid"]) == (None, ["password", "openid"], {"name": "Example"})
    by_password = browser.api.request("POST", SESSION, CONSOLE, json={"user": "ada", "password": PASSWORD})
    assert (by_password.status_code, by_password.json()["logout_page"]) == (200, None)
    assert browser.api.request("GET", "/v2.1/servers", {"X-Auth-Token": "openid.forged"}).status_code == 401


def test_the_cookies_are_for_no_script_and_the_session_for_no_other_site(browser: Browser) -> None:
    begun = browser.api.get(LOGIN, {"Host": "evil.test"})
    away = begun.headers["Set-Cookie"].lower()
    assert {"httponly", "samesite=lax", "secure", "max-age=600", f"path={CALLBACK}"} <= set(away.split("; "))
    # Where the provider leads back to is configured, whatever the browser's request says.
    assert parse_qs(urlsplit(begun.headers["Location"]).query)["redirect_uri"] == [PUBLIC + CALLBACK]
    finished = browser.try_to_log_in()
    session, gone = finished.headers.get_list("Set-Cookie")
    assert {"HttpOnly", "SameSite=strict", "Secure", "Path=/"} <= set(session.split("; "))
    assert "Max-Age=0" in gone
    assert finished.headers["Cache-Control"] == "no-store"


@pytest.mark.parametrize(
    ("wanted", "shown"),
    [
        ("/console/nodes?filter=x", "/console/nodes?filter=x"),
        ("https://evil.test/console/", "/console/"),
        ("//evil.test/console/", "/console/"),
        ("/console/../../v2.1", "/console/../../v2.1"),
        ("/consoles", "/console/"),
        ("/console/" + "x" * 1000, "/console/"),
        ("/console/\r\nSet-Cookie: a=b", "/console/%0D%0ASet-Cookie:%20a=b"),
    ],
)
def test_a_login_leads_to_pages_of_the_console_alone(browser: Browser, wanted: str, shown: str) -> None:
    page = browser.go(f"?{urlencode({'next': wanted})}")
    assert browser.come_back(browser.provider.let_in(page)).headers["Location"] == PUBLIC + shown


def test_an_answer_to_no_login_of_this_browser_is_refused_before_the_provider_is_asked(browser: Browser) -> None:
    answer = browser.provider.let_in(browser.go())
    asked = list(browser.provider.asked)
    mine, _ = browser.kept, browser.go()
    for wrong, kept in [
        ({**answer, "state": "other"}, mine),
        ({"code": answer["code"]}, mine),
        (answer, ""),
        (answer, browser.kept),
        (answer, mine[:-4] + "AAAA"),
        ({**answer, "state": "é"}, mine),
    ]:
        refused(browser.come_back(wrong, kept), 400, "Log in again")
    assert browser.provider.asked == asked


def test_a_login_has_to_be_finished_within_ten_minutes(browser: Browser, time: Time) -> None:
    answer = browser.provider.let_in(browser.go())
    time.pass_s(601)
    refused(browser.come_back(answer), 400, "more than ten minutes ago")


def test_a_session_is_no_login_under_way_and_the_other_way_round(browser: Browser) -> None:
    session = browser.log_in().partition("openid.")[2]
    refused(browser.come_back({"code": "x", "state": "x"}, session), 400, "Log in again")
    browser.go()
    assert browser.session(f"__Host-fleetlight_session=openid.{browser.kept}")["user"] is None


def test_a_code_is_good_for_one_session(browser: Browser) -> None:
    answer = browser.provider.let_in(browser.go())
    assert browser.come_back(answer).status_code == 303
    refused(browser.come_back(answer), 401, "did not succeed")


def test_wrong_answers_of_one_address_are_counted(
    fleet: ComputeFleet, provider: PlayedOpenId, htpasswd: BasicIdentity, time: Time, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fleetlight.api.limits.login_limit.MOST_FAILURES_OF_ADDRESS", 2)
    browser = Browser(fleet.api(identity=openid(provider, htpasswd, time), settings=API), provider)
    for status in (401, 401, 429):
        answer = browser.provider.let_in(browser.go())
        assert browser.come_back({**answer, "code": "guessed"}).status_code == status
    assert provider.asked.count("/token") == 2
    refused(browser.try_to_log_in(), 429, "Too many failed logins")


def test_a_code_of_another_login_is_refused_by_pkce(browser: Browser) -> None:
    stolen = browser.provider.let_in(browser.go())["code"]
    own = browser.provider.let_in(browser.go())
    refused(browser.come_back({**own, "code": stolen}), 401, "did not succeed")


@pytest.mark.parametrize(
    "claims",
    [
        {"nonce": "of another login"},
        {"nonce": None},
        {"nonce": "x", "nonce_supported": False},
        {"iss": "https://evil.test"},
        {"iss": None},
        {"aud": "another-client"},
        {"aud": ["another-client"], "azp": CLIENT},
        {"aud": [CLIENT, "another-client"], "azp": "another-client"},
        {"aud": None},
        {"exp": 1_000_000_000},
        {"exp": "soon"},
        {"exp": None},
        {"sub": None},
        {"sub": ""},
        {"sub": ["1001"]},
        {"at_hash": "AAAA"},
    ],
    ids=str,
)
def test_a_token_that_is_not_for_this_login_is_refused(browser: Browser, claims: Mapping[str, Any]) -> None:
    browser.provider.claims |= claims
    refused(browser.try_to_log_in(), 401, "The login at Example did not succeed")


_DEEP = b"[" * 200_000
_NONSENSE = [(200, b"[]"), (200, b"null"), (200, b'"text"'), (302, b""), (200, _DEEP), (200, b"\xff{"), (200, b"{}")]


@pytest.mark.parametrize("answer", _NONSENSE, ids=lambda answer: str(answer)[:20])
@pytest.mark.parametrize("path", ["/.well-known/openid-configuration", "/token", "/keys"])
def test_a_provider_that_answers_nonsense_is_a_page_and_no_failure(
    browser: Browser, path: str, answer: tuple[int, bytes]
) -> None:
    browser.provider.nonsense[path] = answer
    if path == "/.well-known/openid-configuration":
        refused(browser.api.get(LOGIN), 503, "Try again")
    else:
        refused(browser.try_to_log_in(), 503, "Try again")
    browser.provider.nonsense.clear()
    assert browser.log_in()


@pytest.mark.parametrize(
    "claims",
    [
        {"exp": 1e308},
        {"exp": 10**400},
        {"exp": 2**62},
        {"exp": "tomorrow"},
        {"iat": 1e308},
        {"nonce": ["x"]},
        {"aud": {"a": "b"}},
    ],
    ids=str,
)
def test_a_token_of_nonsense_is_refused(browser: Browser, claims: Mapping[str, Any]) -> None:
    browser.provider.claims |= claims
    refused(browser.try_to_log_in(), 401, "did not succeed")


def test_nonsense_for_the_end_of_a_login_leads_to_the_console(browser: Browser) -> None:
    browser.provider.metadata["end_session_endpoint"] = "http://[::"
    cookie = browser.log_in()
    ended = browser.api.get(browser.session(cookie)["logout_page"], {"Cookie": cookie})
    assert ended.status_code == 303, ended.text


def test_a_token_that_the_provider_has_not_signed_is_refused(browser: Browser) -> None:
    provider = browser.provider
    provider.shows_key = False
    refused(browser.try_to_log_in(), 401, "did not succeed")
    provider.algorithm, provider.key = "none", _as_if_shown(SECRET.ljust(32, "!").encode())
    refused(browser.try_to_log_in(), 401, "did not succeed")
    # What it shares with this client, another client of the same password could have signed.
    provider.algorithm = "HS256"
    refused(browser.try_to_log_in(), 401, "did not succeed")


def _as_if_shown(secret: bytes) -> OctKey:
    """A key that has the name of one that the provider shows."""
    return OctKey.import_key(secret, {"kid": "other"})


def test_what_the_provider_says_of_itself_is_kept_and_a_new_key_is_found(browser: Browser) -> None:
    browser.log_in()
    browser.log_in()
    assert sorted(browser.provider.asked) == ["/.well-known/openid-configuration", "/keys", "/token", "/token"]
    browser.provider.key = NEW_KEY
    browser.log_in()
    assert browser.provider.asked.count("/keys") == 2


@pytest.mark.parametrize(
    "metadata",
    [
        {"issuer": "https://evil.test"},
        {"token_endpoint": "http://evil.test/token"},
        {"authorization_endpoint": "javascript:alert(1)"},
        {"jwks_uri": None},
    ],
    ids=str,
)
def test_a_document_that_is_not_that_of_the_provider_is_not_followed(
    browser: Browser, metadata: Mapping[str, Any]
) -> None:
    browser.provider.metadata |= metadata
    refused(browser.api.get(LOGIN), 503, "Example cannot be reached")


def test_while_the_provider_is_down_a_page_says_so_and_sessions_go_on(browser: Browser) -> None:
    cookie, answer = browser.log_in(), browser.provider.let_in(browser.go())
    browser.provider.status = 500
    refused(browser.come_back(answer), 503, "Example cannot be reached")
    assert browser.session(cookie)["user"]["name"] == "ada"
    away = browser.api.get(LOGIN + "/end")
    assert away.headers["Location"].startswith(f"{browser.provider.issuer}/logout")


def test_a_provider_that_is_not_there_is_a_page_and_no_failure(
    fleet: ComputeFleet, htpasswd: BasicIdentity, time: Time
) -> None:
    with played_openid() as gone:
        pass
    api = fleet.api(identity=openid(gone, htpasswd, time), settings=API)
    refused(api.get(LOGIN), 503, "Example cannot be reached")
    # The session has ended here; there is no other to end.
    assert api.get(LOGIN + "/end").headers["Location"] == f"{PUBLIC}/console/"


def test_a_provider_that_never_comes_to_an_end_is_not_waited_for(browser: Browser, time: Time) -> None:
    settings = OpenIdSettings(issuer=browser.provider.issuer, client_id=CLIENT).model_copy(update={"timeout_s": 0.1})
    slow = OpenIdProvider(settings, PUBLIC + CALLBACK, time)
    browser.provider.is_slow = True
    with pytest.raises(IdentityServiceError) as caught:
        browser.api.run(slow.begin("/console/"))
    assert "has not answered within 0.3" in caught.value.reason


@pytest.mark.parametrize(
    ("answer", "status", "words"),
    [
        ({"error": "access_denied"}, 401, "Example did not let you in, or you cancelled"),
        ({"error": "access_denied", "state": ""}, 401, "Example did not let you in, or you cancelled"),
        ({"error": "temporarily_unavailable"}, 503, "Example cannot be reached"),
        ({"error": "<script>alert(1)</script>", "error_description": "<b>call us</b>"}, 401, "Tell an administrator"),
        ({"code": ""}, 401, "Tell an administrator"),
        ({"code": "x", "iss": "https://evil.test"}, 401, "Tell an administrator"),
    ],
    ids=str,
)
def test_a_refusal_of_the_provider_is_said_in_plain_words(
    browser: Browser, answer: Mapping[str, str], status: int, words: str
) -> None:
    state = browser.provider.let_in(browser.go())["state"]
    response = browser.come_back({"state": state, **answer})
    refused(response, status, words)
    assert "<script>alert" not in response.text
    assert "call us" not in response.text


def test_a_public_client_logs_in_without_a_password(
    fleet: ComputeFleet, provider: PlayedOpenId, htpasswd: BasicIdentity, time: Time
) -> None:
    provider.secret = None
    identity = openid(provider, htpasswd, time, client_secret=None)
    browser = Browser(fleet.api(identity=identity, settings=API), provider)
    assert browser.session(browser.log_in())["user"]["name"] == "ada"


def test_a_wrong_password_of_the_client_is_for_the_operator(
    fleet: ComputeFleet, provider: PlayedOpenId, htpasswd: BasicIdentity, time: Time
) -> None:
    identity = openid(provider, htpasswd, time, client_secret=SecretStr("wrong"))
    browser = Browser(fleet.api(identity=identity, settings=API), provider)
    refused(browser.try_to_log_in(), 503, "Example cannot be reached")


@pytest.mark.parametrize("groups", [None, [], ["staff"], "staff", {"demo": "member"}, [7, ":member", "demo:owner"]])
def test_a_user_without_any_project_is_known_and_not_let_in(browser: Browser, groups: object) -> None:
    browser.provider.claims |= {"groups": groups, "preferred_username": "<ada>"}
    refused(browser.try_to_log_in(), 403, "Example knows you as &lt;ada&gt;, but gives you a role in no project here")


def test_more_projects_than_a_cookie_holds_are_refused_in_plain_words(browser: Browser) -> None:
    browser.provider.claims["groups"] = [f"{'x' * 32}{number}:member" for number in range(100)]
    refused(browser.try_to_log_in(), 403, "You have roles in 100 projects, more than a login can hold")


def test_an_administrator_needs_no_project_and_sees_the_whole_fleet(browser: Browser) -> None:
    browser.provider.claims["groups"] = "operators"
    cookie = browser.log_in()
    shown = browser.session(cookie)
    assert (shown["is_admin"], shown["project"], shown["projects"]) == (True, None, [])
    for path in ("/v2.1/servers?all_tenants=1", "/fleetlight/query?what=instance&fields=name&all_projects=1"):
        listed = browser.api.get(path, {"Cookie": cookie})
        assert {"mine", "theirs"} <= {name for name in ("mine", "theirs") if f'"{name}"' in listed.text}, listed.text


def test_a_subscription_whose_owner_cannot_be_looked_up_is_refused_with_the_reason(browser: Browser) -> None:
    login = {"Cookie": browser.log_in(), **CONSOLE}
    body = {"name": "web", "url": "https://example.org/hook"}
    answer = browser.api.request("POST", "/fleetlight/subscriptions", login, json=body)
    assert answer.status_code == 400
    assert "your OpenID provider tells them when you log in" in answer.json()["badRequest"]["message"]
    assert browser.api.get("/fleetlight/subscriptions", {"Cookie": login["Cookie"]}).json()["subscriptions"] == []


def test_a_session_changes_to_projects_of_its_user_alone(browser: Browser) -> None:
    browser.provider.claims["groups"] = [f"{DEMO}:reader", f"{DEMO}:manager", f"{OTHER}:reader"]
    cookie = browser.log_in()

    def change(project: str) -> httpx.Response:
        return browser.api.request("POST", SESSION, {**CONSOLE, "Cookie": cookie}, json={"project": project})

    changed = change(OTHER if browser.session(cookie)["project"]["id"] == DEMO else DEMO)
    other = f"__Host-fleetlight_session={cookies_of(changed)['__Host-fleetlight_session']}"
    roles = {browser.session(each)["project"]["id"]: browser.session(each)["roles"] for each in (cookie, other)}
    assert roles == {DEMO: ["manager", "member", "reader"], OTHER: ["reader"]}
    assert change("secret").status_code == 401
    # It is one login, so one end is the end of both.
    browser.api.request("DELETE", SESSION, {**CONSOLE, "Cookie": other})
    assert browser.session(cookie)["user"] is None


@pytest.mark.parametrize("asked_s", [LIFETIME_S + 3600, 300])
def test_a_session_ends_with_the_token_of_the_provider_or_sooner(browser: Browser, time: Time, asked_s: int) -> None:
    browser.provider.claims["exp"] = time() // 1_000_000 + asked_s
    cookie = browser.log_in()
    time.pass_s(min(asked_s, LIFETIME_S) - 2)
    assert browser.session(cookie)["user"]["name"] == "ada"
    time.pass_s(4)
    assert browser.session(cookie)["user"] is None
    assert browser.api.get("/v2.1/servers", {"Cookie": cookie}).status_code == 401


def test_a_stream_ends_with_the_session_that_opened_it(
    browser: Browser, time: Time, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fleetlight.listing.watches.watch._HEARTBEAT_S", 0.05)
    cookie = {"Cookie": browser.log_in()}

    async def scenario() -> None:
        async with stream(browser.api, "", cookie) as watch:
            await watch.next()
            time.pass_s(LIFETIME_S + 1)
            event = await watch.next()
            assert (event.name, "not accepted any more" in event.data["reason"]) == ("ended", True)

    browser.api.run(scenario())


def test_what_the_addresses_of_a_login_answer_is_documented(browser: Browser) -> None:
    paths = browser.api.get("/openapi.json").json()["paths"]
    assert {LOGIN, CALLBACK, f"{LOGIN}/end"} <= paths.keys()
    assert paths[CALLBACK]["get"]["responses"].keys() >= {"303", "400", "401", "403", "429", "503"}


def test_a_login_that_was_ended_is_over_at_every_process_and_after_a_restart(
    fleet: ComputeFleet, browser: Browser, htpasswd: BasicIdentity, time: Time
) -> None:
    def another() -> Browser:
        return Browser(fleet.api(identity=openid(browser.provider, htpasswd, time), settings=API), browser.provider)

    second, cookie = another(), browser.log_in()
    assert second.session(cookie)["user"] is not None
    browser.api.request("DELETE", SESSION, {**CONSOLE, "Cookie": cookie})
    for process in (browser, second, another()):
        assert process.session(cookie)["user"] is None
    assert second.session(browser.log_in())["user"] is not None


def test_logging_out_ends_every_copy_and_leads_to_the_end_at_the_provider(browser: Browser) -> None:
    cookie = browser.log_in()
    page = browser.session(cookie)["logout_page"]
    assert browser.api.request("DELETE", SESSION, {**CONSOLE, "Cookie": cookie}).status_code == 204
    assert browser.session(cookie)["user"] is None
    ending = urlsplit(browser.api.get(page).headers["Location"])
    assert f"{ending.scheme}://{ending.netloc}{ending.path}" == f"{browser.provider.issuer}/logout"
    assert parse_qs(ending.query) == {"client_id": [CLIENT], "post_logout_redirect_uri": [f"{PUBLIC}/console/"]}


def test_another_process_finishes_a_login_and_takes_its_session(
    browser: Browser, fleet: ComputeFleet, htpasswd: BasicIdentity, time: Time
) -> None:
    answer = browser.provider.let_in(browser.go())
    other = Browser(
        fleet.api(identity=openid(browser.provider, htpasswd, time), settings=API), browser.provider, browser.kept
    )
    session = cookies_of(other.come_back(answer))["__Host-fleetlight_session"]
    assert browser.session(f"__Host-fleetlight_session={session}")["user"]["name"] == "ada"


def test_projects_of_our_own_identity_service_are_named_by_id_or_name(
    fleet: ComputeFleet, provider: PlayedOpenId, tmp_path: Path, time: Time
) -> None:
    users = write_directory(tmp_path / "identity.json")
    programs = TokenIdentity(users.path, region="RegionOne", lifetime_s=LIFETIME_S)
    browser = Browser(fleet.api(identity=openid(provider, programs, time), settings=API), provider)
    provider.claims["groups"] = ["other:member", f"{DEMO}:reader", "unknown:admin"]
    shown = browser.session(browser.log_in())
    assert shown["projects"] == [{"id": DEMO, "name": "demo"}, {"id": OTHER, "name": "other"}]
    assert shown["logins"] == ["password", "token", "openid"]
    # What the service itself serves is there as ever.
    assert browser.api.get("/identity/v3").status_code == 200


def test_users_of_two_providers_or_with_the_name_of_one_of_ours_are_not_the_same(browser: Browser) -> None:
    browser.provider.claims["sub"] = "ada"
    assert browser.session(browser.log_in())["user"]["id"] not in {"ada", "1001"}


def test_what_is_configured_wrongly_is_refused_at_the_start(
    provider: PlayedOpenId, htpasswd: BasicIdentity, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    settings = OpenIdSettings(issuer=provider.issuer, client_id=CLIENT)
    identity = IdentitySettings(htpasswd_file=tmp_path / "htpasswd")

    def refusal(**api: Any) -> str:
        with pytest.raises(IdentityConfigurationError) as caught:
            open_identity(ApiSettings(**api), identity, KeystoneSettings(), settings)
        return str(caught.value)

    whole = {"auth": "basic", "compute_link_prefix": PUBLIC, "watch_key": SecretStr("x" * 16)}
    assert "api.auth other than none" in refusal(**{**whole, "auth": "none"})
    assert "FLEETLIGHT_API_COMPUTE_LINK_PREFIX" in refusal(**{**whole, "compute_link_prefix": None})
    monkeypatch.setitem(__import__("sys").modules, "fleetlight.api.identity.openid.provider", None)
    assert "install fleetlight[openid]" in refusal(**whole)
    assert isinstance(open_identity(ApiSettings(), identity, KeystoneSettings()), NoIdentity)


@pytest.mark.parametrize(
    "values",
    [
        {"issuer": "https://id.test"},
        {"client_id": CLIENT},
        {"issuer": "http://id.test", "client_id": CLIENT},
        {"issuer": "id.test", "client_id": CLIENT},
        {"issuer": "https://id.test?a=b", "client_id": CLIENT},
        {"issuer": "https://id.test", "client_id": CLIENT, "scopes": ("profile",)},
    ],
    ids=str,
)
def test_half_a_provider_is_refused(values: Mapping[str, Any]) -> None:
    with pytest.raises(ValidationError, match=r"openid|client_id|https"):
        OpenIdSettings(**values)
