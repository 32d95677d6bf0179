"""Whether work gets done: what tells a process that hangs from one that waits, or has nothing to do."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol


class SignOfLife:
    """The heartbeat of one thread that works; any thread may ask for it.

    It beats when something was done, when there is nothing to do, and when somebody else is waited for, who is away:
    starting the process again would help none of those. clock: seconds that only go forward.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._last_s = clock()

    def give(self) -> None:
        self._last_s = self._clock()

    @property
    def silent_s(self) -> float:
        """Seconds since the last beat."""
        return self._clock() - self._last_s


@dataclass(frozen=True, slots=True)
class Probe:
    """The answer to an orchestrator: 200 or 503, and what is said with it, as JSON."""

    is_well: bool
    body: Mapping[str, object]


ALIVE = Probe(True, {"status": "ok"})


class Probes(Protocol):
    """What answers `/healthz` (or should the process be started again?) and `/readyz` (can it do its work?)."""

    def healthz(self) -> Probe: ...
    def readyz(self) -> Probe: ...
