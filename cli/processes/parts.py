"""The parts of a process: threads that run until the process stops them, in an order that it decides."""

from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Event

import structlog

from fleetlight.cells.errors import CellError
from fleetlight.cli.errors import CommandError
from fleetlight.indexer.errors import IndexerError
from fleetlight.notifications.errors import NotificationError

_log = structlog.get_logger(__name__)

Run = Callable[[Event], object]

# The texts of these errors say what to do. Any other error is a mistake of this program, and needs its traceback.
_IN_WORDS = (CommandError, CellError, IndexerError, NotificationError)


class ProcessPart:
    """A thread that runs `run(stop)`; if that raises, the whole process has to end.

    on_failure: called once, from the thread, if `run` raised an error.
    """

    def __init__(self, name: str, run: Run, on_failure: Callable[[], None]) -> None:
        self.name = name
        self._stop = Event()
        self._on_failure = on_failure
        self._executor = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._future = self._executor.submit(run, self._stop)
        self._future.add_done_callback(self._ended)

    @property
    def has_failed(self) -> bool:
        return self.failure is not None

    @property
    def failure(self) -> BaseException | None:
        """The error that the part ended with, if any."""
        return self._future.exception() if self._future.done() else None

    def ask_to_stop(self) -> None:
        """Ask the part to stop, without waiting."""
        self._stop.set()

    def stop(self) -> None:
        """Ask the part to stop, and wait until it has ended."""
        self.ask_to_stop()
        self._executor.shutdown(wait=True)

    def _ended(self, future: Future[object]) -> None:
        error = future.exception()
        if error is not None:
            if isinstance(error, _IN_WORDS):
                _log.error("part.failed", part=self.name, reason=str(error))
            else:
                _log.error("part.failed", part=self.name, exc_info=error)
            self._on_failure()


def raise_failure(parts: Iterable[ProcessPart]) -> None:
    """Raises CommandError if a part failed, with the part's own text if that is meant for people."""
    failures = [part.failure for part in parts if part.failure is not None]
    for failure in failures:
        if isinstance(failure, _IN_WORDS):
            raise CommandError(str(failure)) from failure
    if failures:
        raise CommandError("a part of the process failed; the log says why") from failures[0]


def stop_all(parts: list[ProcessPart]) -> None:
    """Stop parts that do not depend on each other, all at once."""
    for part in parts:
        part.ask_to_stop()
    for part in parts:
        part.stop()
