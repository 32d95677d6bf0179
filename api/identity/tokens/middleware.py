"""Middleware of the identity service: checks the token, and answers errors in Keystone's form."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import structlog
from starlette.requests import Request
from starlette.responses import Response

from fleetlight.api.caller import Caller
from fleetlight.api.http.answers import json_answer
from fleetlight.api.http.connection import address_of_client
from fleetlight.api.http.errors import DirectoryUnavailableError, ForbiddenError, UnauthorizedError, status_of
from fleetlight.api.http.links import Links
from fleetlight.api.identity.faults import identity_fault_of
from fleetlight.api.identity.tokens.directory import Directory
from fleetlight.api.identity.tokens.login import Logins, caller_of
from fleetlight.api.identity.tokens.token import Token
from fleetlight.api.identity.tokens.views import Views

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class IdentityRequest:
    """A request that has passed the middleware.

    root: address of the application, as the caller sees it.
    directory: as it was when the request came.
    """

    http: Request
    root: str
    token: Token
    caller: Caller
    directory: Directory

    @property
    def views(self) -> Views:
        return Views(f"{self.root}/identity/v3")

    def listed(self, plural: str, items: Sequence[dict[str, Any]]) -> Response:
        """Make the answer that lists these items on one page."""
        address = self.root + self.http.scope["path"].removeprefix(self.http.scope.get("root_path", ""))
        return json_answer({plural: items, "links": {"self": address, "previous": None, "next": None}})

    def require_admin(self, rule: str) -> None:
        """Raise ForbiddenError unless the caller is an administrator."""
        if not self.caller.is_admin:
            raise ForbiddenError(rule)

    def require_user(self, user_id: str, rule: str) -> None:
        """Raise ForbiddenError unless the caller is this user, or an administrator."""
        if self.caller.user_id != user_id:
            self.require_admin(rule)


OpenHandler = Callable[[Request, str], Awaitable[Response]]
Handler = Callable[[IdentityRequest], Awaitable[Response]]


class IdentityMiddleware:
    """Makes endpoints out of handlers.

    link_prefix: `api.compute_link_prefix`.
    """

    def __init__(self, logins: Logins, directory: Callable[[], Awaitable[Directory]], link_prefix: str | None) -> None:
        self._logins = logins
        self._directory = directory
        self._link_prefix = link_prefix

    def endpoint(self, handler: Handler) -> Callable[[Request], Awaitable[Response]]:
        """Make an endpoint for callers with a token; `handler` gets the token's caller."""

        async def with_token(http: Request, root: str) -> Response:
            directory = await self._directory()
            token = self._logins.token_of(directory, http.headers.get("X-Auth-Token", ""))
            if token is None:
                raise UnauthorizedError("The token is missing, or is not good any more.")
            return await handler(IdentityRequest(http, root, token, caller_of(directory, token), directory))

        return self.open_endpoint(with_token)

    def open_endpoint(self, handler: OpenHandler) -> Callable[[Request], Awaitable[Response]]:
        """Make an endpoint for every caller; `handler` gets the request and the address of the application."""

        async def answer(http: Request) -> Response:
            root = Links.of(http, self._link_prefix).root
            request_id = http.state.request_id = f"req-{uuid4()}"
            with structlog.contextvars.bound_contextvars(request_id=request_id, address=address_of_client(http.scope)):
                try:
                    response = await handler(http, root)
                except Exception as error:  # noqa: BLE001  # the edge: every failure becomes a fault
                    _log_failure(error)
                    response = identity_fault_of(error, root)
            response.headers["Vary"] = "X-Auth-Token"
            response.headers["X-Openstack-Request-Id"] = request_id
            return response

        return answer


def _log_failure(error: Exception) -> None:
    if isinstance(error, DirectoryUnavailableError):
        _log.error("identity.unavailable", path=str(error.path), reason=error.reason)
    elif status_of(error) is None:
        _log.exception("request_failed")
