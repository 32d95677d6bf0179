"""A file that is read again after changes; writers replace the whole file."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

from fleetlight.api.http.errors import DirectoryUnavailableError

T = TypeVar("T")
_State = tuple[int, int, int]


class WatchedFile(Generic[T]):
    """The parsed content of the file at `path`. Each call compares its inode, time and size with those read last.

    parse: parses the content; raises DirectoryUnavailableError for malformed content.
    """

    def __init__(self, path: Path, parse: Callable[[bytes], T]) -> None:
        self.path = path
        self._parse = parse
        self._known: tuple[_State, T] | None = None
        self._reading = asyncio.Lock()

    async def current(self) -> T:
        """Return the current content; reads the file in a thread. Raises DirectoryUnavailableError."""
        known = self._known
        if known is not None and known[0] == self._state():
            return known[1]
        # One request reads the file, and concurrent ones use its result.
        async with self._reading:
            return await asyncio.to_thread(self.read)

    def read(self) -> T:
        """As `current`; blocks. Raises DirectoryUnavailableError."""
        known, state = self._known, self._state()
        if known is not None and known[0] == state:
            return known[1]
        # Take the status before the content: a change in between only causes one more read.
        content = self.load()
        self._known = (state, content)
        return content

    def load(self) -> T:
        """Read and parse the file, even if unchanged. Blocks. Raises DirectoryUnavailableError."""
        try:
            content = self.path.read_bytes()
        except OSError as error:
            raise DirectoryUnavailableError(self.path, error.strerror or str(error)) from error
        return self._parse(content)

    def is_now(self, status: os.stat_result, content: T) -> None:
        """Note that the caller has replaced the file by one with this `status` and `content`."""
        self._known = (_state_of(status), content)

    def _state(self) -> _State:
        try:
            return _state_of(self.path.stat())
        except OSError as error:
            raise DirectoryUnavailableError(self.path, error.strerror or str(error)) from error


def _state_of(status: os.stat_result) -> _State:
    return status.st_ino, status.st_mtime_ns, status.st_size
