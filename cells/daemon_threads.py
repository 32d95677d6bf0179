"""Blocking calls in a bounded number of threads that do not keep the process from ending.

The interpreter waits for threads of ThreadPoolExecutor when it ends (concurrent.futures.thread), so a call that hangs
for ever, for example to a silent server, would keep its process alive.
"""

import asyncio
import time
from collections.abc import Callable, Collection
from concurrent.futures import Future, wait
from queue import SimpleQueue
from threading import Lock, Semaphore, Thread
from typing import Any, Generic, TypeVar

T = TypeVar("T")

_LOOK_S = 0.05
# In _LOOK_S a process that only waits uses less processor time than this, even if it gets little.
_BUSY_S = 0.001


class DaemonThreads:
    """threads: number of calls at the same time; others wait. name: of the threads, which start when needed."""

    def __init__(self, threads: int, name: str) -> None:
        self._most = threads
        self._name = name
        self._calls: SimpleQueue[_Call[Any] | None] = SimpleQueue()
        self._idle = Semaphore(0)
        self._guard = Lock()
        self._threads: list[Thread] = []
        self._is_closed = False

    def submit(self, call: Callable[[], T]) -> Future[T]:
        """Start a call; returns the future of its result. Raises RuntimeError after `shutdown`."""
        waiting = _Call(call)
        with self._guard:
            if self._is_closed:
                raise RuntimeError(f"the threads {self._name} take no more calls")
            if not self._idle.acquire(blocking=False) and len(self._threads) < self._most:
                thread = Thread(target=self._work, name=f"{self._name}_{len(self._threads)}", daemon=True)
                # Start it first: if the machine has no thread left, the caller gets the error and nothing is queued.
                thread.start()
                self._threads.append(thread)
            self._calls.put(waiting)
        return waiting.answer

    async def run(self, call: Callable[[], T]) -> T:
        """The result or error of `call`, awaited in an event loop."""
        return await asyncio.wrap_future(self.submit(call))

    def shutdown(self, *, wait: bool) -> None:
        """Accept no more calls; queued ones are still made. wait: return only when all have ended."""
        with self._guard:
            self._is_closed = True
            self._calls.put(None)
        for thread in self._threads if wait else ():
            thread.join()

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            call.make()
            del call  # otherwise its objects would stay until the next call
            self._idle.release()
        self._calls.put(None)  # for the next thread


def in_background(call: Callable[[], T], name: str) -> Future[T]:
    """Start a call in a thread of its own; returns the future of its result."""
    threads = DaemonThreads(1, name)
    answer = threads.submit(call)
    threads.shutdown(wait=False)
    return answer


def have_answered(running: Collection[Future[Any]], within_s: float) -> bool:
    """Wait until all have ended, or this process has only waited for `within_s`. Returns whether all have ended.

    Time in which this process computes, or waits for a busy processor, does not count against those it waits for.
    """
    waited_s = 0.0
    while waited_s < within_s:
        computed_s = time.process_time()
        if not wait(running, _LOOK_S).not_done:
            return True
        if time.process_time() - computed_s < _BUSY_S:
            waited_s += _LOOK_S
    return False


class _Call(Generic[T]):
    def __init__(self, call: Callable[[], T]) -> None:
        self.answer: Future[T] = Future()
        self._call = call

    def make(self) -> None:
        if not self.answer.set_running_or_notify_cancel():
            return
        try:
            result = self._call()
        except BaseException as error:  # noqa: BLE001  # the caller of the answer gets it
            self.answer.set_exception(error)
        else:
            self.answer.set_result(result)
