"""Strategy `none`, for development: headers name the caller; without them the caller is an administrator."""

import re
from collections.abc import Mapping, Sequence
from ipaddress import ip_address

from fleetlight.api.caller import ROLES, Caller
from fleetlight.api.http.connection import UNKNOWN, ClientConnection
from fleetlight.api.http.errors import BadRequestError, InsecureListeningError
from fleetlight.api.identity.browser import Account, BrowserLogin, Named

DEFAULT_PROJECT = "demo"
DEFAULT_USER = "admin"
_IDENTIFIER = re.compile(r"[A-Za-z0-9._-]{1,255}")


class NoIdentity:
    """Believes the headers X-Project-Id, X-User-Id and X-Roles."""

    logins: Sequence[str] = ()

    async def authenticate(self, headers: Mapping[str, str], connection: ClientConnection = UNKNOWN) -> Caller:
        user_id = _identifier(headers, "X-User-Id", DEFAULT_USER)
        project_id = _identifier(headers, "X-Project-Id", DEFAULT_PROJECT)
        named = headers.get("X-Roles", "admin")
        roles = frozenset(role.strip().lower() for role in named.split(","))
        if not roles <= set(ROLES):
            raise BadRequestError(f"header X-Roles: {named!r} must be a comma list of {', '.join(ROLES)}")
        return Caller(user_id, project_id, roles)

    async def begin_session(self, login: BrowserLogin, connection: ClientConnection) -> str:
        raise BadRequestError("There is nothing to log in to: every caller is let in.")

    async def change_project(self, session: str, project: str) -> str:
        raise BadRequestError("There is nothing to log in to: every caller is let in.")

    async def end_session(self, session: str) -> None:
        """Do nothing, since the strategy has no sessions."""

    async def account(self, caller: Caller, headers: Mapping[str, str]) -> Account:
        project = Named(caller.project_id or "", caller.project_id or "")
        return Account(Named(caller.user_id, caller.user_id), project, [project])


def refuse_open_listening(host: str, *, insecure: bool) -> None:
    """Raise InsecureListeningError when `host` is reachable from other machines and `insecure` was not given."""
    if not (insecure or _is_loopback(host)):
        raise InsecureListeningError(host)


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _identifier(headers: Mapping[str, str], name: str, default: str) -> str:
    value = headers.get(name, default)
    if not _IDENTIFIER.fullmatch(value):
        raise BadRequestError(f"header {name}: {value!r} is not an identifier (letters, digits, '.', '_' and '-')")
    return value
