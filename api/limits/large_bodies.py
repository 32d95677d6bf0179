"""What the bodies of callers may be made of, and where something is made of large ones.

A body has bytes, of which other modules say how many there may be, and parts: its values, and what joins them. Parts
are what costs time and memory, so they are counted, before an object is made of any of them. What has many parts is
made into objects in one thread beside the event loop, one after the other: Python runs one thread at a time, so that a
second one would only take more of the time of the loop. What a few callers may wait for there has a bound.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import TypeVar

import msgspec

from fleetlight.api.http.errors import TooManyListsError, TooManyPartsError

MAX_PARTS = 50_000
"""Of a question: 12,500 conditions such as ["=", "name", "web1"], or 50,000 names."""
MAX_PARTS_OF_CHANGE = 10_000
# What is made of so many takes about a millisecond.
_LARGE = 2_000
_MOST_WAITING = 16

T = TypeVar("T")

_decode = msgspec.json.Decoder().decode


def parts_in(text: bytes | bytearray | memoryview) -> int:
    """The parts of a JSON text: its commas and opening brackets, also those that its strings have.

    A value is behind one of them, so that there are at most twice as many objects, and one.
    """
    raw = bytes(text) if isinstance(text, memoryview) else text
    return raw.count(b",") + raw.count(b"[") + raw.count(b"{")


class CountedParts:
    """Counts the parts of a body while it arrives."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.count = 0

    def add(self, text: bytes | bytearray) -> None:
        """Raises TooManyPartsError."""
        self.count += parts_in(text)
        if self.count > self._most:
            raise TooManyPartsError(self._most)


async def decoded(text: bytes | bytearray, parts: int) -> object:
    """The value of a JSON text of so many parts. Raises what MALFORMED_JSON has, and TooManyListsError."""
    return await made_aside(parts, lambda: _decode(text))


async def made_aside(parts: int, make: Callable[[], T]) -> T:
    """What `make` makes of so many parts: of many in the thread for that, in the context of the caller.

    Raises TooManyListsError while many wait for that thread.
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
