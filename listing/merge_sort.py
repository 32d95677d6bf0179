"""The one merge: sorted sources, read in batches, into one sorted stream without duplicates."""

import asyncio
import heapq
from collections.abc import AsyncGenerator, Sequence
from typing import Any, Protocol

from fleetlight.query.sort import SortOrder


class Row(Protocol):
    """One instance of one source.

    position: stored values of the order's keys, uuid last.
    """

    @property
    def position(self) -> tuple[Any, ...]: ...

    @property
    def item(self) -> bytes:
        """The rendered instance; the merge reads it once, and only for rows of the page."""


class Source(Protocol):
    """One sorted stream of rows."""

    async def next_batch(self) -> Sequence[Row]:
        """Return the next rows in order; an empty sequence at the end."""


async def merge_sorted(sources: Sequence[Source], order: SortOrder) -> AsyncGenerator[list[Row]]:
    """Merge sorted sources lazily. Yields runs of rows; a run ends where a source needs its next batch.

    The merge fetches the first batches of all sources concurrently, since it would otherwise wait for one source after
    the other. Afterwards it reads a source only when it needs its next row; memory is one batch per source. A uuid
    from two sources (an instance that just moved) comes once: the first in the order wins.
    Raises the first error of a source, and cancels the reads of the others.
    Source: k-way merge, Knuth, TAOCP vol. 3, section 5.4.1.
    """
    streams = [_Stream(source) for source in sources]
    await _fill_together(streams)
    streams = [stream for stream in streams if stream.has_rows]
    seen: set[str] = set()
    heap = [(order.comparable(stream.head.position), number) for number, stream in enumerate(streams)]
    heapq.heapify(heap)
    while heap:
        if len(streams) == 1:
            # With one source there is nothing to compare, and no duplicate.
            run, number = streams[0].take_all(), 0
        else:
            run, number = _merge_until_exhausted(streams, heap, order, seen)
        yield run
        stream = streams[number]
        await stream.fill()
        if stream.has_rows:
            heapq.heapreplace(heap, (order.comparable(stream.head.position), number))
        else:
            heapq.heappop(heap)


def _merge_until_exhausted(
    streams: Sequence["_Stream"], heap: list[tuple[tuple[Any, ...], int]], order: SortOrder, seen: set[str]
) -> tuple[list[Row], int]:
    """Return the rows up to the end of a stream's batch, and the number of that stream, which still heads the heap."""
    run: list[Row] = []
    while True:
        number = heap[0][1]
        stream = streams[number]
        row = stream.take()
        uuid = row.position[-1]
        if uuid not in seen:
            seen.add(uuid)
            run.append(row)
        if not stream.has_rows:
            return run, number
        heapq.heapreplace(heap, (order.comparable(stream.head.position), number))


class _Stream:
    """A source and the rest of its current batch."""

    __slots__ = ("_index", "_rows", "_source")

    def __init__(self, source: Source) -> None:
        self._source = source
        self._index = 0
        self._rows: Sequence[Row] = ()

    @property
    def has_rows(self) -> bool:
        return self._index < len(self._rows)

    @property
    def head(self) -> Row:
        return self._rows[self._index]

    async def fill(self) -> None:
        self._rows = await self._source.next_batch()
        self._index = 0

    def take(self) -> Row:
        row = self._rows[self._index]
        self._index += 1
        return row

    def take_all(self) -> list[Row]:
        rows = list(self._rows[self._index :])
        self._index = len(self._rows)
        return rows


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
