"""The start of the processes of a fleet: they begin as soon as the fleet database answers.

They wait for a database that is away, since servers and processes come up in any order, and a service manager that
starts the process again could only do the same. A database that cannot be used ends the process: an operator has to
repair that. A database may take a connection and never answer: so a background thread asks it, and the end of the
process does not wait for that thread.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from threading import Event
from typing import TypeVar

import structlog
from tenacity.wait import wait_exponential, wait_random

from fleetlight.cells.daemon_threads import in_background
from fleetlight.cells.errors import FleetUnreachableError, FleetUnusableError
from fleetlight.cells.fleet.fleet import Fleet
from fleetlight.cells.retrying import retrying_until
from fleetlight.indexer.stream.liveness import Probe, Probes

_log = structlog.get_logger(__name__)
T = TypeVar("T")

_LONGEST_WAIT_S = 10.0
_STOP_INTERVAL_S = 0.1
# As long as PostgreSQL may take to accept a connection (fleetlight.cells.database.engines).
_TIMEOUT_S = 5.0


def when_reachable(begin: Callable[[], T], stop: Event) -> T | None:
    """What `begin` returns, tried until the fleet database answers; None when `stop` was set before.

    begin: called in another thread; raises FleetUnreachableError. Anything else that it raises, FleetUnusableError too,
    is raised.
    """
    retrying = retrying_until(
        stop,
        FleetUnreachableError,
        _log_wait,
        unless=FleetUnusableError,
        longest_wait_s=_LONGEST_WAIT_S,
    )
    # Growing for sure, and hardly random: an operator at the log of a first start sees what comes next.
    waits = wait_exponential(multiplier=0.5, max=_LONGEST_WAIT_S) + wait_random(max=0.5)
    return retrying.copy(wait=waits)(lambda: _unless_stopped(begin, stop))


def _unless_stopped(begin: Callable[[], T], stop: Event) -> T:
    """What `begin` returns or raises; FleetUnreachableError when it has done neither and `stop` is set."""
    beginning = in_background(begin, "fleet-begin")
    while not wait([beginning], _STOP_INTERVAL_S).done:
        if stop.is_set():
            raise FleetUnreachableError("it does not answer")
    return beginning.result()


def _is_away(error: BaseException) -> bool:
    return isinstance(error, FleetUnreachableError) and not isinstance(error, FleetUnusableError)


def _log_wait(error: FleetUnreachableError, attempt: int, wait_s: float) -> None:
    _log.warning("fleet.unreachable", reason=error.reason, attempt=attempt, again_in_s=round(wait_s, 1))


class ProbesOfStart:
    """The probes of a process that is alive, and not ready, until it has reached the fleet database; then `probes`."""

    def __init__(self, probes: Probes) -> None:
        self._probes = probes
        self.has_started = False

    def healthz(self) -> Probe:
        return self._probes.healthz()

    def readyz(self) -> Probe:
        if self.has_started:
            return self._probes.readyz()
        return Probe(False, {"status": "unavailable", "fleet": "down"})


@contextmanager
def looking_for(fleet: Fleet) -> Iterator[Callable[[Callable[[], None]], None]]:
    """For a process that serves also while the fleet database is away, and answers accordingly.

    Gives a function that then goes on looking, in a thread of its own, until the block ends. It takes what is to be
    called when the database turns out to be one that cannot be used. Raises FleetUnusableError, before or after.
    """
    stop = Event()
    is_away = False
    try:
        in_background(fleet.cells, "fleet-begin").result(_TIMEOUT_S)
    except TimeoutError:
        is_away = True
    except FleetUnreachableError as error:
        if not _is_away(error):
            raise
        is_away = True
    with ThreadPoolExecutor(1, thread_name_prefix="fleet") as threads:
        looks: list[Future[object]] = []

        def look_on(on_failure: Callable[[], None]) -> None:
            if not is_away:
                return

            def ended(look: Future[object]) -> None:
                if look.exception() is not None:
                    on_failure()

            looks.append(threads.submit(when_reachable, fleet.cells, stop))
            looks[-1].add_done_callback(ended)

        try:
            yield look_on
        finally:
            stop.set()
    for look in looks:
        look.result()
