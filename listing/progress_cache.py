"""Progress of the index, read in a thread of its own, so that it waits for no page and no page for it."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from threading import Condition, Thread

import structlog

from fleetlight.indexer.backends.base import CellProgress
from fleetlight.indexer.errors import IndexAbsentError, IndexUnavailableError

_log = structlog.get_logger(__name__)

_INTERVAL_S = 0.5
# While lists come; the thread ends when none has come for so long.
_IDLE_AFTER_S = 5.0
_MAX_AGE_S = 1.0
_TIMEOUT_S = 0.25
# A process that makes rows of the index disappear announces it first, and waits ten seconds for lists that do not know
# it yet.
_LATE_MAX_AGE_S = 3.0


class IndexSlowError(IndexUnavailableError):
    """The index has not answered yet; it may still do so, so this alone is no reason to stop using it."""


@dataclass(frozen=True, slots=True)
class _Reading:
    """began_at: monotonic seconds. error: why it failed."""

    began_at: float
    progress: Mapping[str, CellProgress] = field(default_factory=dict)
    error: Exception | None = None


class ProgressCache:
    """The progress by cell uuid; raises IndexerError as `read`, which reads it from the index, does.

    What is remembered says that the index is further behind than it is, never that it is less. While requests come, a
    thread reads it again each half second, with an event loop of its own, so a process that is busy with pages reads it
    all the same. A request takes what is remembered. Only for what is older than `max_age_s` it waits; and when the
    reader is late because the process is busy, not for long, but takes what there is up to three seconds.
    An index that is not there, and never was as far as this process knows, has not failed: it follows no cell yet.

    read: called in that thread. deadline_s: how long a request waits without anything remembered; raises IndexSlowError
    then. on_answer: called in the thread when the index has answered. remembered: the last answer, however old.
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
        self._last = _Reading(float("-inf"))
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
        """Whether there was no index when it was read last, and never was before."""
        return self._is_absent

    async def get(self, max_age_s: float = _MAX_AGE_S, *, timeout_s: float = _TIMEOUT_S) -> Mapping[str, CellProgress]:
        """What was read no longer than `max_age_s` ago, if it comes within `timeout_s`; else what is remembered."""
        now = time.monotonic()
        last = self._last
        if self._is_newer(last, now - max_age_s):
            self._wanted_at = now
            return last.progress
        remembered = last if self._is_newer(last, now - _LATE_MAX_AGE_S) else None
        reading = self._reading_since(min(now, now - max_age_s))
        timeout_s = self._deadline_s if remembered is None else min(timeout_s, self._deadline_s)
        if reading is self._under_way and now - self._under_way_since > self._deadline_s:
            timeout_s = 0.0  # it was waited for already
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
        """Read nothing from now on but what a request waits for."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()

    @staticmethod
    def _is_newer(reading: _Reading, since: float) -> bool:
        return reading.error is None and reading.began_at >= since

    def _reading_since(self, since: float) -> Future[_Reading]:
        """The reading that has begun since then, or begins next."""
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
        """Wait for what is due next; False when no list has needed it for long."""
        with self._changed:
            due = self._under_way_since + _INTERVAL_S
            while not self._is_closed and self._wanted is None and time.monotonic() < due:
                self._changed.wait(due - time.monotonic())
            is_idle = self._is_closed or time.monotonic() - self._wanted_at > _IDLE_AFTER_S
            if is_idle and self._wanted is None:
                self._has_thread = False
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
                return _Reading(began_at, error=error)
            self._is_absent = True
            return _Reading(began_at)
        except Exception as error:  # noqa: BLE001  # the list that waits gets it
            return _Reading(began_at, error=error)
        self._has_answered, self._is_absent, self.remembered = True, False, progress
        self._on_answer()
        return _Reading(began_at, progress)


def _new_future() -> Future[_Reading]:
    """One that no caller can cancel for others."""
    future: Future[_Reading] = Future()
    future.set_running_or_notify_cancel()
    return future
