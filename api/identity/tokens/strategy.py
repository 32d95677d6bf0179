"""The strategy `tokens`: tokens in the header X-Auth-Token, checked against the file of users."""

import hashlib
import hmac
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from fleetlight.api.caller import Caller
from fleetlight.api.documented import ApiOperation, DocumentedRoute
from fleetlight.api.http.connection import UNKNOWN, ClientConnection
from fleetlight.api.http.errors import TOKEN_CHALLENGE, IdentityNotFoundError, UnauthorizedError
from fleetlight.api.http.headers import Header
from fleetlight.api.http.shapes import JsonType, Shape
from fleetlight.api.identity.browser import TOKEN_HEADER, Named
from fleetlight.api.identity.passwords import name_and_password
from fleetlight.api.identity.tokens import shapes
from fleetlight.api.identity.tokens.auth_handlers import AuthHandlers, version, versions
from fleetlight.api.identity.tokens.browser_sessions import TokenSessions
from fleetlight.api.identity.tokens.credential_handlers import CredentialHandlers
from fleetlight.api.identity.tokens.directory import Directory
from fleetlight.api.identity.tokens.directory_file import DirectoryFile
from fleetlight.api.identity.tokens.login import Logins, caller_of
from fleetlight.api.identity.tokens.lookups import lookups
from fleetlight.api.identity.tokens.middleware import Handler, IdentityMiddleware
from fleetlight.api.identity.tokens.requests import LOGIN, NEW_CREDENTIAL, with_credential, with_password
from fleetlight.api.identity.tokens.token import Token
from fleetlight.resources.clock import Clock, system_clock

_BASE = "/identity/v3"
_SUBJECT = Header("X-Subject-Token", "The token that this is about", {"type": "string"}, is_required=True)
_MAX_REMEMBERED = 1000
_ANY_METHOD = ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]


class TokenIdentity:
    """The strategy. path: the file of users. region: the site's name in the catalog.

    max_credentials: largest number of application credentials of a user.
    """

    logins: Sequence[str] = ("password", "token")

    def __init__(
        self, path: Path, *, region: str, lifetime_s: int, max_credentials: int = 20, clock: Clock = system_clock
    ) -> None:
        self._file = DirectoryFile(path)
        self._logins = Logins(lifetime_s=lifetime_s, clock=clock)
        self._region = region
        self._max_credentials = max_credentials
        self._clock = clock
        # Logins found to be right, by digests under a key of this process, from which no password can be found.
        self._key = secrets.token_bytes(32)
        self._right: dict[bytes, Token] = {}
        self._auth = AuthHandlers(self._file, self._logins, region, clock)
        self._sessions = TokenSessions(self._file, self._logins, self._auth)
        self.begin_session, self.change_project = self._sessions.begin, self._sessions.change_project
        self.end_session, self.account = self._sessions.end, self._sessions.account

    async def authenticate(self, headers: Mapping[str, str], connection: ClientConnection = UNKNOWN) -> Caller:
        """Authenticate by a token, or by name and password (`log_in`), for programs that cannot get a token.

        Raises UnauthorizedError.
        """
        if TOKEN_HEADER not in headers and "Authorization" in headers:
            name, password = name_and_password(headers["Authorization"], TOKEN_CHALLENGE)
            return await self.log_in(name, password, connection)
        directory = await self._file.current()
        token = self._logins.token_of(directory, headers.get(TOKEN_HEADER, ""))
        if token is None:
            raise UnauthorizedError("The token is missing, or is not good any more.")
        return caller_of(directory, token)

    async def log_in(self, name: str, password: str, connection: ClientConnection) -> Caller:
        """Authenticate a user by name and password, in its default project, or its only one.

        For an application credential, the name is its id, and the password its secret. The strategy remembers a right
        login for the lifetime of a token, since programs send it with each request.
        Raises UnauthorizedError, TooManyLoginsError.
        """
        directory = await self._file.current()
        digest = hmac.digest(self._key, f"{len(name)}:{name}:{password}".encode(), hashlib.sha256)
        token = self._right.get(digest)
        if token is None or not self._logins.is_good(directory, token):
            if directory.user(name) is None and name in directory.credentials:
                asked = with_credential(name, password)
            else:
                asked = with_password(name, password, _only_project(directory, name))
            token = await self._logins.log_in(directory, asked, connection)
            if len(self._right) >= _MAX_REMEMBERED:
                del self._right[next(iter(self._right))]
            self._right[digest] = token
        return caller_of(directory, token)

    def check(self) -> None:
        """Raise DirectoryUnavailableError when the file cannot be read."""
        self._file.read()

    async def has_project(self, project_id: str) -> bool:
        """Whether a project with this id exists. Raises DirectoryUnavailableError."""
        return project_id in (await self._file.current()).projects

    async def project(self, name: str) -> Named | None:
        """Return the project with this id or name, or None. Raises DirectoryUnavailableError."""
        directory = await self._file.current()
        found = directory.projects.get(name) or directory.project(name)
        return None if found is None else Named(found.id, found.name)

    async def roles_of(self, user_id: str, project_id: str | None) -> frozenset[str] | None:
        """Return the roles of a login of the user in a project; None for a user who cannot log in.

        Raises DirectoryUnavailableError.
        """
        directory = await self._file.current()
        user, project = directory.users.get(user_id), directory.projects.get(project_id or "")
        if project is None:
            return frozenset() if project_id is None and user is not None and user.enabled else None
        return None if user is None else directory.roles_of(user, project) or None

    def routes(self, link_prefix: str | None) -> Sequence[Route]:
        """Return the routes below `/identity`; the first that matches counts."""
        middleware = IdentityMiddleware(self._logins, self._file.current, link_prefix)
        auth = self._auth
        show_versions, show_version = middleware.open_endpoint(versions), middleware.open_endpoint(version)
        log_in = ApiOperation(
            "POST",
            _BASE + "/auth/tokens",
            _one("token", shapes.TOKEN),
            201,
            is_open=True,
            body=LOGIN,
            query=("nocatalog",),
            gives=(_SUBJECT,),
        )
        return [
            DocumentedRoute(ApiOperation("GET", "/identity", shapes.VERSIONS, 300, is_open=True), show_versions),
            Route("/identity/", show_versions),
            DocumentedRoute(ApiOperation("GET", _BASE, shapes.VERSION, is_open=True), show_version),
            Route(_BASE + "/", show_version),
            DocumentedRoute(log_in, middleware.open_endpoint(auth.log_in)),
            *(DocumentedRoute(each, middleware.endpoint(handler)) for each, handler in self._with_token(auth)),
            Route("/identity/{path:path}", middleware.open_endpoint(_no_such_route), methods=_ANY_METHOD),
        ]

    def _with_token(self, auth: AuthHandlers) -> Sequence[tuple[ApiOperation, Handler]]:
        """Return the operations that need a token."""
        credentials = CredentialHandlers(self._file, self._logins, self._max_credentials, self._clock)
        own = "/users/{user_id}/application_credentials"
        many, one, new = shapes.collection, _one, "application_credential"
        subject = one("token", shapes.TOKEN)
        return [
            (_get("/auth/tokens", subject, query=("nocatalog",), takes=(_SUBJECT,), gives=(_SUBJECT,)), auth.show),
            (ApiOperation("DELETE", _BASE + "/auth/tokens", None, 204, takes=(_SUBJECT,)), auth.revoke),
            (_get("/auth/catalog", shapes.CATALOG), auth.catalog),
            (_get("/auth/projects", many("projects", shapes.PROJECT)), auth.projects),
            (_get("/auth/domains", many("domains", shapes.DOMAIN)), auth.domains),
            (_get(own, many("application_credentials", shapes.CREDENTIAL), query=("name",)), credentials.index),
            (
                ApiOperation("POST", _BASE + own, one(new, shapes.NEW_CREDENTIAL), 201, body=NEW_CREDENTIAL),
                credentials.create,
            ),
            (_get(own + "/{credential_id}", one(new, shapes.CREDENTIAL)), credentials.show),
            (ApiOperation("DELETE", _BASE + own + "/{credential_id}", None, 204), credentials.delete),
            *lookups(_BASE, self._region),
        ]


def _get(
    path: str,
    answer: JsonType,
    *,
    query: tuple[str, ...] = (),
    takes: tuple[Header, ...] = (),
    gives: tuple[Header, ...] = (),
) -> ApiOperation:
    return ApiOperation("GET", _BASE + path, answer, query=query, takes=takes, gives=gives)


def _one(singular: str, item: Shape) -> Shape:
    return Shape({singular: item})


async def _no_such_route(http: Request, _root: str) -> Response:
    raise IdentityNotFoundError("anything at", http.url.path)


def _only_project(directory: Directory, name: str) -> str | None:
    """Return the id of the only project in which a user has a role; None if there are several, or none."""
    user = directory.user(name)
    if user is None or user.default_project_id is not None:
        return None
    projects = [project.id for project in directory.projects.values() if directory.roles_of(user, project)]
    return projects[0] if len(projects) == 1 else None
