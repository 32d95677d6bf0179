"""Calls in a bounded number of threads: how they end."""

import asyncio
from threading import Event

from fleetlight.cells.bounded_threads import BoundedThreads
from tests.support.waiting import wait_until


def test_what_calls_use_is_closed_when_the_last_of_them_has_come_back() -> None:
    threads = BoundedThreads(2, "test")
    begun, may_end = Event(), Event()
    ended: list[str] = []

    def call() -> None:
        begun.set()
        may_end.wait(60)
        ended.append("call")

    async def leave_it_running() -> None:
        waiting = asyncio.create_task(threads.run(call, 60))
        await asyncio.to_thread(begun.wait, 60)
        waiting.cancel()

    asyncio.run(leave_it_running())
    threads.close(lambda: ended.append("closed"))
    assert ended == []
    may_end.set()
    wait_until(lambda: len(ended) == 2, timeout_s=60)
    assert ended == ["call", "closed"]
