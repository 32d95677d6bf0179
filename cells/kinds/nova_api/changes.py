"""Hints from a compute API: the servers that have changed lately."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from fleetlight.cells.model import Hints
from fleetlight.resources.clock import Clock
from fleetlight.resources.units import MICROSECONDS_PER_SECOND

_INTERVAL_S = 2.0
# Hosts write the times that the API compares, in whole seconds, and it shows a server a moment later.
_OVERLAP_S = 15
# Rest between two requests, as a multiple of the API's response time.
_RESTS = 5
# Each server may need a request of its own; more are left to the next comparison.
_MOST_NAMED = 100


@dataclass(slots=True)
class ChangedServers:
    """ChangeHints (fleetlight.cells.model). They prove nothing, since some changes do not set `updated_at`.

    since: returns a digest of each server that changed after a moment, including deleted ones; raises
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
            # A list that takes too long must not be requested over and over, nor grow.
            took_s = time.monotonic() - begun_s
            self._due_s = begun_s + took_s + max(_INTERVAL_S, _RESTS * took_s)
        changed = [uuid for uuid, state in shown.items() if self._shown.get(uuid) != state]
        self._shown = shown
        return Hints(frozenset(changed[:_MOST_NAMED]), None)

    def close(self) -> None:
        """Nothing is open between two requests."""
