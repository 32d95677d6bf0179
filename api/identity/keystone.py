"""Strategy `keystone`: tokens of a Keystone, checked by Keystone's own middleware (the extra `keystone`).

The WSGI middleware gets only the token; the strategy reads the caller from the environment that the middleware passes
on, which is its documented interface. Its cache keeps most requests local. It does not get the request, so it refuses
application credentials that are restricted to some requests.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any
from wsgiref.util import setup_testing_defaults

from keystoneauth1.exceptions import ClientException
from keystoneauth1.exceptions.http import HTTPClientError
from keystoneauth1.session import Session
from keystonemiddleware.auth_token import AuthProtocol

from fleetlight.api.caller import Caller
from fleetlight.api.http.connection import UNKNOWN, ClientConnection
from fleetlight.api.http.errors import BadRequestError, IdentityServiceError, UnauthorizedError
from fleetlight.api.identity.browser import ENDED_CHALLENGE, TOKEN_HEADER, Account, BrowserLogin, Named
from fleetlight.api.identity.refusals import telling_of_refusal
from fleetlight.api.limits.login_limit import LoginLimit
from fleetlight.api.settings import KeystoneSettings
from fleetlight.cells.daemon_threads import DaemonThreads

_SUBJECT = "X-Subject-Token"


class KeystoneSessions:
    """Sessions as tokens of Keystone. settings: with `auth_url`; their domains apply to names of users and projects."""

    def __init__(self, settings: KeystoneSettings) -> None:
        self._root = f"{settings.auth_url}".removesuffix("/v3") + "/v3"
        self._user_domain = {"name": settings.user_domain_name}
        self._project_domain = {"name": settings.project_domain_name}
        ca_file = None if settings.ca_file is None else str(settings.ca_file)
        self._http = Session(verify=ca_file or True, timeout=settings.timeout_s)

    def with_password(self, name: str, password: str, project: str | None) -> str:
        """Get a token for the project of this name; without one, for the user's default project, or another."""
        user = {"name": name, "domain": self._user_domain, "password": password}
        identity = {"methods": ["password"], "password": {"user": user}}
        scope = None if project is None else {"project": {"name": project, "domain": self._project_domain}}
        token, shown = self._new_token(identity, scope)
        projects = [] if "project" in shown else self._projects(token)
        return self.with_token(token, projects[0].id) if projects else token

    def with_token(self, token: str, project: str) -> str:
        """Get a token of the user of `token` for another project, by id or name. Raises UnauthorizedError."""
        found = next((each for each in self._projects(token) if project in {each.id, each.name}), None)
        if found is None:
            raise UnauthorizedError("no role in the project", ENDED_CHALLENGE)
        return self._new_token({"methods": ["token"], "token": {"id": token}}, {"project": {"id": found.id}})[0]

    def end(self, token: str) -> None:
        try:
            self._ask("DELETE", "/auth/tokens", token, {_SUBJECT: token})
        except UnauthorizedError:
            return  # the token has expired already

    def account(self, token: str) -> Account:
        shown = self._ask("GET", "/auth/tokens?nocatalog", token, {_SUBJECT: token}).json()["token"]
        project = _named(shown["project"]) if "project" in shown else None
        return Account(_named(shown["user"]), project, self._projects(token))

    def _projects(self, token: str) -> list[Named]:
        found = self._ask("GET", "/auth/projects", token).json()["projects"]
        return sorted(map(_named, found), key=lambda project: project.name)

    def _new_token(self, identity: Mapping[str, Any], scope: object) -> tuple[str, Mapping[str, Any]]:
        """Get a new token; returns its text and Keystone's description of it."""
        auth = {"identity": identity} if scope is None else {"identity": identity, "scope": scope}
        answer = self._ask("POST", "/auth/tokens?nocatalog", json={"auth": auth})
        return answer.headers[_SUBJECT], answer.json()["token"]

    def _ask(
        self, method: str, path: str, token: str | None = None, headers: Mapping[str, str] | None = None, **content: Any
    ) -> Any:
        own = {} if token is None else {"X-Auth-Token": token}
        try:
            # Without logging, since requests and answers hold tokens and passwords.
            return self._http.request(
                self._root + path, method, headers={**own, **(headers or {})}, authenticated=False, log=False, **content
            )
        except HTTPClientError as error:
            raise UnauthorizedError(str(error), ENDED_CHALLENGE) from error
        except ClientException as error:
            raise IdentityServiceError(str(error)) from error


def _named(document: Mapping[str, Any]) -> Named:
    return Named(document["id"], document["name"])


_THREADS = 16
_Environment = dict[str, Any]
_StartResponse = Callable[[str, list[tuple[str, str]]], object]


class KeystoneIdentity:
    """The strategy. settings: with `auth_url`, `username` and `password`."""

    logins: Sequence[str] = ("password", "token")

    def __init__(self, settings: KeystoneSettings) -> None:
        public_url = settings.public_url or settings.auth_url
        self._challenge = f'Keystone uri="{public_url}"'
        self._middleware = AuthProtocol(_answer_with_caller, _options(settings))
        self._threads = DaemonThreads(_THREADS, "keystone")
        self._sessions = KeystoneSessions(settings)
        self._limit = LoginLimit()

    async def authenticate(self, headers: Mapping[str, str], connection: ClientConnection = UNKNOWN) -> Caller:
        token = headers.get("X-Auth-Token", "")
        if not token:
            raise UnauthorizedError("no token", self._challenge)
        return await self._threads.run(partial(self._caller_of, token, headers.get("X-Service-Token")))

    async def begin_session(self, login: BrowserLogin, connection: ClientConnection) -> str:
        if login.token is not None:
            token = login.token.get_secret_value()
            await self.authenticate({TOKEN_HEADER: token}, connection)
            return token if login.project is None else await self.change_project(token, login.project)
        if login.user is None or login.password is None:
            raise BadRequestError("A login has a user and a password, or a token.")
        password = login.password.get_secret_value()
        async with telling_of_refusal(login.user), self._limit.attempt(login.user, connection):
            begin = partial(self._sessions.with_password, login.user, password, login.project)
            return await self._threads.run(begin)

    async def change_project(self, session: str, project: str) -> str:
        return await self._threads.run(partial(self._sessions.with_token, session, project))

    async def end_session(self, session: str) -> None:
        await self._threads.run(partial(self._sessions.end, session))

    async def account(self, caller: Caller, headers: Mapping[str, str]) -> Account:
        return await self._threads.run(partial(self._sessions.account, headers.get(TOKEN_HEADER, "")))

    def _caller_of(self, token: str, service_token: str | None) -> Caller:
        """Find the caller of a token. service_token: of a service that acts for the user; allows an expired `token`."""
        environment: _Environment = {"HTTP_X_AUTH_TOKEN": token}
        if service_token:
            environment["HTTP_X_SERVICE_TOKEN"] = service_token
        setup_testing_defaults(environment)
        statuses: list[str] = []
        try:
            body = self._middleware(environment, lambda status, _headers, *_: statuses.append(status))
        except ClientException as error:
            # For example, the catalog has no identity service in our region.
            raise IdentityServiceError(str(error)) from error
        for _ in body:
            pass
        status = statuses[0].partition(" ")[0]
        if status == "401":
            raise UnauthorizedError("Keystone does not accept the token", self._challenge)
        if status != "200":
            raise IdentityServiceError(f"Keystone's middleware answered {statuses[0]}")
        project_id = environment.get("HTTP_X_PROJECT_ID")
        roles = environment.get("HTTP_X_ROLES", "").split(",")
        return Caller(
            user_id=environment["HTTP_X_USER_ID"],
            project_id=project_id,
            # All rules concern projects, so roles in a domain or the system do not count (section 11).
            roles=frozenset(role.strip().lower() for role in roles if role.strip()) if project_id else frozenset(),
        )


def _answer_with_caller(_environment: _Environment, start_response: _StartResponse) -> Iterable[bytes]:
    """The WSGI application behind the middleware: answers with the caller."""
    start_response("200 OK", [])
    return []


def _options(settings: KeystoneSettings) -> dict[str, Any]:
    return {
        "auth_type": "password",
        "auth_url": settings.auth_url,
        "username": settings.username,
        "password": None if settings.password is None else settings.password.get_secret_value(),
        "project_name": settings.project_name,
        "user_domain_name": settings.user_domain_name,
        "project_domain_name": settings.project_domain_name,
        "region_name": settings.region_name,
        "www_authenticate_uri": settings.public_url or settings.auth_url,
        "cafile": None if settings.ca_file is None else str(settings.ca_file),
        "http_connect_timeout": settings.timeout_s,
        "http_request_max_retries": 1,
        "token_cache_time": settings.cache_time_s or -1,
        "service_token_roles_required": True,
        "interface": "public",
    }
