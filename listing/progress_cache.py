"""Cache of the index's progress, read in a thread of its own, so that pages and readings do not wait for each other."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from threading import Condition, Thread

import structlog

from fleetlight.indexer.backends.base import CellProgress
from fleetlight.indexer.errors import IndexAbsentError, IndexUnavailableError

_log = structlog.get_logger(__name__)

_INTERVAL_S = 0.5
# The thread ends when no list has come for so long.
_IDLE_AFTER_S = 5.0
_MAX_AGE_S = 1.0
_TIMEOUT_S = 0.25
# A process that removes rows from the index announces that first, and waits ten seconds for lists that have not yet
# read the announcement.
_LATE_MAX_AGE_S = 3.0


class IndexSlowError(IndexUnavailableError):
    """The index has not answered in time. It may still do so, so lists keep using it."""


@dataclass(frozen=True, slots=True)
class _Reading:
    """One reading of the progress. began_at: monotonic seconds; if it failed, before all time. error: why it failed."""

    began_at: float = float("-inf")
    progress: Mapping[str, CellProgress] = field(default_factory=dict)
    error: Exception | None = None


class ProgressCache:
    """The index's progress by cell uuid.

    Remembered progress may understate the index, and never overstates it. While requests come, a thread with its own
    event loop reads the progress each half second, so a process that is busy with pages reads it, too. A request takes
    the remembered progress. It waits for a new reading only if that is older than `max_age_s`, and then briefly: it
    accepts up to three seconds of age if the reader is late. An index that does not exist, and never did as far as this
    process knows, has not failed: its progress is empty.

    read: reads the progress from the index, in that thread; raises IndexerError. deadline_s: how long a request waits
    if nothing is remembered. on_answer: called in the thread after each reading. remembered: the last reading.
    """

    def __init__(
        self,
        read: Callable[[], Awaitable[Mapping[str, CellProgress]]],
        deadline_s: float,
        on_answer: Callable[[], None] = lambda: None,
    ) -> None:
        self._read_progress = read
        self._deadline_s = deadline_s
        self._on_answer = on_answer
        self._has_answered = self._is_absent = False
        self._last = _Reading()
        self.remembered: Mapping[str, CellProgress] = {}
        # Guards what follows.
        self._changed = Condition()
        self._under_way: Future[_Reading] | None = None
        self._under_way_since = float("-inf")
        self._wanted: Future[_Reading] | None = None
        self._wanted_at = float("-inf")
        self._has_thread = self._is_closed = False

    @property
    def is_absent(self) -> bool:
        """Whether no index existed at the last reading, nor at any before."""
        return self._is_absent

    async def get(self, max_age_s: float = _MAX_AGE_S, *, timeout_s: float = _TIMEOUT_S) -> Mapping[str, CellProgress]:
        """Return progress read within `max_age_s`, if a reading ends within `timeout_s`; else the remembered progress.

        Raises IndexSlowError when nothing is remembered and no reading ends in time, and IndexerError as `read` does,
        also if a reading has failed and the next one is late.
        """
        now, last = time.monotonic(), self._last
        if now - last.began_at <= max_age_s:
            self._wanted_at = now
            return last.progress
        remembered = last if now - last.began_at <= _LATE_MAX_AGE_S else None
        reading = self._reading_since(min(now, now - max_age_s))
        timeout_s = self._deadline_s if remembered is None else min(timeout_s, self._deadline_s)
        if reading is self._under_way and now - self._under_way_since > self._deadline_s:
            if last.error is not None:
                raise last.error  # no request waits until the time limit of a reading that hangs
            timeout_s = 0.0  # others have waited for this reading already
        answer = asyncio.wrap_future(reading)
        try:
            await asyncio.wait({answer}, timeout=timeout_s)
            ended = answer.result() if answer.done() else None
        finally:
            answer.cancel()  # the reading goes on, since others may wait for it
        if ended is not None:
            if ended.error is not None:
                raise ended.error
            return ended.progress
        if remembered is not None:
            return remembered.progress
        if timeout_s:
            _log.warning("index_slow", deadline_s=self._deadline_s)
        raise IndexSlowError(f"its progress was not read within {self._deadline_s:g} s")

    def close(self) -> None:
        """Stop the periodic readings; only requests cause readings from now on."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()

    def _reading_since(self, since: float) -> Future[_Reading]:
        """Return the running reading if it began after `since`; else the next one."""
        with self._changed:
            self._wanted_at = time.monotonic()
            if self._under_way is not None and self._under_way_since >= since:
                return self._under_way
            if self._wanted is None:
                self._wanted = _new_future()
                self._changed.notify()
            if not self._has_thread:
                self._has_thread = True
                Thread(target=self._read_while_wanted, name="index-progress", daemon=True).start()
            return self._wanted

    def _read_while_wanted(self) -> None:
        with asyncio.Runner() as runner:
            while self._begin():
                reading = runner.run(self._read())
                with self._changed:
                    self._last, ended, self._under_way = reading, self._under_way, None
                if ended is not None:
                    ended.set_result(reading)

    def _begin(self) -> bool:
        """Wait until the next reading is due, and begin it; False if no list has come for long."""
        with self._changed:
            due = self._under_way_since + _INTERVAL_S
            while not self._is_closed and self._wanted is None and time.monotonic() < due:
                self._changed.wait(due - time.monotonic())
            is_idle = self._is_closed or time.monotonic() - self._wanted_at > _IDLE_AFTER_S
            if is_idle and self._wanted is None:
                self._has_thread = False
                # Later it says nothing about a reading that is late.
                self._last = replace(self._last, error=None)
                return False
            self._under_way, self._wanted = self._wanted or _new_future(), None
            self._under_way_since = time.monotonic()
            return True

    async def _read(self) -> _Reading:
        began_at = self._under_way_since
        try:
            progress = await self._read_progress()
        except IndexAbsentError as error:
            if self._has_answered:
                return _Reading(error=error)
            self._is_absent = True
            return _Reading(began_at)
        except Exception as error:  # noqa: BLE001  # `get` raises it
            return _Reading(error=error)
        self._has_answered, self._is_absent, self.remembered = True, False, progress
        self._on_answer()
        return _Reading(began_at, progress)


def _new_future() -> Future[_Reading]:
    """Make a future that no waiting caller can cancel for the others."""
    future: Future[_Reading] = Future()
    future.set_running_or_notify_cancel()
    return future
