"""Rights of a stream's reader: checks that they have not shrunk since the stream began.

The check authenticates the headers of the stream's request again, so an event that ends a login for requests ends it
for streams as soon.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Protocol, runtime_checkable

import structlog

from fleetlight.api.caller import ROLES, Caller, with_implied
from fleetlight.api.http.errors import (
    DirectoryUnavailableError,
    IdentityServiceError,
    TooManyLoginsError,
    UnauthorizedError,
)
from fleetlight.cells.retrying import retrying_every
from fleetlight.listing.errors import RightsLostError
from fleetlight.listing.watches.watch import RIGHTS_INTERVAL_S

_log = structlog.get_logger(__name__)
# A stream waits so long for the identity service, which an operator may restart meanwhile.
_TIMEOUT_S = 30.0
_RETRY_S = 1.0


@runtime_checkable
class KnowsRoles(Protocol):
    """A strategy that knows its users."""

    async def roles_of(self, user_id: str, project_id: str | None) -> frozenset[str] | None:
        """Return the roles of a login of the user in a project; None for a user who cannot log in.

        Raises DirectoryUnavailableError.
        """
        ...


class CallerRights:
    """The rights of a stream's reader. authenticate: finds the caller again; raises as `Identity` does."""

    def __init__(self, caller: Caller, authenticate: Callable[[], Awaitable[Caller]]) -> None:
        self._caller = caller
        self._authenticate = authenticate
        self._confirmed_at = time.monotonic()

    @property
    def are_old(self) -> bool:
        """Whether the last check is RIGHTS_INTERVAL_S ago."""
        return time.monotonic() - self._confirmed_at >= RIGHTS_INTERVAL_S

    async def confirm(self) -> None:
        """Return when the caller is known to still have every right.

        Raises RightsLostError when the caller has lost some, or the identity service does not answer for too long.
        """
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                caller = await self._caller_now()
        except TimeoutError:
            raise RightsLostError("the rights of the reader cannot be looked up") from None
        except UnauthorizedError:
            raise RightsLostError("the credentials that the stream was opened with are not accepted any more") from None
        reason = _what_is_lost(self._caller, caller)
        if reason is not None:
            raise RightsLostError(reason)
        self._confirmed_at = time.monotonic()

    async def _caller_now(self) -> Caller:
        """Authenticate the caller, and retry until there is an answer. Raises UnauthorizedError."""
        away = (DirectoryUnavailableError, IdentityServiceError, TooManyLoginsError)
        return await retrying_every(_RETRY_S, away, _log_first)(self._authenticate)


def _log_first(error: Exception, attempt: int, _wait_s: float) -> None:
    if attempt == 1:
        _log.warning("watch.rights_unknown", reason=getattr(error, "reason", str(error)))


def _what_is_lost(before: Caller, now: Caller) -> str | None:
    """Return in words the rights of `before` that `now` lacks; None if it lacks none. Further rights do not matter."""
    if (now.user_id, now.project_id) != (before.user_id, before.project_id):
        return "the credentials that the stream was opened with are for another project now"
    lost = with_implied(before.roles) - with_implied(now.roles)
    highest = next((role for role in ROLES if role in lost), None)
    return None if highest is None else f"the role {highest} is lost"
