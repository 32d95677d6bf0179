"""The rights of the caller that reads a stream: whether they still are what they were when it began.

The strategy of identity that let the request in is asked again, with the headers of that request: so whatever ends a
login for requests ends it for streams as well, and as soon.
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
# Until then nothing is told; an operator can restart the identity service meanwhile.
_TIMEOUT_S = 30.0
_RETRY_S = 1.0


@runtime_checkable
class KnowsRoles(Protocol):
    """A strategy that has users of its own."""

    async def roles_of(self, user_id: str, project_id: str | None) -> frozenset[str] | None:
        """The roles in a project that the user would log in with; None for a user who cannot.

        Raises DirectoryUnavailableError.
        """
        ...


class CallerRights:
    """caller: of the request for the stream. authenticate: finds it again; raises as `Identity` does."""

    def __init__(self, caller: Caller, authenticate: Callable[[], Awaitable[Caller]]) -> None:
        self._caller = caller
        self._authenticate = authenticate
        self._confirmed_at = time.monotonic()

    @property
    def are_old(self) -> bool:
        """Whether the last look is RIGHTS_INTERVAL_S ago."""
        return time.monotonic() - self._confirmed_at >= RIGHTS_INTERVAL_S

    async def confirm(self) -> None:
        """Return once it is certain that the caller still has every right.

        Raises RightsLostError when that is not so, or cannot be found out for too long.
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
        """Tries until there is an answer. Raises UnauthorizedError."""
        away = (DirectoryUnavailableError, IdentityServiceError, TooManyLoginsError)
        return await retrying_every(_RETRY_S, away, _log_first)(self._authenticate)


def _log_first(error: Exception, attempt: int, _wait_s: float) -> None:
    if attempt == 1:
        _log.warning("watch.rights_unknown", reason=getattr(error, "reason", str(error)))


def _what_is_lost(before: Caller, now: Caller) -> str | None:
    """What `before` had and `now` has not, in words; None for nothing. What a caller has more is no reason to end."""
    if (now.user_id, now.project_id) != (before.user_id, before.project_id):
        return "the credentials that the stream was opened with are for another project now"
    lost = with_implied(before.roles) - with_implied(now.roles)
    highest = next((role for role in ROLES if role in lost), None)
    return None if highest is None else f"the role {highest} is lost"
