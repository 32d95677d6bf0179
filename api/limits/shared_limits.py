"""Limits that hold for all processes of an API together, whichever of them a request reaches."""

from dataclasses import dataclass, field

from fleetlight.api.limits.login_limit import LoginLimit
from fleetlight.api.limits.watch_limit import WatchLimits, WatchSlots
from fleetlight.api.settings import ApiSettings


@dataclass(frozen=True, slots=True)
class SharedLimits:
    """To be made before the processes are forked; those on logins of `api.auth` are made with the identity."""

    watches: WatchSlots
    rapi_logins: LoginLimit = field(default_factory=LoginLimit)

    @classmethod
    def of(cls, api: ApiSettings) -> "SharedLimits":
        return cls(WatchSlots(WatchLimits(api.max_watches, api.max_watches_per_user, api.max_watches_per_project)))

    def begin(self, process: int) -> None:
        """In the process of that number, from 1 on, before it serves: what the one before it held is free."""
        self.watches.begin(process)
