"""Logins of browsers at an OpenID provider, beside another strategy that programs use."""

import hmac
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from fleetlight.api.caller import Caller, Identity, with_implied
from fleetlight.api.http.connection import UNKNOWN, ClientConnection, shown
from fleetlight.api.http.errors import IdentityServiceError, UnauthorizedError
from fleetlight.api.identity.browser import (
    ENDED_CHALLENGE,
    TOKEN_HEADER,
    Account,
    BrowserIdentity,
    BrowserLogin,
    Named,
)
from fleetlight.api.identity.ended_sessions import EndsSessions, SessionEnds
from fleetlight.api.identity.openid.errors import LoginRefusedError, LoginStateError, NoProjectError
from fleetlight.api.identity.openid.rights import ClaimedProject, ClaimedRights, Claims, rights_of
from fleetlight.api.identity.openid.sessions import Attempt, Seal, Session
from fleetlight.api.identity.tokens.strategy import TokenIdentity
from fleetlight.api.identity.tokens.token import new_audit_id
from fleetlight.api.limits.login_limit import LoginLimit
from fleetlight.api.settings import OpenIdSettings
from fleetlight.resources.clock import Clock, system_clock
from fleetlight.resources.units import MICROSECONDS_PER_SECOND

if TYPE_CHECKING:
    from fleetlight.api.identity.openid.provider import OpenIdProvider

LOGIN = "openid"
LOGIN_PAGE = "/fleetlight/session/openid"
CALLBACK = f"{LOGIN_PAGE}/callback"
LOGOUT_PAGE = f"{LOGIN_PAGE}/end"
_PREFIX = "openid."
# Browsers accept cookies of 4,096 bytes, including name and attributes.
_LONGEST_SESSION = 3800
_AWAY = {"server_error", "temporarily_unavailable"}


class OpenIdIdentity:
    """The strategy. programs: the other strategy. key: the secret that all processes of one API share.

    lifetime_s: longest time of a session; it ends earlier if the ID token of its login expires.
    """

    def __init__(
        self,
        programs: BrowserIdentity,
        provider: "OpenIdProvider",
        settings: OpenIdSettings,
        *,
        key: str,
        lifetime_s: int,
        clock: Clock = system_clock,
    ) -> None:
        self.programs = programs
        self.name = settings.name
        self.logins: Sequence[str] = (*programs.logins, LOGIN)
        self._provider = provider
        self._settings = settings
        self._attempts = Seal(key, Attempt)
        self._sessions = Seal(key, Session)
        self._limit = LoginLimit()
        self._lifetime_us = lifetime_s * MICROSECONDS_PER_SECOND
        self._clock = clock
        self.ends = programs.ends if isinstance(programs, EndsSessions) else SessionEnds(self._lifetime_us, clock)

    async def authenticate(self, headers: Mapping[str, str], connection: ClientConnection = UNKNOWN) -> Caller:
        text = headers.get(TOKEN_HEADER, "")
        if _is_ours(text):
            return _caller_of(await self._session(text))
        return await self.programs.authenticate(headers, connection)

    async def begin_session(self, login: BrowserLogin, connection: ClientConnection) -> str:
        return await self.programs.begin_session(login, connection)

    async def change_project(self, session: str, project: str) -> str:
        if not _is_ours(session):
            return await self.programs.change_project(session, project)
        before = await self._session(session)
        places = enumerate(before.rights.projects)
        found = next((place for place, each in places if project in {each.id, each.name}), None)
        if found is None:
            raise UnauthorizedError("no role in the project", ENDED_CHALLENGE)
        return self._sealed(msgspec.structs.replace(before, project=found))

    async def end_session(self, session: str) -> None:
        if not _is_ours(session):
            return await self.programs.end_session(session)
        found = self._sessions.opened(session.removeprefix(_PREFIX), self._clock())
        if found is not None:
            await self.ends.add(_user_of(found), found.login)
        return None

    async def account(self, caller: Caller, headers: Mapping[str, str]) -> Account:
        text = headers.get(TOKEN_HEADER, "")
        if not _is_ours(text):
            return await self.programs.account(caller, headers)
        session = await self._session(text)
        projects = [Named(each.id, each.name or each.id) for each in session.rights.projects]
        own = None if session.project is None else projects[session.project]
        return Account(Named(caller.user_id, session.rights.user_name), own, projects, LOGOUT_PAGE)

    async def begin_login(self, next_page: str) -> tuple[str, str]:
        """Begin a login; returns the provider's page to open, and the text that the browser keeps meanwhile.

        next_page: the page to show after the login. Raises IdentityServiceError.
        """
        page, attempt = await self._provider.begin(next_page)
        return page, self._attempts.sealed(attempt)

    async def finish_login(
        self, kept: str, answer: Mapping[str, str], connection: ClientConnection = UNKNOWN
    ) -> tuple[str, str]:
        """Finish a login; returns a session and the page to show. kept: see `begin_login`. answer: of the provider.

        Raises LoginFailedError, TooManyLoginsError, IdentityServiceError.
        """
        # Before the check of the state, which some providers omit with an error; refusing changes nothing.
        self._refuse_error(answer.get("error"))
        attempt = self._attempts.opened(kept, self._clock())
        if attempt is None or not hmac.compare_digest(attempt.state.encode(), answer.get("state", "").encode()):
            raise LoginStateError(
                "This login was begun by another browser, or more than ten minutes ago. Log in again.",
                "no attempt with this state",
            )
        # RFC 9207: if the answer names an issuer, it must be this provider.
        if not answer.get("code") or answer.get("iss", self._settings.issuer) != self._settings.issuer:
            raise self._misunderstood(f"the answer is of {shown(answer.get('iss', 'the provider, without a code'))}")
        # The user is not known yet, so failures count by address only.
        async with self._limit.attempt(attempt.state, connection):
            claims = await self._provider.claims(answer["code"], attempt)
        return await self._begun(claims), attempt.next_page

    async def provider_logout_page(self, then: str) -> str:
        """Return the page that ends the login at the provider, too; `then` if it has none, or does not answer."""
        try:
            return await self._provider.logout_page(then) or then
        except IdentityServiceError:
            return then

    def _refuse_error(self, error: str | None) -> None:
        """Raise LoginFailedError or IdentityServiceError for an error code.

        Sources: RFC 6749, 4.1.2.1, and OpenID Connect Core 1.0, 3.1.2.6.
        """
        if error in _AWAY:
            raise IdentityServiceError(f"the provider says {error}")
        if error == "access_denied":
            raise LoginRefusedError(f"{self.name} did not let you in, or you cancelled the login.", error)
        if error is not None:
            raise self._misunderstood(f"the provider says {shown(error)}")

    def _misunderstood(self, reason: str) -> LoginRefusedError:
        return LoginRefusedError(
            f"{self.name} refused the login, and says that it was asked wrongly. Tell an administrator.", reason
        )

    async def _begun(self, claims: Claims) -> str:
        """Begin the session of a user with these claims. Raises NoProjectError."""
        rights = await self._known_here(rights_of(claims, self._settings))
        if not (rights.projects or rights.is_admin):
            raise NoProjectError(
                f"{self.name} knows you as {rights.user_name}, but gives you a role in no project here. "
                "Ask an administrator for one.",
                f"the claim {self._settings.projects_claim} names no project",
            )
        ends_at = int(float(str(claims["exp"])) * MICROSECONDS_PER_SECOND)
        begun_at = self._clock()
        expires_at = min(begun_at + self._lifetime_us, ends_at)
        text = self._sealed(Session(new_audit_id(), rights, 0 if rights.projects else None, begun_at, expires_at))
        if len(text) > _LONGEST_SESSION:
            raise NoProjectError(
                f"You have roles in {len(rights.projects)} projects, more than a login can hold. "
                f"Ask an administrator to give you fewer at {self.name}.",
                f"the session has {len(text)} bytes",
            )
        return text

    async def _known_here(self, rights: ClaimedRights) -> ClaimedRights:
        """Restrict rights to existing projects, found by id or name, if the other strategy knows projects."""
        service = embedded_service(self.programs)
        if service is None:
            return rights
        known = [(each.role, await service.project(each.id)) for each in rights.projects]
        projects = (ClaimedProject(found.id, role, found.name) for role, found in known if found is not None)
        return msgspec.structs.replace(rights, projects=tuple(projects))

    def _sealed(self, session: Session) -> str:
        return _PREFIX + self._sessions.sealed(session)

    async def _session(self, text: str) -> Session:
        """Open a session. Raises UnauthorizedError for an invalid or ended one, and FleetUnreachableError."""
        session = self._sessions.opened(text.removeprefix(_PREFIX), self._clock())
        if session is None or await self.ends.has(_user_of(session), session.login, session.begun_at):
            raise UnauthorizedError("the session has ended", ENDED_CHALLENGE)
        return session


def embedded_service(identity: Identity) -> TokenIdentity | None:
    """Return our own identity service, if programs log in at it."""
    programs = identity.programs if isinstance(identity, OpenIdIdentity) else identity
    return programs if isinstance(programs, TokenIdentity) else None


def _is_ours(text: str) -> bool:
    return text.startswith(_PREFIX)


def _user_of(session: Session) -> str:
    """Return the key of a session's user, different from any program's, so that its logins end separately."""
    return _PREFIX + session.rights.user_id


def _caller_of(session: Session) -> Caller:
    rights = session.rights
    own = None if session.project is None else rights.projects[session.project]
    roles = {"admin"} if rights.is_admin else set()
    if own is None:
        return Caller(rights.user_id, None, with_implied(frozenset(roles)))
    return Caller(rights.user_id, own.id, with_implied(frozenset({*roles, own.role})))
