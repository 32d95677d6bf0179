"""Handles signals to stop at once and reliably.

Python runs a signal handler in the main thread, between two instructions. If a signal comes just before the main thread
waits for a lock, the handler runs only after that wait, which may never end when it is a wait for a signal. So we read
signals from a socket, into which the interpreter writes at once.
"""

import signal
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import Thread

STOPPING = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def woken_by_signals(numbers: Sequence[int] = STOPPING) -> Iterator[socket.socket]:
    """Yield a socket from which each arriving signal can be read, as a byte with its number.

    Only the main thread may enter it, and a process only once at a time.
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
    """Call `answer` for each of the signals that arrives during the block, in a thread of its own.

    Only the main thread may enter it, and a process only once at a time.
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
