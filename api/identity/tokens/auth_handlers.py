"""Handlers of logins and tokens (contracts/nova-rest, 5.2 and 5.3)."""

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from fleetlight.api.bodies.request_body import read_json
from fleetlight.api.http.answers import empty_answer, json_answer
from fleetlight.api.http.connection import ClientConnection
from fleetlight.api.http.errors import ForbiddenError, IdentityNotFoundError, UnauthorizedError
from fleetlight.api.identity.refusals import telling_of_refusal
from fleetlight.api.identity.tokens.catalog import catalog, version_document
from fleetlight.api.identity.tokens.directory import Directory
from fleetlight.api.identity.tokens.directory_file import DirectoryFile
from fleetlight.api.identity.tokens.login import Logins
from fleetlight.api.identity.tokens.middleware import IdentityRequest
from fleetlight.api.identity.tokens.requests import LOGIN, Authentication
from fleetlight.api.identity.tokens.token import Token, sign
from fleetlight.api.identity.tokens.views import Views
from fleetlight.resources.clock import Clock, system_clock

_SUBJECT = "X-Subject-Token"


async def versions(_http: Request, root: str) -> Response:
    """`GET /identity`: 300 with the list of versions, as in Keystone."""
    return json_answer({"versions": {"values": [version_document(root)]}}, 300)


async def version(_http: Request, root: str) -> Response:
    """`GET /identity/v3`"""
    return json_answer({"version": version_document(root)})


class AuthHandlers:
    """The handlers. region: its name in the catalog."""

    def __init__(self, file: DirectoryFile, logins: Logins, region: str, clock: Clock = system_clock) -> None:
        self._file = file
        self._logins = logins
        self._region = region
        self._clock = clock

    async def log_in(self, http: Request, root: str) -> Response:
        """`POST /v3/auth/tokens`"""
        asked = LOGIN.check(await read_json(http)).auth
        token, directory = await self.logged_in(asked, ClientConnection.of(http))
        text = sign(token, directory.signing_key)
        return json_answer(self._document(http, root, token, directory), 201, {_SUBJECT: text})

    async def logged_in(self, asked: Authentication, caller: ClientConnection) -> tuple[Token, Directory]:
        """Log in; returns the token, and the directory by which it is valid.

        Raises UnauthorizedError, TooManyLoginsError, BadRequestError, DirectoryUnavailableError.
        """
        before = await self._file.current()
        async with telling_of_refusal(asked.identity.name):
            token = await self._logins.log_in(before, asked, caller)
        # Read the directory again, since the check of a password takes a while.
        directory = await self._file.current()
        # Compare passwords, too: the token is newer than a password changed meanwhile, which would not void it.
        if not self._logins.is_good(directory, token) or _has_new_password(token.user_id, before, directory):
            raise UnauthorizedError("The user was changed meanwhile.")
        return token, directory

    async def show(self, request: IdentityRequest) -> Response:
        """`GET /v3/auth/tokens`, and HEAD: the caller's own token; for administrators any token."""
        text, token = self._subject(request)
        document = self._document(request.http, request.root, token, request.directory)
        return json_answer(document, 200, {_SUBJECT: text})

    async def revoke(self, request: IdentityRequest) -> Response:
        """`DELETE /v3/auth/tokens`"""
        _, token = self._subject(request)
        await self.revoke_token(token, request.caller.user_id)
        return empty_answer(204)

    async def revoke_token(self, token: Token, user_id: str) -> None:
        """Revoke a token for a request of a user. Raises DirectoryUnavailableError, TooManyLoginsError."""

        def revoked(directory: Directory) -> Directory:
            return directory.with_revoked(token.user_id, token.audit_ids[0], token.expires_at, self._clock())

        await self._file.change_for(user_id, revoked)

    async def catalog(self, request: IdentityRequest) -> Response:
        """`GET /v3/auth/catalog`. Raises ForbiddenError."""
        if request.token.project_id is None:
            raise ForbiddenError("identity:get_auth_catalog")
        return request.listed("catalog", catalog(request.root, self._region))

    async def projects(self, request: IdentityRequest) -> Response:
        """`GET /v3/auth/projects`: the projects for which the caller can get a token."""
        directory = request.directory
        user = directory.users[request.caller.user_id]
        own = [request.views.project(each) for each in directory.projects.values() if directory.roles_of(user, each)]
        return request.listed("projects", own)

    async def domains(self, request: IdentityRequest) -> Response:
        """`GET /v3/auth/domains`: always empty, since no user has a role in a domain."""
        return request.listed("domains", [])

    def _subject(self, request: IdentityRequest) -> tuple[str, Token]:
        """Return the token that a request names. Raises IdentityNotFoundError, ForbiddenError."""
        text = request.http.headers.get(_SUBJECT, "")
        token = self._logins.token_of(request.directory, text)
        if token is None:
            raise IdentityNotFoundError("token", "the one of the header X-Subject-Token")
        request.require_user(token.user_id, "identity:validate_token")
        return text, token

    def _document(self, http: Request, root: str, token: Token, directory: Directory) -> dict[str, Any]:
        view = Views(f"{root}/identity/v3").token(token, directory)
        if token.project_id is not None and "nocatalog" not in http.query_params:
            view["catalog"] = catalog(root, self._region)
        return {"token": view}


def _has_new_password(user_id: str, before: Directory, now: Directory) -> bool:
    return before.users[user_id].password_hash != now.users[user_id].password_hash
