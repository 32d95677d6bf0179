"""Blocking calls, each within a deadline, in a bounded number of threads.

A thread cannot be stopped. A call that misses its deadline occupies its thread until it returns; once all threads are
occupied like this, further calls are refused at once instead of waiting for nothing.
"""

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import TypeVar

from fleetlight.cells.daemon_threads import DaemonThreads

T = TypeVar("T")


class AllThreadsHangError(Exception):
    """Every thread is occupied by a call that has missed its deadline."""


class BoundedThreads:
    """threads: number of calls at the same time; others wait, within their deadline. name: of the threads.

    deadline_s: a call counts as hanging only after this time, however short its own deadline.
    """

    def __init__(self, threads: int, name: str, *, deadline_s: float = 0.0) -> None:
        self._threads = threads
        self._deadline_s = deadline_s
        self._executor = DaemonThreads(threads, name)
        self._guard = threading.Lock()
        self._hang_from: dict[object, float] = {}

    async def run(self, call: Callable[[], T], timeout_s: float) -> T:
        """The result or error of `call`. Raises TimeoutError after `timeout_s`, and AllThreadsHangError at once.

        A call that misses its deadline while it waits for a thread is never made.
        """
        # Not wait_for, which in Python 3.11 ignores a cancellation while the answer arrives.
        async with asyncio.timeout(timeout_s):
            return await asyncio.wrap_future(self._begin(call, timeout_s))

    def wait(self, call: Callable[[], T], timeout_s: float) -> T:
        """As `run`, for callers without an event loop."""
        answer = self._begin(call, timeout_s)
        try:
            return answer.result(timeout_s)
        finally:
            answer.cancel()

    def close(self, last: Callable[[], object]) -> None:
        """Call `last` once all calls have returned, without waiting for that; never, if one hangs for ever.

        What a call uses must not be closed before it returns: a connection that is returned to a disposed pool is never
        closed.
        """
        self._executor.shutdown(wait=False)
        threading.Thread(target=self._end, args=(last,), daemon=True).start()

    def _begin(self, call: Callable[[], T], timeout_s: float) -> Future[T]:
        if self._hanging() >= self._threads:
            raise AllThreadsHangError
        hangs_from = time.monotonic() + max(timeout_s, self._deadline_s)
        return self._executor.submit(partial(self._run, call, hangs_from))

    def _end(self, last: Callable[[], object]) -> None:
        self._executor.shutdown(wait=True)
        last()

    def _run(self, call: Callable[[], T], hangs_from: float) -> T:
        token = object()
        with self._guard:
            self._hang_from[token] = hangs_from
        try:
            return call()
        finally:
            with self._guard:
                del self._hang_from[token]

    def _hanging(self) -> int:
        now = time.monotonic()
        with self._guard:
            return sum(moment < now for moment in self._hang_from.values())
