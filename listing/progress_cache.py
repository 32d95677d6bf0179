"""How far the index follows the cells, remembered for a moment so that it does not cost every request a query."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping

from indexer.backends.base import CellProgress
from indexer.errors import IndexAbsentError, IndexerError

_READ_AGAIN_AFTER_S = 0.2
_MAX_AGE_S = 1.0


class ProgressCache:
    """The progress by cell uuid; raises IndexerError as `ask`, which reads it from the index, does.

    What is remembered says that the index is further behind than it is, never that it is less. So a request waits only
    for what is older than `max_age_s`. A list has it read again when it has its page, so that both do not compete.
    An index that is not there, and never was as far as this process knows, has not failed: it follows no cell yet.
    """

    def __init__(self, ask: Callable[[], Awaitable[Mapping[str, CellProgress]]]) -> None:
        self._ask = ask
        self._progress: Mapping[str, CellProgress] = {}
        self._has_answered = self._is_absent = False
        self._read_at = float("-inf")
        self._reading: asyncio.Task[None] | None = None

    @property
    def is_absent(self) -> bool:
        """Whether there was no index when it was read last, and never was before."""
        return self._is_absent

    async def get(self, max_age_s: float = _MAX_AGE_S) -> Mapping[str, CellProgress]:
        if time.monotonic() - self._read_at > max_age_s:
            await self._read()
        return self._progress

    def read_again(self) -> None:
        """Read it beside what is done next, unless it was just read."""
        is_reading = self._reading is not None and not self._reading.done()
        if not is_reading and time.monotonic() - self._read_at > _READ_AGAIN_AFTER_S:
            self._reading = asyncio.create_task(self._read_beside())

    def close(self) -> None:
        if self._reading is not None:
            self._reading.cancel()

    async def _read(self) -> None:
        began = time.monotonic()
        try:
            self._progress = await self._ask()
        except IndexAbsentError:
            if self._has_answered:
                raise
            self._is_absent = True
        else:
            self._has_answered, self._is_absent = True, False
        self._read_at = began

    async def _read_beside(self) -> None:
        try:
            await self._read()
        except IndexerError:
            self._read_at = float("-inf")  # the next request meets the failure itself
