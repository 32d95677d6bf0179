"""Starts the processes of a fleet as soon as the fleet database answers.

They wait for a database that is down, since servers and processes start in any order, and a service manager could do no
more than start them again. A database that cannot be used ends the process, since only an operator can repair it. A
database may accept a connection and never answer, so a daemon thread queries it, and the process can end without it.
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
    """Call `begin` until the fleet database answers, and return its result; None if `stop` is set first.

    begin: runs in another thread; raises FleetUnreachableError to be called again. Any other error is raised, including
    FleetUnusableError.
    """
    retrying = retrying_until(
        stop,
        FleetUnreachableError,
        _log_wait,
        unless=FleetUnusableError,
        longest_wait_s=_LONGEST_WAIT_S,
    )
    # The waits grow steadily, with little randomness, so that an operator reading the log can follow a first start.
    waits = wait_exponential(multiplier=0.5, max=_LONGEST_WAIT_S) + wait_random(max=0.5)
    return retrying.copy(wait=waits)(lambda: _unless_stopped(begin, stop))


def _unless_stopped(begin: Callable[[], T], stop: Event) -> T:
    """The result or error of `begin`; raises FleetUnreachableError if `stop` is set before there is one."""
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
    """The probes of a process that is starting: alive, but not ready; once it has started, those in `probes`."""

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
    """Look for the fleet database, for a process that serves even while that is down.

    Yields a function that goes on looking in a thread until the block ends. It takes a callback for a database that
    turns out to be unusable. Raises FleetUnusableError at the beginning or the end.
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
