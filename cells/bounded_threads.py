"""Blocking calls for asyncio, each within a deadline, in a bounded number of threads.

A thread cannot be stopped. A call that misses its deadline keeps its thread until what it waits for lets go of it; once
all threads are held that way the next call is refused at once instead of waiting for nothing.
"""

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


class AllThreadsHangError(Exception):
    """Every thread is held by a call that has missed its deadline."""


class BoundedThreads:
    """threads: calls that run at the same time; more wait, inside their deadline. name: of the threads."""

    def __init__(self, threads: int, name: str) -> None:
        self._threads = threads
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._guard = threading.Lock()
        self._deadlines: dict[object, float] = {}

    async def run(self, call: Callable[[], T], timeout_s: float) -> T:
        """What `call` returns or raises; raises TimeoutError after `timeout_s`, and AllThreadsHangError at once.

        A call that missed its deadline while it waited for a thread is never made.
        """
        if self._hanging() >= self._threads:
            raise AllThreadsHangError
        answer: Future[T] = self._executor.submit(self._run, call, time.monotonic() + timeout_s)
        return await asyncio.wait_for(asyncio.wrap_future(answer), timeout_s)

    def close(self, last: Callable[[], object]) -> None:
        """Call `last` after the calls that wait already, without waiting for it."""
        self._executor.submit(last)
        self._executor.shutdown(wait=False)

    def _run(self, call: Callable[[], T], deadline: float) -> T:
        token = object()
        with self._guard:
            self._deadlines[token] = deadline
        try:
            return call()
        finally:
            with self._guard:
                del self._deadlines[token]

    def _hanging(self) -> int:
        now = time.monotonic()
        with self._guard:
            return sum(deadline < now for deadline in self._deadlines.values())
