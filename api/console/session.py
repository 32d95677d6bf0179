"""`/fleetlight/session`: login of a browser, which keeps it in a cookie (`api.identity.browser`).

Programs send their login with each request instead. Both have the same rights, looked up at each request.
"""

from typing import Annotated, Any, Self

from pydantic import Field, SecretStr, model_validator
from pydantic_core import PydanticCustomError
from starlette.requests import Request
from starlette.responses import Response

from fleetlight.api.bodies.request_body import Body, RequestModel, read_json
from fleetlight.api.caller import Caller
from fleetlight.api.documented import ApiOperation
from fleetlight.api.http.answers import empty_answer, json_answer
from fleetlight.api.http.connection import ClientConnection
from fleetlight.api.http.errors import UnauthorizedError
from fleetlight.api.http.headers import Header
from fleetlight.api.http.shapes import BOOL, TEXT, ListOf, Shape, or_null
from fleetlight.api.identity.browser import (
    CONSOLE,
    CONSOLE_HEADER,
    COOKIE,
    ENDED_CHALLENGE,
    SECURE_COOKIE,
    TOKEN_HEADER,
    BrowserIdentity,
    BrowserLogin,
    Named,
    is_secure,
    set_session,
    take_session,
)
from fleetlight.api.identity.openid.strategy import OpenIdIdentity
from fleetlight.api.shared.endpoint import Middleware

_PATH = "/fleetlight/session"
_NAMED = Shape({"id": TEXT, "name": TEXT})
_ACCOUNT = Shape(
    {
        "user": or_null(_NAMED),
        "project": or_null(_NAMED),
        "projects": ListOf(_NAMED),
        "is_admin": BOOL,
        "roles": ListOf(TEXT),
        "logins": ListOf(TEXT),
        "openid": or_null(Shape({"name": TEXT})),
        "logout_page": or_null(TEXT),
    }
)
_REQUEST = Header(
    CONSOLE_HEADER,
    "What a request with the cookie of a login needs to change something",
    {"type": "string", "enum": [CONSOLE]},
)
_SET_COOKIE = Header("Set-Cookie", f"The login, {COOKIE}; by TLS {SECURE_COOKIE}", {"type": "string"}, is_required=True)
_Text = Annotated[str, Field(min_length=1, max_length=255)]


class SessionBody(RequestModel):
    """One of user and password, a token, a login link, or the project that a session changes to."""

    user: _Text | None = None
    password: SecretStr | None = None
    token: SecretStr | None = None
    link: SecretStr | None = None
    project: _Text | None = None

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        has_user = {self.user is not None, self.password is not None}
        ways = [True in has_user, self.token is not None, self.link is not None]
        if len(has_user) > 1 or sum(ways) > 1 or not self.model_fields_set:
            raise PydanticCustomError("not_one", "Give user and password, or a token, or a link, or a project alone")
        return self


SESSION = Body(SessionBody, is_secret=True)
SHOW = ApiOperation("GET", _PATH, _ACCOUNT, is_open=True, faults=(), summary="The user that is logged in, or null")
LOG_IN = ApiOperation(
    "POST",
    _PATH,
    _ACCOUNT,
    is_open=True,
    body=SESSION,
    takes=(_REQUEST,),
    gives=(_SET_COOKIE,),
    faults=(401, 403, 413),
    summary="Log in with a browser, or change to another project",
)
LOG_OUT = ApiOperation(
    "DELETE", _PATH, None, 204, is_open=True, takes=(_REQUEST,), faults=(403,), summary="End the login of a browser"
)


class SessionHandlers:
    """The handlers of sessions. link_prefix: `api.compute_link_prefix`."""

    def __init__(self, identity: BrowserIdentity, middleware: Middleware, link_prefix: str | None) -> None:
        self._identity = identity
        self._middleware = middleware
        self._link_prefix = link_prefix

    async def show(self, http: Request) -> Response:
        """`GET /fleetlight/session`"""

        async def respond(minor: int) -> Response:
            try:
                request = await self._middleware.request(http, minor)
                return json_answer(await self._document(request.caller, http.headers.get(TOKEN_HEADER, "")))
            except UnauthorizedError:
                # Not 401, which browsers log as an error at each first visit of the console.
                return self._without_cookie(http, json_answer(self._no_account()))

        return await self._middleware.answer(http, respond)

    async def log_in(self, http: Request) -> Response:
        """`POST /fleetlight/session`"""

        async def respond(minor: int) -> Response:
            body = SESSION.check(await read_json(http), minor)
            connection = ClientConnection.of(http)
            try:
                session = await self._begun(body, http.headers.get(TOKEN_HEADER), connection)
                caller = await self._identity.authenticate({TOKEN_HEADER: session}, connection)
                response = json_answer(await self._document(caller, session))
            except UnauthorizedError:
                # A refused login leaves an existing session alone, since a link of another person may have caused it.
                refused = self._refused()
                return self._without_cookie(http, refused) if _changes_project(body) else refused
            set_session(response, session, is_secure=self._is_secure(http))
            return response

        return await self._middleware.answer(http, respond)

    async def log_out(self, http: Request) -> Response:
        """`DELETE /fleetlight/session`"""

        async def respond(_minor: int) -> Response:
            session = http.headers.get(TOKEN_HEADER)
            if session is not None:
                await self._identity.end_session(session)
            response = empty_answer(204)
            take_session(response, is_secure=self._is_secure(http))
            return response

        return await self._middleware.answer(http, respond)

    async def _begun(self, body: SessionBody, session: str | None, connection: ClientConnection) -> str:
        if body.project is not None and _changes_project(body):
            if session is None:
                raise UnauthorizedError("no session to change the project of", ENDED_CHALLENGE)
            return await self._identity.change_project(session, body.project)
        login = BrowserLogin(body.user, body.password, body.token, body.project, body.link)
        return await self._identity.begin_session(login, connection)

    async def _document(self, caller: Caller, session: str) -> dict[str, Any]:
        account = await self._identity.account(caller, {TOKEN_HEADER: session})
        return {
            "user": _named(account.user),
            "project": None if account.project is None else _named(account.project),
            "projects": [_named(project) for project in account.projects],
            "is_admin": caller.is_admin,
            "roles": sorted(caller.roles),
            **self._ways_in(),
            "logout_page": account.logout_page,
        }

    def _no_account(self) -> dict[str, Any]:
        return {
            **dict.fromkeys(("user", "project", "logout_page")),
            **dict.fromkeys(("projects", "roles"), ()),
            "is_admin": False,
            **self._ways_in(),
        }

    def _ways_in(self) -> dict[str, Any]:
        name = self._identity.name if isinstance(self._identity, OpenIdIdentity) else None
        return {"logins": list(self._identity.logins), "openid": None if name is None else {"name": name}}

    def _refused(self) -> Response:
        """Answer with the ways to log in, without the challenge at which a browser would show its own dialog."""
        text = {"code": 401, "message": "Log in with a user and password, or with a token."}
        headers = {"WWW-Authenticate": ENDED_CHALLENGE}
        return json_answer({"unauthorized": text, **self._ways_in()}, 401, headers)

    def _without_cookie(self, http: Request, response: Response) -> Response:
        """Delete the cookie of a session that has ended."""
        if {COOKIE, SECURE_COOKIE} & http.cookies.keys():
            take_session(response, is_secure=self._is_secure(http))
        return response

    def _is_secure(self, http: Request) -> bool:
        return is_secure(http.scope, self._link_prefix)


def _changes_project(body: SessionBody) -> bool:
    return body.user is None and body.token is None and body.link is None


def _named(named: Named) -> dict[str, str]:
    return {"id": named.id, "name": named.name}
