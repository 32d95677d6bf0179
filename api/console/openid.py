"""`/fleetlight/session/openid`: a browser logs in at the OpenID provider, and comes back with a session.

The state of the login is in a cookie of its own and not in the memory of a process, so that another process can finish
the login. That cookie is SameSite=Lax: the browser comes back from another site, and would not send a strict cookie
then. The session's cookie is strict; the console's page sends it first.
"""

from collections.abc import Awaitable, Callable

import structlog
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from fleetlight.api.console.assets import message_page
from fleetlight.api.documented import ApiOperation
from fleetlight.api.http.connection import ClientConnection
from fleetlight.api.http.errors import DirectoryUnavailableError, IdentityServiceError, TooManyLoginsError
from fleetlight.api.http.headers import Header
from fleetlight.api.identity.browser import set_session
from fleetlight.api.identity.openid.errors import LoginFailedError
from fleetlight.api.identity.openid.strategy import CALLBACK, LOGIN_PAGE, LOGOUT_PAGE, OpenIdIdentity
from fleetlight.api.shared.endpoint import Middleware

_log = structlog.get_logger(__name__)
ATTEMPT_COOKIE = "fleetlight_openid"
_CONSOLE = "/console/"
_LONGEST_PAGE = 1000
_ATTEMPT_S = 600
_GIVES = (Header("Location", "The page to go to", {"type": "string"}, is_required=True),)


def _operation(path: str, summary: str, *query: str, faults: tuple[int, ...] = ()) -> ApiOperation:
    return ApiOperation("GET", path, None, 303, is_open=True, query=query, gives=_GIVES, faults=faults, summary=summary)


BEGIN = _operation(LOGIN_PAGE, "Log in at the OpenID provider, then see a page of the console", "next", faults=(503,))
FINISH = _operation(
    CALLBACK, "The answer of the OpenID provider", "code", "state", "iss", "error", faults=(400, 401, 403, 429, 503)
)
END = _operation(LOGOUT_PAGE, "Log out at the OpenID provider, after the log-out here")


class OpenIdHandlers:
    """The handlers of a login. public_url: `api.compute_link_prefix`, which browsers and the provider use; no Host."""

    def __init__(self, identity: OpenIdIdentity, middleware: Middleware, public_url: str) -> None:
        self._identity = identity
        self._middleware = middleware
        self._public_url = public_url
        self._is_secure = public_url.startswith("https://")

    async def begin(self, http: Request) -> Response:
        """`GET /fleetlight/session/openid?next=`"""

        async def respond() -> Response:
            page, kept = await self._identity.begin_login(_own_page(http.query_params.get("next", "")))
            response = _to(page)
            response.set_cookie(
                ATTEMPT_COOKIE,
                kept,
                max_age=_ATTEMPT_S,
                path=CALLBACK,
                httponly=True,
                samesite="lax",
                secure=self._is_secure,
            )
            return response

        return await self._answer(http, respond)

    async def finish(self, http: Request) -> Response:
        """`GET /fleetlight/session/openid/callback`"""

        async def respond() -> Response:
            kept = http.cookies.get(ATTEMPT_COOKIE, "")
            session, page = await self._identity.finish_login(kept, http.query_params, ClientConnection.of(http))
            response = _to(self._public_url + page)
            set_session(response, session, is_secure=self._is_secure)
            return response

        response = await self._answer(http, respond)
        response.delete_cookie(ATTEMPT_COOKIE, CALLBACK, secure=self._is_secure, httponly=True, samesite="lax")
        return response

    async def end(self, http: Request) -> Response:
        """`GET /fleetlight/session/openid/end`"""

        async def respond() -> Response:
            return _to(await self._identity.provider_logout_page(self._public_url + _CONSOLE))

        return await self._answer(http, respond)

    async def _answer(self, http: Request, respond: Callable[[], Awaitable[Response]]) -> Response:
        """Answer by `respond`; if that fails, with a page that explains the error."""

        async def respond_or_explain(_minor: int) -> Response:
            try:
                return await respond()
            except LoginFailedError as error:
                _log.warning("login_refused", reason=error.reason)
                return message_page(str(error), error.status)
            except TooManyLoginsError as error:
                _log.warning("login_refused", reason=str(error))
                return message_page(str(error), 429)
            except (IdentityServiceError, DirectoryUnavailableError) as error:
                _log.error("identity.unavailable", reason=error.reason)
                name = self._identity.name
                return message_page(f"{name} cannot be reached to log you in. Try again in a few minutes.", 503)

        response = await self._middleware.answer(http, respond_or_explain)
        response.headers["Cache-Control"] = "no-store"
        return response


def _to(page: str) -> Response:
    # 303, since the provider may have sent its answer by a form (POST).
    return RedirectResponse(page, 303, {"Referrer-Policy": "no-referrer"})


def _own_page(page: str) -> str:
    """Return `page` if it is one of the console, else the first page: no link to us may lead to another site."""
    return page if page.startswith(_CONSOLE) and len(page) <= _LONGEST_PAGE else _CONSOLE
