"""The strategy itself: tokens in the header X-Auth-Token, checked against the file of users."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

from api.compute.protocol.shapes import Kind, Shape
from api.documented import Operation
from api.errors import IdentityNotFoundError, UnauthorizedError
from api.identity.caller import Caller
from api.identity.tokens import shapes
from api.identity.tokens.auth_handlers import AuthHandlers, version, versions
from api.identity.tokens.credential_handlers import CredentialHandlers
from api.identity.tokens.directory_file import DirectoryFile
from api.identity.tokens.door import Handler, IdentityDoor
from api.identity.tokens.login import Logins, caller_of
from api.identity.tokens.lookups import Lookups
from cells.clock import Clock, system_clock

_BASE = "/identity/v3"
_SUCCESS = {"GET": 200, "POST": 201, "DELETE": 204}
_ANY_METHOD = ("GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")

Endpoint = Callable[[Request], Awaitable[Response]]


class TokenIdentity:
    """path: the file of users. region: the name that the catalog gives to this site."""

    def __init__(self, path: Path, *, region: str, lifetime_s: int, clock: Clock = system_clock) -> None:
        self._file = DirectoryFile(path)
        self._logins = Logins(lifetime_s=lifetime_s, clock=clock)
        self._region = region
        self._clock = clock

    async def authenticate(self, headers: Mapping[str, str]) -> Caller:
        directory = self._file.read()
        token = self._logins.token_of(directory, headers.get("X-Auth-Token", ""))
        if token is None:
            raise UnauthorizedError("The token is missing, or is not good any more.")
        return caller_of(directory, token)

    def check(self) -> None:
        """Raise DirectoryUnavailableError when the file cannot be read."""
        self._file.read()

    def routes(self, link_prefix: str | None) -> list[tuple[str, str, Endpoint]]:
        """Method, path and endpoint of everything that is served below `/identity`; the first that fits counts."""
        door = IdentityDoor(self._logins, self._file.read, link_prefix)
        auth = AuthHandlers(self._file, self._logins, self._region, self._clock)
        return [
            ("GET", "/identity", door.open_endpoint(versions)),
            ("GET", "/identity/", door.open_endpoint(versions)),
            ("GET", _BASE, door.open_endpoint(version)),
            ("GET", _BASE + "/", door.open_endpoint(version)),
            ("POST", _BASE + "/auth/tokens", door.open_endpoint(auth.log_in)),
            *((method, _BASE + path, door.endpoint(handler)) for method, path, handler, _ in self._with_token(auth)),
            *((method, "/identity/{path:path}", door.open_endpoint(_no_such_route)) for method in _ANY_METHOD),
        ]

    def operations(self) -> Sequence[Operation]:
        """What the OpenAPI document says of them."""
        auth = AuthHandlers(self._file, self._logins, self._region, self._clock)
        return [
            Operation("GET", "/identity", shapes.VERSIONS, 300, is_open=True),
            Operation("GET", _BASE, shapes.VERSION, is_open=True),
            Operation("POST", _BASE + "/auth/tokens", Shape({"token": shapes.TOKEN}), 201, is_open=True),
            *(
                Operation(method, _BASE + path, answer, _SUCCESS[method])
                for method, path, _, answer in self._with_token(auth)
            ),
        ]

    def _with_token(self, auth: AuthHandlers) -> Sequence[tuple[str, str, Handler, Kind | None]]:
        """Method, path, handler and answer of what needs a token."""
        lookups = Lookups(self._region)
        credentials = CredentialHandlers(self._file, self._clock)
        own = "/users/{user_id}/application_credentials"
        many, one = shapes.collection, _one
        return [
            ("GET", "/auth/tokens", auth.show, one("token", shapes.TOKEN)),
            ("DELETE", "/auth/tokens", auth.revoke, None),
            ("GET", "/auth/catalog", auth.catalog, shapes.CATALOG),
            ("GET", "/auth/projects", auth.projects, many("projects", shapes.PROJECT)),
            ("GET", "/auth/domains", auth.domains, many("domains", shapes.DOMAIN)),
            ("GET", "/projects", lookups.projects, many("projects", shapes.PROJECT)),
            ("GET", "/projects/{project_id}", lookups.project, one("project", shapes.PROJECT)),
            ("GET", "/users", lookups.users, many("users", shapes.USER)),
            ("GET", "/users/{user_id}", lookups.user, one("user", shapes.USER)),
            ("GET", "/users/{user_id}/projects", lookups.projects_of_user, many("projects", shapes.PROJECT)),
            ("GET", own, credentials.index, many("application_credentials", shapes.CREDENTIAL)),
            ("POST", own, credentials.create, one("application_credential", shapes.NEW_CREDENTIAL)),
            ("GET", own + "/{credential_id}", credentials.show, one("application_credential", shapes.CREDENTIAL)),
            ("DELETE", own + "/{credential_id}", credentials.delete, None),
            ("GET", "/domains", lookups.domains, many("domains", shapes.DOMAIN)),
            ("GET", "/domains/{domain_id}", lookups.domain, one("domain", shapes.DOMAIN)),
            ("GET", "/roles", lookups.roles, many("roles", shapes.ROLE)),
            ("GET", "/roles/{role_id}", lookups.role, one("role", shapes.ROLE)),
            ("GET", "/role_assignments", lookups.role_assignments, many("role_assignments", shapes.ASSIGNMENT)),
            ("GET", "/services", lookups.services, many("services", shapes.SERVICE)),
            ("GET", "/endpoints", lookups.endpoints, many("endpoints", shapes.ENDPOINT)),
            ("GET", "/regions", lookups.regions, many("regions", shapes.REGION)),
        ]


def _one(singular: str, item: Shape) -> Shape:
    return Shape({singular: item})


async def _no_such_route(http: Request, _root: str) -> Response:
    raise IdentityNotFoundError("anything at", http.url.path)
