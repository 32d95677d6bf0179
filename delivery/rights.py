"""The rights of owners of subscriptions, which a deliverer looks up without their credentials.

Where the strategy of identity has users of its own (`basic`, `tokens`) it is asked for the roles of the owner, as a
login would have them. With `none` every caller has every right. Keystone tells no service of users that are not there:
such a subscription goes on for a while after its owner has last asked for it (`UNCONFIRMED_US`).
"""

import time

import structlog

from fleetlight.api.caller import Caller, with_implied
from fleetlight.api.http.errors import DirectoryUnavailableError
from fleetlight.api.identity.rights import KnowsRoles
from fleetlight.cells.retrying import retrying_every
from fleetlight.listing.errors import RightsLostError
from fleetlight.listing.watches.watch import RIGHTS_INTERVAL_S

_log = structlog.get_logger(__name__)
_RETRY_S = 1.0
UNCONFIRMED_US = 30 * 24 * 3600 * 1_000_000


class StandingRights:
    """Those of an owner, as ConfirmsRights. identity: None where there is nothing to look up."""

    def __init__(self, owner: Caller, identity: KnowsRoles | None) -> None:
        self._owner = owner
        self._identity = identity
        self._confirmed_at = float("-inf")

    @property
    def are_old(self) -> bool:
        return time.monotonic() - self._confirmed_at >= RIGHTS_INTERVAL_S

    async def confirm(self) -> None:
        """Return once it is certain that the owner has every right still. Raises RightsLostError."""
        if not self.are_old:
            return
        if self._identity is not None:
            looking = retrying_every(_RETRY_S, DirectoryUnavailableError, _log_first)
            roles: frozenset[str] | None = await looking(
                self._identity.roles_of, self._owner.user_id, self._owner.project_id
            )
            if roles is None:
                raise RightsLostError("its owner cannot log in any more")
            lost = with_implied(self._owner.roles) - with_implied(roles)
            if lost:
                raise RightsLostError(f"its owner has lost the role {min(lost)}")
        self._confirmed_at = time.monotonic()


def _log_first(error: Exception, attempt: int, _wait_s: float) -> None:
    if attempt == 1:
        _log.warning("deliverer.rights_unknown", reason=str(error))
