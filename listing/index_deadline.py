"""The time limit of queries to the index: lists do not wait for a slow index while cells can answer.

Falling back to the cells only when the index has missed its own time limit would add that limit to the request. So a
request waits for a moment and goes to the cells. Its query goes on by itself; when that ends, it is known whether the
index failed, or was slow once.

Nor is it the index that is slow when many queries share it, in a process that has much to do: the cells would cost
several times as much, and make everything later. So while it answers others, a query may take as many times as long as
there are queries under way.

One heavy query must not take the index from all callers. So while nothing is known of the index but that a query is
overdue, one other at a time tries it; once one has been answered, it is that query that is slow, and not the index.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import structlog

from fleetlight.indexer.errors import IndexerError, IndexUnavailableError

T = TypeVar("T")

_log = structlog.get_logger(__name__)


class IndexSlowError(IndexUnavailableError):
    """The index has not answered yet; it may still do so, so this alone is no reason to stop using it."""


_MOST_SHARES = 4


class IndexDeadline:
    """Runs queries, and raises IndexSlowError for one that the index has not answered within `deadline_s`.

    Up to four times that is allowed where so many are under way, and the index has answered something meanwhile.
    While a query is overdue and nothing has been answered since it began, no more than one other waits. on_failure:
    called when the index fails after all, unless it has answered others since the query began.
    """

    def __init__(self, deadline_s: float, on_failure: Callable[[IndexerError], None]) -> None:
        self._deadline_s = deadline_s
        self._on_failure = on_failure
        self._answered_at = float("-inf")
        self._overdue: dict[asyncio.Future[Any], float] = {}
        self._is_tried = False
        self._under_way = 0

    def note_answer(self) -> None:
        """The index has just answered a query of another way. Any thread may call this."""
        self._answered_at = time.monotonic()

    async def run(self, query: Coroutine[Any, Any, T]) -> T:
        """What `query`, a request to the index, returns or raises."""
        if not any(map(self._is_silent_since, self._overdue.values())):
            return await self._wait_for(query)
        if self._is_tried:
            query.close()
            raise IndexSlowError("earlier queries still wait for an answer")
        self._is_tried = True
        try:
            return await self._wait_for(query)
        finally:
            self._is_tried = False

    async def _wait_for(self, query: Coroutine[Any, Any, T]) -> T:
        began_at = time.monotonic()
        running = asyncio.ensure_future(query)
        self._under_way += 1
        shares = 0
        try:
            while not running.done() and (not shares or self._may_take(began_at, shares + 1)):
                shares += 1
                await asyncio.wait({running}, timeout=self._deadline_s)
        except asyncio.CancelledError:
            running.cancel()
            raise
        finally:
            self._under_way -= 1
        if running.done():
            answer = running.result()
            self._answered_at = time.monotonic()
            return answer
        waited_s = shares * self._deadline_s
        _log.warning("index_slow", deadline_s=waited_s)
        self._overdue[running] = began_at
        running.add_done_callback(self._ended)
        raise IndexSlowError(f"no answer within {waited_s:g} s")

    def _may_take(self, began_at: float, shares: int) -> bool:
        return shares <= min(self._under_way, _MOST_SHARES) and not self._is_silent_since(began_at)

    def _is_silent_since(self, began_at: float) -> bool:
        return began_at > self._answered_at

    def _ended(self, query: asyncio.Future[Any]) -> None:
        began_at = self._overdue.pop(query)
        if query.cancelled():
            return
        error = query.exception()
        if error is None:
            self._answered_at = time.monotonic()
        elif isinstance(error, IndexerError) and self._is_silent_since(began_at):
            self._on_failure(error)
