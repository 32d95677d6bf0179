"""Signs of life: a process that hangs gives none, one that waits or has nothing to do does."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol


class SignOfLife:
    """The last sign of life of one working thread; any thread may read it.

    The thread gives one when it has done something, when it has nothing to do, and while it waits for a server that is
    away: starting the process again would help none of those. clock: seconds that only go forward.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._last_s = clock()

    def give(self) -> None:
        self._last_s = self._clock()

    @property
    def silent_s(self) -> float:
        """Seconds since the last sign."""
        return self._clock() - self._last_s


@dataclass(frozen=True, slots=True)
class Probe:
    """The answer to an orchestrator: 200 or 503, and what is said with it, as JSON."""

    is_well: bool
    body: Mapping[str, object]


ALIVE = Probe(True, {"status": "ok"})


class Probes(Protocol):
    """What answers `/healthz` (must the process be started again?) and `/readyz` (can it do its work?)."""

    def healthz(self) -> Probe: ...
    def readyz(self) -> Probe: ...
