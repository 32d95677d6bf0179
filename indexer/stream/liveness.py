"""Signs of life: a thread that waits or is idle gives them, and one that hangs does not."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol


class SignOfLife:
    """The last sign of life of one working thread; any thread may read it.

    The thread gives one after a piece of work, when it is idle, and while it waits for a server that is down, since a
    restart of the process would not help then. clock: monotonic, in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._last_s = clock()

    def give(self) -> None:
        """Give a sign of life now."""
        self._last_s = self._clock()

    @property
    def silent_s(self) -> float:
        """Seconds since the last sign."""
        return self._clock() - self._last_s


@dataclass(frozen=True, slots=True)
class Probe:
    """The answer to an orchestrator: 200 if `is_well`, else 503. body: sent as JSON."""

    is_well: bool
    body: Mapping[str, object]


ALIVE = Probe(True, {"status": "ok"})


class Probes(Protocol):
    """Answers `/healthz` (must the process be restarted?) and `/readyz` (can it do its work?)."""

    def healthz(self) -> Probe: ...
    def readyz(self) -> Probe: ...
