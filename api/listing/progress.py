"""How far the index follows the cells, remembered for a moment so that it does not cost every request a query."""

import asyncio
import time
from collections.abc import Mapping

from indexer.backends.base import CellProgress, IndexSearcher
from indexer.errors import IndexerError

_READ_AGAIN_AFTER_S = 0.2
_MAX_AGE_S = 1.0


class ProgressCache:
    """The progress by cell uuid; raises IndexerError as the index does.

    What is remembered says that the index is further behind than it is, never that it is less. So a request takes it as
    it is while it is read again beside it, and waits only for what is older than `max_age_s`.
    """

    def __init__(self, searcher: IndexSearcher) -> None:
        self._searcher = searcher
        self._progress: Mapping[str, CellProgress] = {}
        self._read_at = float("-inf")
        self._reading: asyncio.Task[None] | None = None

    async def get(self, max_age_s: float = _MAX_AGE_S) -> Mapping[str, CellProgress]:
        age_s = time.monotonic() - self._read_at
        if age_s > max_age_s:
            await self._read()
        elif age_s > _READ_AGAIN_AFTER_S and (self._reading is None or self._reading.done()):
            self._reading = asyncio.create_task(self._read_beside())
        return self._progress

    def close(self) -> None:
        if self._reading is not None:
            self._reading.cancel()

    async def _read(self) -> None:
        began = time.monotonic()
        self._progress = await self._searcher.progress()
        self._read_at = began

    async def _read_beside(self) -> None:
        try:
            await self._read()
        except IndexerError:
            self._read_at = float("-inf")  # the next request meets the failure itself
