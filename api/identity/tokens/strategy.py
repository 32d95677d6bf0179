"""The strategy itself: tokens in the header X-Auth-Token, checked against the file of users."""

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

from api.errors import IdentityNotFoundError, UnauthorizedError
from api.identity.caller import Caller
from api.identity.tokens.auth_handlers import AuthHandlers, version, versions
from api.identity.tokens.credential_handlers import CredentialHandlers
from api.identity.tokens.directory_file import DirectoryFile
from api.identity.tokens.door import IdentityDoor
from api.identity.tokens.login import Logins, caller_of
from api.identity.tokens.lookups import Lookups
from cells.clock import Clock, system_clock

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
        lookups = Lookups(self._region)
        credentials = CredentialHandlers(self._file, self._clock)
        own = "/users/{user_id}/application_credentials"
        with_token = [
            ("GET", "/auth/tokens", auth.show),
            ("DELETE", "/auth/tokens", auth.revoke),
            ("GET", "/auth/catalog", auth.catalog),
            ("GET", "/auth/projects", auth.projects),
            ("GET", "/auth/domains", auth.domains),
            ("GET", "/projects", lookups.projects),
            ("GET", "/projects/{project_id}", lookups.project),
            ("GET", "/users", lookups.users),
            ("GET", "/users/{user_id}", lookups.user),
            ("GET", "/users/{user_id}/projects", lookups.projects_of_user),
            ("GET", own, credentials.index),
            ("POST", own, credentials.create),
            ("GET", own + "/{credential_id}", credentials.show),
            ("DELETE", own + "/{credential_id}", credentials.delete),
            ("GET", "/domains", lookups.domains),
            ("GET", "/domains/{domain_id}", lookups.domain),
            ("GET", "/roles", lookups.roles),
            ("GET", "/roles/{role_id}", lookups.role),
            ("GET", "/role_assignments", lookups.role_assignments),
            ("GET", "/services", lookups.services),
            ("GET", "/endpoints", lookups.endpoints),
            ("GET", "/regions", lookups.regions),
        ]
        return [
            ("GET", "/identity", door.open_endpoint(versions)),
            ("GET", "/identity/", door.open_endpoint(versions)),
            ("GET", "/identity/v3", door.open_endpoint(version)),
            ("GET", "/identity/v3/", door.open_endpoint(version)),
            ("POST", "/identity/v3/auth/tokens", door.open_endpoint(auth.log_in)),
            *((method, "/identity/v3" + path, door.endpoint(handler)) for method, path, handler in with_token),
            *((method, "/identity/{path:path}", door.open_endpoint(_no_such_route)) for method in _ANY_METHOD),
        ]


async def _no_such_route(http: Request, _root: str) -> Response:
    raise IdentityNotFoundError("anything at", http.url.path)
