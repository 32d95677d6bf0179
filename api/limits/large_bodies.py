"""Limits on the parts of request bodies, and the thread that decodes large bodies.

The parts of a body are its JSON values and the characters that join them. They cost time and memory, so they are
counted before any object is made. (Other modules limit the bytes.) Bodies with many parts are decoded one after the
other in one thread beside the event loop: Python runs one thread at a time, so a second thread would only take more
time from the loop. The number of bodies that wait for the thread is limited.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import TypeVar

import msgspec

from fleetlight.api.http.errors import TooManyListsError, TooManyPartsError

MAX_PARTS = 50_000
"""The limit for a query: 12,500 conditions such as ["=", "name", "web1"], or 50,000 names."""
MAX_PARTS_OF_CHANGE = 10_000
# Decoding so many parts takes about a millisecond.
_LARGE = 2_000
_MOST_WAITING = 16

T = TypeVar("T")

_decode = msgspec.json.Decoder().decode


def parts_in(text: bytes | bytearray | memoryview) -> int:
    """Count the parts of a JSON text: its commas and opening brackets, including those in strings.

    Each value follows one of them, so the text has at most twice as many objects, plus one.
    """
    raw = bytes(text) if isinstance(text, memoryview) else text
    return raw.count(b",") + raw.count(b"[") + raw.count(b"{")


class CountedParts:
    """Counts the parts of a body while it arrives."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.count = 0

    def add(self, text: bytes | bytearray) -> None:
        """Count the parts of a further piece. Raises TooManyPartsError when there are too many."""
        self.count += parts_in(text)
        if self.count > self._most:
            raise TooManyPartsError(self._most)


async def decoded(text: bytes | bytearray, parts: int) -> object:
    """Decode a JSON text of so many parts. Raises the errors of MALFORMED_JSON, and TooManyListsError."""
    return await made_aside(parts, lambda: _decode(text))


async def made_aside(parts: int, make: Callable[[], T]) -> T:
    """Return the result of `make`; for many parts run it in the thread for large bodies, in the caller's context.

    Raises TooManyListsError while too many callers wait for the thread.
    """
    return make() if parts <= _LARGE else await _thread.make(make)


class _Thread:
    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="large-bodies")
        self._waiting = 0

    async def make(self, make: Callable[[], T]) -> T:
        if self._waiting >= _MOST_WAITING:
            raise TooManyListsError(is_own=False)
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, copy_context().run, make)
        finally:
            self._waiting -= 1


_thread = _Thread()
