"""The one merge: sorted sources, read in batches, into one sorted stream of rows without duplicates."""

import asyncio
import heapq
from collections.abc import AsyncGenerator, Sequence
from typing import Any, Protocol

from indexer.view import ItemTemplate
from query.sort import SortOrder


class Row(Protocol):
    """One instance of one source.

    position: stored values of the order's keys, uuid last.
    """

    @property
    def cell_uuid(self) -> str: ...

    @property
    def position(self) -> tuple[Any, ...]: ...

    def item(self, template: ItemTemplate) -> bytes:
        """The instance as an answer shows it; rendered only when asked for."""
        ...


class Source(Protocol):
    """One sorted stream of rows."""

    async def next_batch(self) -> Sequence[Row]:
        """The rows that come next, in order; none when there are no more."""
        ...


async def merge_sorted(sources: Sequence[Source], order: SortOrder) -> AsyncGenerator[Row]:
    """Merge what the sources deliver, lazily.

    The first batches are fetched at the same time, because a source that was not touched would otherwise be waited for
    in the middle of the merge, one source after the other. After that a source is asked again only when its next row is
    needed; memory is one batch per source. The same uuid from two sources (an instance that just moved) comes once:
    the first in the order wins.
    Raises whatever a source raises; the others are then no longer waited for.
    Source: k-way merge, Knuth, TAOCP vol. 3, section 5.4.1.
    """
    streams = [_Stream(source) for source in sources]
    await _fill_together(streams)
    streams = [stream for stream in streams if stream.rows]
    seen: set[str] = set()
    heap = [(order.comparable(stream.head.position), number) for number, stream in enumerate(streams)]
    heapq.heapify(heap)
    while len(heap) > 1:
        _, number = heap[0]
        stream = streams[number]
        row = stream.head
        if _is_new(row, seen):
            yield row
        if await stream.advance():
            heapq.heapreplace(heap, (order.comparable(stream.head.position), number))
        else:
            heapq.heappop(heap)
    if heap:
        # What is left of one source needs no comparisons; with the index alone this is the whole page.
        rest = streams[heap[0][1]]
        while True:
            if _is_new(rest.head, seen):
                yield rest.head
            if not await rest.advance():
                return


class _Stream:
    """A source and its current batch."""

    __slots__ = ("_index", "_source", "rows")

    def __init__(self, source: Source) -> None:
        self._source = source
        self._index = 0
        self.rows: Sequence[Row] = ()

    @property
    def head(self) -> Row:
        return self.rows[self._index]

    async def fill(self) -> None:
        self.rows = await self._source.next_batch()
        self._index = 0

    async def advance(self) -> bool:
        """Step to the next row, fetching a batch if need be; False when there is none."""
        self._index += 1
        if self._index == len(self.rows):
            await self.fill()
        return bool(self.rows)


async def _fill_together(streams: Sequence[_Stream]) -> None:
    if len(streams) == 1:
        await streams[0].fill()
        return
    tasks = [asyncio.ensure_future(stream.fill()) for stream in streams]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _is_new(row: Row, seen: set[str]) -> bool:
    uuid = row.position[-1]
    if uuid in seen:
        return False
    seen.add(uuid)
    return True
