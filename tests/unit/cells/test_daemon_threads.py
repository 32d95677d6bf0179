"""Threads that keep no process from ending."""

import asyncio
import subprocess
import sys
from threading import Event, Thread, current_thread

import pytest

from fleetlight.cells.daemon_threads import DaemonThreads

_HANGING = """
import asyncio
from threading import Event
from fleetlight.cells.{module} import {made}

async def leave_it_hanging():
    begun = Event()
    def hang():
        begun.set()
        Event().wait()
    hanging = asyncio.ensure_future({call})
    while not begun.is_set():
        await asyncio.sleep(0.001)
    hanging.cancel()

asyncio.run(leave_it_hanging())
"""


@pytest.mark.parametrize(
    ("module", "made", "call"),
    [
        ("daemon_threads", "DaemonThreads", "DaemonThreads(1, 'test').run(hang)"),
        ("bounded_threads", "BoundedThreads", "BoundedThreads(1, 'test').run(hang, 60)"),
        (
            "fan_out.guarded_cell",
            "GuardedCell",
            "GuardedCell('one', hang, threads=1, deadline_s=9, probe_interval_s=9).act(hang)",
        ),
    ],
)
def test_call_that_hangs_does_not_keep_a_process_alive(module: str, made: str, call: str) -> None:
    program = _HANGING.format(module=module, made=made, call=call)
    subprocess.run([sys.executable, "-c", program], check=True, timeout=30)


def test_calls_share_the_threads_that_there_are() -> None:
    threads, gate = DaemonThreads(2, "test"), Event()
    begun = [Event(), Event()]

    def call(number: int) -> str:
        begun[number].set()
        gate.wait(60)
        return current_thread().name

    first = [threads.submit(lambda number=number: call(number)) for number in range(2)]  # type: ignore[misc]
    assert all(each.wait(60) for each in begun)
    third = threads.submit(lambda: current_thread().name)
    assert not third.done()
    gate.set()
    assert {answer.result(60) for answer in first} == {"test_0", "test_1"}
    assert third.result(60) in {"test_0", "test_1"}
    threads.shutdown(wait=True)


def test_thread_that_has_nothing_to_do_takes_the_next_call() -> None:
    threads = DaemonThreads(1000, "test")
    names = {asyncio.run(threads.run(lambda: current_thread().name)) for _ in range(50)}
    assert len(names) < 50
    threads.shutdown(wait=True)


def test_failure_of_a_call_is_raised_to_its_caller_and_others_are_made() -> None:
    threads = DaemonThreads(1, "test")
    with pytest.raises(ZeroDivisionError):
        threads.submit(lambda: 1 // 0).result(60)
    assert threads.submit(lambda: 1).result(60) == 1
    threads.shutdown(wait=True)


def test_call_for_which_no_thread_can_begin_is_refused_and_the_next_one_is_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    threads, made = DaemonThreads(1, "test"), list[str]()

    def refuse(_thread: Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(Thread, "start", refuse)
        with pytest.raises(RuntimeError, match="new thread"):
            threads.submit(lambda: made.append("refused"))
    assert threads.submit(lambda: 1).result(60) == 1
    assert made == []
    threads.shutdown(wait=True)


def test_call_that_was_cancelled_while_it_waited_is_never_made() -> None:
    threads, gate, made = DaemonThreads(1, "test"), Event(), list[str]()
    threads.submit(lambda: gate.wait(60))
    cancelled = threads.submit(lambda: made.append("cancelled"))
    last = threads.submit(lambda: made.append("last"))
    assert cancelled.cancel()
    gate.set()
    last.result(60)
    assert made == ["last"]
    threads.shutdown(wait=True)


def test_calls_that_wait_are_made_before_the_threads_end_and_no_more_are_taken() -> None:
    threads, gate, made = DaemonThreads(1, "test"), Event(), list[str]()
    threads.submit(lambda: gate.wait(60))
    threads.submit(lambda: made.append("waited"))
    threads.shutdown(wait=False)
    gate.set()
    threads.shutdown(wait=True)
    assert made == ["waited"]
    with pytest.raises(RuntimeError, match="no more calls"):
        threads.submit(lambda: None)
