"""Signals to stop, and a main thread that cannot answer them itself."""

import hashlib
import os
import signal
import time
from queue import Empty, Queue
from threading import Thread

import pytest

from fleetlight.cli.processes.signals import STOPPING, signals_answered


@pytest.mark.parametrize("number", STOPPING)
def test_signal_is_answered_while_the_main_thread_executes_no_instruction_of_python(number: signal.Signals) -> None:
    """As between its last instruction and its wait for a lock: a handler in Python would have waited with it."""
    answered_at: Queue[float] = Queue()
    with signals_answered(lambda _: answered_at.put(time.monotonic()), [number]):
        Thread(target=os.kill, args=(os.getpid(), number)).start()
        hashlib.pbkdf2_hmac("sha256", b"password", b"salt", 2_000_000)
        busy_until = time.monotonic()
        assert answered_at.get(timeout=10) < busy_until


def test_each_signal_is_answered_and_none_after_the_end() -> None:
    came: Queue[signal.Signals] = Queue()
    before = [signal.getsignal(number) for number in STOPPING]
    with signals_answered(came.put):
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGTERM):
            os.kill(os.getpid(), number)
            assert came.get(timeout=10) == number
    assert [signal.getsignal(number) for number in STOPPING] == before
    with pytest.raises(Empty):
        came.get_nowait()
