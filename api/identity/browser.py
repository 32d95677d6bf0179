"""Logins of browsers: a cookie that scripts cannot read replaces the header that programs send.

The cookie holds a token of the strategy, which checks it with each request, on every face. A browser sends cookies by
itself, so a change also needs a header that pages of other sites cannot add. Such pages may not use other logins that
the browser remembers either, nor a network that only the browser can reach.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from pydantic import SecretStr
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import cookie_parser
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from fleetlight.api.caller import Caller, Identity
from fleetlight.api.http.connection import ClientConnection

COOKIE = "fleetlight_session"
SECURE_COOKIE = f"__Host-{COOKIE}"
"""The cookie of a site with TLS: browsers let no other site, and no page without TLS, set a cookie of this name."""
CONSOLE_HEADER = "Fleetlight-Request"
CONSOLE = "console"
TOKEN_HEADER = "X-Auth-Token"  # noqa: S105  # the name of a header
ENDED_CHALLENGE = "Fleetlight-Session"
"""The challenge for a session that has ended; at that of `basic` a browser would show its own password dialog."""

_READS = {"GET", "HEAD", "OPTIONS"}
_OWN_SITE = {"same-origin", "none"}


@dataclass(frozen=True, slots=True)
class BrowserLogin:
    """A login: user and password, a token, or a login link, which logs in once. project: by id or name."""

    user: str | None = None
    password: SecretStr | None = None
    token: SecretStr | None = None
    project: str | None = None
    link: SecretStr | None = None


@dataclass(frozen=True, slots=True)
class Named:
    id: str
    name: str


@dataclass(frozen=True, slots=True)
class Account:
    """The account of a session. project: None without one. projects: those that the session can change to.

    logout_page: the page, at the provider of the login, that ends the login there, too; None if there is none.
    """

    user: Named
    project: Named | None
    projects: Sequence[Named]
    logout_page: str | None = None


class BrowserIdentity(Identity, Protocol):
    """A strategy at which browsers log in. A session is a text that it accepts in the header X-Auth-Token.

    logins: the ways to log in: `password`, `token`, `openid`; none if the strategy lets every caller in.
    """

    @property
    def logins(self) -> Sequence[str]: ...

    async def begin_session(self, login: BrowserLogin, connection: ClientConnection) -> str:
        """Begin a session. Raises UnauthorizedError, TooManyLoginsError, BadRequestError."""
        ...

    async def change_project(self, session: str, project: str) -> str:
        """Return the session for another project, by id or name. Raises UnauthorizedError, BadRequestError."""
        ...

    async def end_session(self, session: str) -> None:
        """End a session and every copy of its cookie; an ended session stays ended."""
        ...

    async def account(self, caller: Caller, headers: Mapping[str, str]) -> Account:
        """Return the names of a request's caller, and its projects."""
        ...


class BrowserLogins:
    """Turns the cookie of a session into the header of its token, unless the request has a login of its own.

    It refuses changes from a page of another site, and changes by cookie without CONSOLE_HEADER.
    refusal: makes the answer to a request for a path, with the reason. link_prefix: `api.compute_link_prefix`.
    """

    def __init__(self, app: ASGIApp, refusal: Callable[[str, str], Response], link_prefix: str | None) -> None:
        self._app = app
        self._refusal = refusal
        self._link_prefix = link_prefix

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        if scope["type"] != "http":
            return self._app(scope, receive, send)
        headers, is_change = Headers(scope=scope), scope["method"] not in _READS
        if is_change and _is_foreign(headers):
            why = "A page of another site must not change anything here."
            return self._refusal(scope["path"], why)(scope, receive, send)
        session = _session_of(scope, headers, self._link_prefix)
        if session is None:
            return self._app(scope, receive, send)
        if is_change and headers.get(CONSOLE_HEADER) != CONSOLE:
            why = f"With the cookie of a login, what changes something needs {CONSOLE_HEADER}: {CONSOLE}."
            return self._refusal(scope["path"], why)(scope, receive, send)
        # In place, since outer middleware reads the route from the same scope.
        scope["headers"] = list(scope["headers"])
        MutableHeaders(scope=scope)[TOKEN_HEADER] = session
        return self._app(scope, receive, send)


def _is_foreign(headers: Headers) -> bool:
    """Whether a page of another site has sent the request: a browser says so in `Sec-Fetch-Site`, or in `Origin`.

    Clients that are no browsers send neither (https://www.w3.org/TR/fetch-metadata, and RFC 6454, 7).
    """
    site = headers.get("sec-fetch-site")
    if site is not None:
        return site not in _OWN_SITE
    origin = headers.get("origin")
    return origin is not None and origin.partition("://")[2] != headers.get("host")


def _session_of(scope: Scope, headers: Headers, link_prefix: str | None) -> str | None:
    """Return the session in the cookie; None without cookie, or if the request has another login."""
    if TOKEN_HEADER in headers or "Authorization" in headers:
        return None
    cookies = cookie_parser("; ".join(headers.getlist("cookie")))
    if SECURE_COOKIE in cookies or (COOKIE in cookies and is_secure(scope, link_prefix)):
        return cookies.get(SECURE_COOKIE) or None
    return cookies.get(COOKIE) or None


def is_secure(scope: Scope, link_prefix: str | None) -> bool:
    """Whether browsers connect by TLS."""
    return (link_prefix or f"{scope['scheme']}:").startswith("https:")


def set_session(response: Response, session: str, *, is_secure: bool) -> None:
    """Set the cookie, without an age: it ends with the browser, and the session by itself."""
    name = SECURE_COOKIE if is_secure else COOKIE
    response.set_cookie(name, session, path="/", httponly=True, samesite="strict", secure=is_secure)


def take_session(response: Response, *, is_secure: bool) -> None:
    """Have the browser delete the cookie."""
    name = SECURE_COOKIE if is_secure else COOKIE
    response.delete_cookie(name, path="/", httponly=True, samesite="strict", secure=is_secure)
