"""A file that is read again when it has changed: writers put a whole new one in its place."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

from fleetlight.api.http.errors import DirectoryUnavailableError

T = TypeVar("T")
_State = tuple[int, int, int]


class WatchedFile(Generic[T]):
    """What the file at `path` says. It is looked at, at its inode, time and size, at each call.

    parse: from its content; raises DirectoryUnavailableError for what is none.
    """

    def __init__(self, path: Path, parse: Callable[[bytes], T]) -> None:
        self.path = path
        self._parse = parse
        self._known: tuple[_State, T] | None = None
        self._reading = asyncio.Lock()

    async def current(self) -> T:
        """What it says now, for an event loop, which goes on meanwhile; raises DirectoryUnavailableError."""
        known = self._known
        if known is not None and known[0] == self._state():
            return known[1]
        # One request reads it, and those that have come meanwhile find it read.
        async with self._reading:
            return await asyncio.to_thread(self.read)

    def read(self) -> T:
        """As `current`; blocks while it is read."""
        known, state = self._known, self._state()
        if known is not None and known[0] == state:
            return known[1]
        # The state is older than what is read now, never newer: at worst it is read once more.
        content = self.load()
        self._known = (state, content)
        return content

    def load(self) -> T:
        """What it says, whether it has changed or not. Blocks. Raises DirectoryUnavailableError."""
        try:
            content = self.path.read_bytes()
        except OSError as error:
            raise DirectoryUnavailableError(self.path, error.strerror or str(error)) from error
        return self._parse(content)

    def is_now(self, status: os.stat_result, content: T) -> None:
        """The caller has put a file with this `status` in the place of the old one, which says `content`."""
        self._known = (_state_of(status), content)

    def _state(self) -> _State:
        try:
            return _state_of(self.path.stat())
        except OSError as error:
            raise DirectoryUnavailableError(self.path, error.strerror or str(error)) from error


def _state_of(status: os.stat_result) -> _State:
    return status.st_ino, status.st_mtime_ns, status.st_size
