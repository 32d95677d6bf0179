"""Limits shared by all processes of an API."""

from dataclasses import dataclass, field

from fleetlight.api.limits.login_limit import LoginLimit
from fleetlight.api.limits.watch_limit import WatchLimits, WatchSlots
from fleetlight.api.settings import ApiSettings


@dataclass(frozen=True, slots=True)
class SharedLimits:
    """The shared limits, made before the fork; the strategy of `api.auth` makes its limits on logins itself."""

    watches: WatchSlots
    rapi_logins: LoginLimit = field(default_factory=LoginLimit)

    @classmethod
    def of(cls, api: ApiSettings) -> "SharedLimits":
        return cls(WatchSlots(WatchLimits(api.max_watches, api.max_watches_per_user, api.max_watches_per_project)))

    def begin(self, process: int) -> None:
        """Begin to serve as process number `process`, from 1 on; frees the slots of its predecessor."""
        self.watches.begin(process)
