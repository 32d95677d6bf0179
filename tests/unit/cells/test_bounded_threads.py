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


def test_caller_that_is_cancelled_while_the_answer_comes_is_cancelled() -> None:
    """asyncio.wait_for of Python 3.11 returns the answer then, and a task that was to end goes on."""
    threads = BoundedThreads(1, "test")

    async def cancel_after(steps: int) -> None:
        answered = Event()
        waiting = asyncio.create_task(threads.run(answered.set, 60))
        await asyncio.sleep(0)
        answered.wait(60)
        for _ in range(steps):
            await asyncio.sleep(0)
        is_accepted = waiting.cancel()
        await asyncio.wait([waiting])
        assert waiting.cancelled() is is_accepted

    for steps in range(8):
        asyncio.run(cancel_after(steps))
    threads.close(lambda: None)
