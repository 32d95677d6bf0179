"""Blocking calls in a bounded number of threads which keep no process from ending.

Those of ThreadPoolExecutor are waited for when the interpreter ends (concurrent.futures.thread), so a call that hangs
for ever, as one to a server that says nothing may, would keep its process alive.
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
# A process that only waits computes less in that time; one that is given little of a processor, more.
_BUSY_S = 0.001


class DaemonThreads:
    """threads: calls that run at the same time; more wait. name: of the threads, which begin when they are needed."""

    def __init__(self, threads: int, name: str) -> None:
        self._most = threads
        self._name = name
        self._calls: SimpleQueue[_Call[Any] | None] = SimpleQueue()
        self._idle = Semaphore(0)
        self._guard = Lock()
        self._threads: list[Thread] = []
        self._is_closed = False

    def submit(self, call: Callable[[], T]) -> Future[T]:
        """What `call` will return or raise. Raises RuntimeError after `shutdown`."""
        waiting = _Call(call)
        with self._guard:
            if self._is_closed:
                raise RuntimeError(f"the threads {self._name} take no more calls")
            if not self._idle.acquire(blocking=False) and len(self._threads) < self._most:
                thread = Thread(target=self._work, name=f"{self._name}_{len(self._threads)}", daemon=True)
                # First, since a machine may have no thread left: then the caller gets the error, and nothing waits.
                thread.start()
                self._threads.append(thread)
            self._calls.put(waiting)
        return waiting.answer

    async def run(self, call: Callable[[], T]) -> T:
        """What `call` returns or raises, for an event loop."""
        return await asyncio.wrap_future(self.submit(call))

    def shutdown(self, *, wait: bool) -> None:
        """Take no more calls; those that wait already are made. wait: return when all have ended."""
        with self._guard:
            self._is_closed = True
            self._calls.put(None)
        for thread in self._threads if wait else ():
            thread.join()

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            call.make()
            del call  # or what it has would be kept until the next one
            self._idle.release()
        self._calls.put(None)  # for the next thread


def in_background(call: Callable[[], T], name: str) -> Future[T]:
    """What `call` will return or raise, in a thread of its own."""
    threads = DaemonThreads(1, name)
    answer = threads.submit(call)
    threads.shutdown(wait=False)
    return answer


def have_answered(running: Collection[Future[Any]], within_s: float) -> bool:
    """Wait until all have ended, or this process has done nothing but wait for so long; whether all have.

    What it computes, and what it waits for the processor of a busy machine, is not the lateness of those that it asks.
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
