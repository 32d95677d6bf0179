"""How many streams of changes there may be: in this process, of one user and of one project."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from api.http.errors import TooManyOwnWatchesError, TooManyWatchesError
from api.identity.caller import Caller

# No place is known to become free at a certain moment.
_RETRY_AFTER_S = 10


@dataclass(frozen=True, slots=True)
class WatchLimits:
    """Streams at the same time, of one process."""

    of_all: int
    per_user: int
    per_project: int


class WatchPlaces:
    """The places that are taken."""

    def __init__(self, limits: WatchLimits) -> None:
        self._limits = limits
        self._taken: Counter[tuple[str, str]] = Counter()

    @contextmanager
    def take(self, caller: Caller) -> Iterator[None]:
        """Take a place for `caller` while the block lasts. Raises TooManyOwnWatchesError, TooManyWatchesError."""
        holders = {("user", caller.user_id): self._limits.per_user}
        if caller.project_id is not None:
            holders["project", caller.project_id] = self._limits.per_project
        for holder, limit in holders.items():
            if self._taken[holder] >= limit:
                raise TooManyOwnWatchesError(holder[0], limit, _RETRY_AFTER_S)
        if self._taken["all", ""] >= self._limits.of_all:
            raise TooManyWatchesError(self._limits.of_all, _RETRY_AFTER_S)
        counted = [*holders, ("all", "")]
        self._taken.update(counted)
        try:
            yield
        finally:
            self._taken.subtract(counted)
            # Names of callers who were here once are not kept.
            self._taken = +self._taken
