"""The servers that a compute API says have changed lately."""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from fleetlight.cells.model import Hints, InstanceRow
from fleetlight.resources.clock import Clock
from fleetlight.resources.units import MICROSECONDS_PER_SECOND

_INTERVAL_S = 2.0
# The API looks at times that its hosts have written, to the second; and a server is shown a moment after that.
_OVERLAP_S = 15
# How many times longer than the API took to answer it is left alone.
_RESTS = 5


@dataclass(slots=True)
class ChangedServers:
    """ChangeHints (fleetlight.cells.model). A time does not prove that there is nothing else: some changes have none.

    since: the servers that changed after a moment, deleted ones too; raises CellUnreachableError.
    """

    since: Callable[[int], Iterable[InstanceRow]]
    clock: Clock
    is_continued = False
    _asked_at: int = field(init=False)
    _shown: dict[str, int] = field(default_factory=dict)
    _due_s: float = 0.0

    def __post_init__(self) -> None:
        self._asked_at = self.clock()

    def take(self) -> Hints | None:
        begun_s = time.monotonic()
        if begun_s < self._due_s:
            return None
        self._due_s = begun_s + _INTERVAL_S
        asked_at = self.clock()
        rows = self.since(self._asked_at - _OVERLAP_S * MICROSECONDS_PER_SECOND)
        shown = {row.uuid: hash(repr(row.record)) for row in rows}
        self._due_s = max(self._due_s, time.monotonic() + _RESTS * (time.monotonic() - begun_s))
        changed = {uuid for uuid, record in shown.items() if self._shown.get(uuid) != record}
        self._asked_at, self._shown = asked_at, shown
        return Hints(frozenset(changed), None)

    def close(self) -> None:
        """Nothing is open between two questions."""
