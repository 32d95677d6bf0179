"""From a login to a token, and from a token to a caller.

Every wrong login gets the same answer after the same time; the log says what was wrong.
"""

from collections.abc import Callable, Mapping
from typing import TypeVar

import structlog

from fleetlight.api.caller import Caller, with_implied
from fleetlight.api.http.connection import ClientConnection
from fleetlight.api.http.errors import BadRequestError, UnauthorizedError
from fleetlight.api.identity.passwords import PasswordChecks
from fleetlight.api.identity.tokens.directory import Credential, Directory, Project, User
from fleetlight.api.identity.tokens.requests import (
    Authentication,
    CredentialMethod,
    PasswordMethod,
    ProjectReference,
    Scope,
    TokenMethod,
    UserReference,
)
from fleetlight.api.identity.tokens.token import LOGIN_LINK, Token, new_audit_id, signed_token
from fleetlight.api.limits.login_limit import LoginLimit
from fleetlight.resources.clock import Clock, system_clock
from fleetlight.resources.units import MICROSECONDS_PER_SECOND

_log = structlog.get_logger(__name__)
# A token names all tokens that it was made from, and has to fit into a header.
_MOST_IN_CHAIN = 32
Found = TypeVar("Found")


class Logins:
    """Makes and checks tokens, by the directory at the time of the request.

    lifetime_s: of a token, from its login on.
    """

    def __init__(self, *, lifetime_s: int, clock: Clock = system_clock) -> None:
        self._lifetime_s = lifetime_s
        self._clock = clock
        self._passwords = PasswordChecks()
        self._limit = LoginLimit(clock)

    async def log_in(self, directory: Directory, asked: Authentication, caller: ClientConnection) -> Token:
        """Log in, and return a token. Raises UnauthorizedError, TooManyLoginsError, BadRequestError."""
        login = asked.identity
        match login.methods[0]:
            case "password" if login.password is not None:
                async with self._limit.attempt(_name_of(login.password.user), caller):
                    return await self._with_password(directory, login.password, asked.scope)
            case "token" if login.token is not None:
                return self._with_token(directory, login.token, asked.scope)
            case "application_credential" if login.application_credential is not None:
                async with self._limit.attempt(_name_of(login.application_credential), caller):
                    return await self._with_credential(directory, login.application_credential, asked.scope)
            case "password" | "token" | "application_credential" as method:
                raise BadRequestError(f"Expecting to find auth.identity.{method}.")
            case _:
                raise _refused("unknown method")

    async def hashed(self, secret: str, user_id: str) -> str:
        """Hash a new `secret` of a user, who waits in the queue of logins. Raises TooManyLoginsError."""
        async with self._limit.lock(user_id):
            return await self._passwords.hash_password(secret)

    def token_for(self, user: User, project: Project | None, *, is_link: bool = False) -> Token:
        """Make a token without a login, for a process that can read the signing key anyway."""
        return self._new_token(user, (LOGIN_LINK,) if is_link else ("password",), project)

    def token_of(self, directory: Directory, text: str, *, is_link_allowed: bool = False) -> Token | None:
        """Return the token of `text` if it is valid now, else None."""
        token = signed_token(text, directory.signing_key)
        if token is None or (token.is_link and not is_link_allowed):
            return None
        return token if self.is_good(directory, token) else None

    def is_good(self, directory: Directory, token: Token) -> bool:
        """Whether a token with a good signature is valid now."""
        # A token ends with every token that it was made from.
        if token.expires_at <= self._clock() or directory.has_revoked(token.user_id, token.audit_ids):
            return False
        user = directory.users.get(token.user_id)
        if user is None or not user.enabled or token.issued_at < user.valid_from:
            return False
        if token.credential_id is not None:
            credential = directory.credentials.get(token.credential_id)
            if credential is None or self._has_expired(credential):
                return False
        return token.project_id is None or bool(roles_of(directory, token))

    async def _with_password(self, directory: Directory, method: PasswordMethod, scope: Scope | str | None) -> Token:
        if method.user.password is None:
            raise BadRequestError("Expecting to find auth.identity.password.user.password.")
        user = _user(directory, method.user)
        hashed = None if user is None else user.password_hash
        if not await self._passwords.is_password_of(hashed, method.user.password.get_secret_value()) or user is None:
            raise _refused("wrong user or password", user)
        return self._new_token(user, ("password",), self._project(directory, user, scope))

    def _with_token(self, directory: Directory, method: TokenMethod, scope: Scope | str | None) -> Token:
        token = self.token_of(directory, method.id.get_secret_value())
        if token is None:
            raise _refused("bad token")
        user = directory.users[token.user_id]
        if token.credential_id is not None:
            raise _refused("a token of an application credential is for its project alone", user)
        if len(token.audit_ids) >= _MOST_IN_CHAIN:
            raise _refused("the token comes at the end of a long chain of tokens made from each other", user)
        methods = token.methods if "token" in token.methods else (*token.methods, "token")
        return self._new_token(user, methods, self._project(directory, user, scope), made_from=token)

    async def _with_credential(
        self, directory: Directory, method: CredentialMethod, scope: Scope | str | None
    ) -> Token:
        credential = _credential(directory, method)
        hashed = None if credential is None else credential.secret_hash
        if not await self._passwords.is_password_of(hashed, method.secret.get_secret_value()) or credential is None:
            raise _refused("wrong application credential")
        user = directory.users[credential.user_id]
        if scope is not None:
            raise _refused("an application credential has its own scope", user)
        if self._has_expired(credential):
            raise _refused("the application credential has expired", user)
        project = directory.projects[credential.project_id]
        token = self._new_token(user, ("application_credential",), project, credential=credential)
        if not roles_of(directory, token):
            raise _refused("no role in the project of the application credential", user)
        return token

    def _project(self, directory: Directory, user: User, scope: Scope | str | None) -> Project | None:
        """Return the project of a token of `user`, who must have a role there; None: unscoped."""
        if isinstance(scope, str):
            return None
        if scope is not None:
            project = None if scope.project is None else _project(directory, scope.project)
            if project is None or not directory.roles_of(user, project):
                raise _refused("no role in the project", user)
            return project
        default = directory.projects.get(user.default_project_id or "")
        return default if default is not None and directory.roles_of(user, default) else None

    def _new_token(
        self,
        user: User,
        methods: tuple[str, ...],
        project: Project | None,
        *,
        made_from: Token | None = None,
        credential: Credential | None = None,
    ) -> Token:
        if not user.enabled:
            raise _refused("the user is disabled", user)
        now = self._clock()
        whole_second = (now + MICROSECONDS_PER_SECOND - 1) // MICROSECONDS_PER_SECOND * MICROSECONDS_PER_SECOND
        return Token(
            user_id=user.id,
            methods=methods,
            project_id=None if project is None else project.id,
            issued_at=now,
            expires_at=whole_second + self._lifetime_s * MICROSECONDS_PER_SECOND
            if made_from is None
            else made_from.expires_at,
            audit_ids=(new_audit_id(),) if made_from is None else (new_audit_id(), *made_from.audit_ids),
            credential_id=None if credential is None else credential.id,
        )

    def _has_expired(self, credential: Credential) -> bool:
        return credential.expires_at is not None and credential.expires_at <= self._clock()


def caller_of(directory: Directory, token: Token) -> Caller:
    """Make the caller of `token`, with its current roles."""
    return Caller(token.user_id, token.project_id, roles_of(directory, token))


def roles_of(directory: Directory, token: Token) -> frozenset[str]:
    """Return the current roles of `token`, with implied ones."""
    user = directory.users.get(token.user_id)
    project = directory.projects.get(token.project_id or "")
    if user is None or project is None:
        return frozenset()
    roles = directory.roles_of(user, project)
    if token.credential_id is None:
        return roles
    credential = directory.credentials.get(token.credential_id)
    return frozenset() if credential is None else roles & with_implied(frozenset(credential.roles))


def _name_of(reference: UserReference | CredentialMethod) -> str:
    """Return the key by which wrong logins count: only what identifies the login, without parts that a caller can vary.

    A user has a name and an id, and the name of a credential is unique for its user.
    """
    name = f"{type(reference).__name__} {reference.name if reference.id is None else reference.id}"
    if isinstance(reference, CredentialMethod) and reference.id is None and reference.user is not None:
        return f"{name} of {reference.user.id or reference.user.name}"
    return name


def _user(directory: Directory, reference: UserReference) -> User | None:
    return _referred_to("user", reference, directory.users, directory.user)


def _project(directory: Directory, reference: ProjectReference) -> Project | None:
    return _referred_to("project", reference, directory.projects, directory.project)


def _referred_to(
    kind: str,
    reference: UserReference | ProjectReference,
    by_id: Mapping[str, Found],
    by_name: Callable[[str], Found | None],
) -> Found | None:
    """Find the referenced object, by id or by name and domain. Raises BadRequestError if it has neither."""
    if reference.id is not None:
        return by_id.get(reference.id)
    if reference.name is None or reference.domain is None:
        raise BadRequestError(f"Expecting to find the id of a {kind}, or a name and a domain.")
    return by_name(reference.name) if reference.domain.is_ours else None


def _credential(directory: Directory, method: CredentialMethod) -> Credential | None:
    if method.id is not None:
        return directory.credentials.get(method.id)
    if method.name is None or method.user is None:
        raise BadRequestError("Expecting to find the id of an application credential, or a name and a user.")
    user = _user(directory, method.user)
    if user is None:
        return None
    return next((each for each in directory.credentials_of(user.id) if each.name == method.name), None)


def _refused(reason: str, user: User | None = None) -> UnauthorizedError:
    _log.warning("login_refused", reason=reason, user_id=None if user is None else user.id)
    return UnauthorizedError(reason)
