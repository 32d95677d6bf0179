"""The servers that a compute API says have changed lately."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from fleetlight.cells.model import Hints
from fleetlight.resources.clock import Clock
from fleetlight.resources.units import MICROSECONDS_PER_SECOND

_INTERVAL_S = 2.0
# The API looks at times that its hosts have written, to the second; and a server is shown a moment after that.
_OVERLAP_S = 15
# How many times longer than the API took to answer it is left alone.
_RESTS = 5
# Each may have to be asked for by itself; what is beyond them is left to the next comparison.
_MOST_NAMED = 100


@dataclass(slots=True)
class ChangedServers:
    """ChangeHints (fleetlight.cells.model). A time does not prove that there is nothing else: some changes have none.

    since: of the servers that changed after a moment, deleted ones too, something that differs when they do; raises
        CellUnreachableError.
    """

    since: Callable[[int], Mapping[str, int]]
    clock: Clock
    is_continued = False
    _asked_at: int = field(init=False)
    _shown: Mapping[str, int] = field(default_factory=dict)
    _due_s: float = 0.0

    def __post_init__(self) -> None:
        self._asked_at = self.clock()

    def take(self) -> Hints | None:
        begun_s = time.monotonic()
        if begun_s < self._due_s:
            return None
        since, self._asked_at = self._asked_at - _OVERLAP_S * MICROSECONDS_PER_SECOND, self.clock()
        try:
            shown = self.since(since)
        finally:
            # What cannot be listed in time must not be asked for again and again, nor grow.
            took_s = time.monotonic() - begun_s
            self._due_s = begun_s + took_s + max(_INTERVAL_S, _RESTS * took_s)
        changed = [uuid for uuid, state in shown.items() if self._shown.get(uuid) != state]
        self._shown = shown
        return Hints(frozenset(changed[:_MOST_NAMED]), None)

    def close(self) -> None:
        """Nothing is open between two questions."""
