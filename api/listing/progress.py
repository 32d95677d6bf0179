"""How far the index follows the cells, remembered for a moment so that it does not cost every request a query."""

import time
from collections.abc import Mapping

from indexer.backends.base import CellProgress, IndexSearcher

_MAX_AGE_S = 0.2


class ProgressCache:
    """The progress by cell uuid; raises IndexerError as the index does."""

    def __init__(self, searcher: IndexSearcher) -> None:
        self._searcher = searcher
        self._progress: Mapping[str, CellProgress] = {}
        self._read_at = float("-inf")

    async def get(self) -> Mapping[str, CellProgress]:
        if time.monotonic() - self._read_at > _MAX_AGE_S:
            self._progress = await self._searcher.progress()
            self._read_at = time.monotonic()
        return self._progress
