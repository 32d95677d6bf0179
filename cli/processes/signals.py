"""Signals to stop, which are answered at once and always.

A handler in Python runs in the main thread, between two of its instructions. A signal that comes just before the main
thread begins to wait for a lock is not answered until that wait ends, and the wait for a signal has no other end. So
what waits for signals reads them from a socket, into which the interpreter writes at once.
"""

import signal
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import Thread

STOPPING = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def woken_by_signals(numbers: Sequence[int] = STOPPING) -> Iterator[socket.socket]:
    """What can be read when one of the signals has come: the number of each, as a byte.

    To be entered by the main thread, once at a time in a process.
    """
    woken, waking = socket.socketpair()
    woken.setblocking(False)
    waking.setblocking(False)
    before = {number: signal.signal(number, lambda *_: None) for number in numbers}
    signal.set_wakeup_fd(waking.fileno())
    try:
        yield woken
    finally:
        signal.set_wakeup_fd(-1)
        for number, handler in before.items():
            signal.signal(number, handler)
        waking.close()
        woken.close()


@contextmanager
def signals_answered(answer: Callable[[signal.Signals], object], numbers: Sequence[int] = STOPPING) -> Iterator[None]:
    """Call `answer` for each of the signals that comes while the block lasts, in a thread of its own.

    To be entered by the main thread, once at a time in a process.
    """
    with woken_by_signals(numbers) as woken:
        woken.setblocking(True)

        def answer_each() -> None:
            while came := woken.recv(1):
                answer(signal.Signals(came[0]))

        thread = Thread(target=answer_each, name="signals", daemon=True)
        thread.start()
        try:
            yield
        finally:
            woken.shutdown(socket.SHUT_RD)
            thread.join()
