"""Sessions of browsers with the strategy `tokens`: a session is a token.

A login by a pasted token makes a new one, so that the pasted token outlives the session. A login link holds a token
that is valid for one session only.
"""

from collections.abc import Mapping
from dataclasses import replace

from fleetlight.api.caller import Caller
from fleetlight.api.http.connection import ClientConnection
from fleetlight.api.http.errors import BadRequestError, UnauthorizedError
from fleetlight.api.identity.browser import ENDED_CHALLENGE, TOKEN_HEADER, Account, BrowserLogin, Named
from fleetlight.api.identity.tokens.auth_handlers import AuthHandlers
from fleetlight.api.identity.tokens.directory import Directory
from fleetlight.api.identity.tokens.directory_file import DirectoryFile
from fleetlight.api.identity.tokens.login import Logins
from fleetlight.api.identity.tokens.requests import with_password
from fleetlight.api.identity.tokens.token import Token, new_audit_id, sign


class TokenSessions:
    """Sessions of browsers. file: of the users. auth: makes and revokes tokens."""

    def __init__(self, file: DirectoryFile, logins: Logins, auth: AuthHandlers) -> None:
        self._file = file
        self._logins = logins
        self._auth = auth

    async def begin(self, login: BrowserLogin, connection: ClientConnection) -> str:
        """Begin a session. Raises UnauthorizedError, TooManyLoginsError, BadRequestError, DirectoryUnavailableError."""
        directory = await self._file.current()
        if login.link is not None:
            link = self._token(directory, login.link.get_secret_value(), is_link_allowed=True)
            if not link.is_link:
                raise _ended()
            return await self._begin_by_link(link)
        if login.token is not None:
            token = self._token(directory, login.token.get_secret_value())
            session = replace(token, audit_ids=(new_audit_id(), *token.audit_ids))
            return sign(_for_project(directory, session, login.project), directory.signing_key)
        if login.user is None or login.password is None:
            raise BadRequestError("A login has a user and a password, or a token.")
        project_id = _login_project(directory, login.user, login.project)
        asked = with_password(login.user, login.password.get_secret_value(), project_id)
        session, directory = await self._auth.logged_in(asked, connection)
        return sign(session, directory.signing_key)

    async def change_project(self, session: str, project: str) -> str:
        """Make a session of the same login for another project; both end together. Raises UnauthorizedError."""
        directory = await self._file.current()
        return sign(_for_project(directory, self._token(directory, session), project), directory.signing_key)

    async def end(self, session: str) -> None:
        token = self._logins.token_of(await self._file.current(), session)
        if token is not None:
            await self._auth.revoke_token(token, token.user_id)

    async def account(self, caller: Caller, headers: Mapping[str, str]) -> Account:
        directory = await self._file.current()
        token = self._token(directory, headers.get(TOKEN_HEADER, ""))
        user, projects = directory.users[caller.user_id], _projects_of(directory, token)
        own = next((each for each in projects if each.id == caller.project_id), None)
        return Account(Named(user.id, user.name), own, projects)

    async def _begin_by_link(self, link: Token) -> str:
        """Begin a session by a login link. Raises UnauthorizedError when another request has used the link first."""
        begun = None

        def used(directory: Directory) -> Directory:
            nonlocal begun
            if directory.has_revoked(link.user_id, link.audit_ids):
                raise _ended()
            user = directory.users[link.user_id]
            begun = self._logins.token_for(user, directory.projects.get(link.project_id or ""))
            return directory.with_revoked(link.user_id, link.audit_ids[0], link.expires_at, begun.issued_at)

        directory = await self._file.change_for(link.user_id, used)
        assert begun is not None  # noqa: S101  # `used` was called
        return sign(begun, directory.signing_key)

    def _token(self, directory: Directory, text: str, *, is_link_allowed: bool = False) -> Token:
        token = self._logins.token_of(directory, text, is_link_allowed=is_link_allowed)
        if token is None:
            raise _ended()
        return token


def _ended() -> UnauthorizedError:
    return UnauthorizedError("the session or the login link has ended", ENDED_CHALLENGE)


def _projects_of(directory: Directory, token: Token) -> list[Named]:
    """Return the projects in which the user has a role, by name; of an application credential only its own."""
    user = directory.users[token.user_id]
    own = (each for each in directory.projects.values() if directory.roles_of(user, each))
    return [
        Named(project.id, project.name)
        for project in sorted(own, key=lambda project: project.name)
        if token.credential_id is None or project.id == token.project_id
    ]


def _for_project(directory: Directory, token: Token, wanted: str | None) -> Token:
    """Change `token` to the project `wanted`, by id or name; None: keep it. Raises UnauthorizedError without a role."""
    if wanted is None:
        return token
    found = next((each for each in _projects_of(directory, token) if wanted in {each.id, each.name}), None)
    if found is None:
        raise UnauthorizedError("no role in the project", ENDED_CHALLENGE)
    return replace(token, project_id=found.id)


def _login_project(directory: Directory, name: str, wanted: str | None) -> str | None:
    """Return the id of the project of a login; its roles are checked after the password.

    It is the wanted one, by id or name, else the user's default, else the first in which the user has a role.
    """
    if wanted is not None:
        named = directory.projects.get(wanted) or directory.project(wanted)
        return wanted if named is None else named.id
    user = directory.user(name)
    if user is None or user.default_project_id is not None:
        return None
    own = (each for each in directory.projects.values() if directory.roles_of(user, each))
    return next((each.id for each in sorted(own, key=lambda project: project.name)), None)
