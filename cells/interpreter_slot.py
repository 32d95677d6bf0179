"""Turns of threads that go through many rows, at the interpreter that they share.

The driver of SQLite lets go of the interpreter for each row, and a thread that waits for it takes it then: while some
threads read rows and others make documents of some, there is a change of threads for every few rows. So they take turns
by the page. Whoever waits for a server needs no turn.
"""

from collections.abc import Iterator
from threading import Lock
from typing import TypeVar

T = TypeVar("T")

INTERPRETER_SLOT = Lock()
"""Held while a page is read from a file, or made into a request; never while anything else is waited for."""


def in_slots(items: Iterator[T]) -> Iterator[T]:
    """The same items, each made in a turn."""
    while True:
        with INTERPRETER_SLOT:
            item = next(items, None)
        if item is None:
            return
        yield item
