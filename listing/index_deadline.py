"""The index as a list asks it: one that is slow is not waited for, while there are cells that can answer.

Falling back to the cells only when the index has missed its own time limit would add that limit to the request. So a
request waits for a moment and goes to the cells. What it asked goes on by itself, and whether the index failed, or was
slow once, is said when that has ended.

Nor is it the index that is slow when many questions share it, in a process that has much to do: the cells would cost
several times as much, and make everything later. So while it answers others, a question may take as many times as long
as there are questions under way.

One heavy question must not take the index from everybody. So while nothing is known of the index but that a question is
overdue, one other at a time tries it; once one has been answered, it is that question that is slow, and not the index.
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
    """The index has not answered yet; it may still do so, so this alone is no reason to stop asking it."""


_MOST_SHARES = 4


class IndexDeadline:
    """Asks questions, and raises IndexSlowError for one that the index has not answered within `deadline_s`.

    Up to four times that is allowed where so many are under way, and the index has answered something meanwhile.
    While a question is overdue and nothing has been answered since it was asked, no more than one other waits.
    on_failure: told when the index fails after all, unless it has answered others since it was asked.
    """

    def __init__(self, deadline_s: float, on_failure: Callable[[IndexerError], None]) -> None:
        self._deadline_s = deadline_s
        self._on_failure = on_failure
        self._answered_at = float("-inf")
        self._overdue: dict[asyncio.Future[Any], float] = {}
        self._is_tried = False
        self._under_way = 0

    def note_answer(self) -> None:
        """The index has just answered a question that is not asked here. Any thread may call this."""
        self._answered_at = time.monotonic()

    async def ask(self, question: Coroutine[Any, Any, T]) -> T:
        """What `question`, a request to the index, returns or raises."""
        if not any(map(self._is_silent_since, self._overdue.values())):
            return await self._wait_for(question)
        if self._is_tried:
            question.close()
            raise IndexSlowError("earlier questions still wait for an answer")
        self._is_tried = True
        try:
            return await self._wait_for(question)
        finally:
            self._is_tried = False

    async def _wait_for(self, question: Coroutine[Any, Any, T]) -> T:
        asked_at = time.monotonic()
        asking = asyncio.ensure_future(question)
        self._under_way += 1
        shares = 0
        try:
            while not asking.done() and (not shares or self._may_take(asked_at, shares + 1)):
                shares += 1
                await asyncio.wait({asking}, timeout=self._deadline_s)
        except asyncio.CancelledError:
            asking.cancel()
            raise
        finally:
            self._under_way -= 1
        if asking.done():
            answer = asking.result()
            self._answered_at = time.monotonic()
            return answer
        waited_s = shares * self._deadline_s
        _log.warning("index_slow", deadline_s=waited_s)
        self._overdue[asking] = asked_at
        asking.add_done_callback(self._ended)
        raise IndexSlowError(f"no answer within {waited_s:g} s")

    def _may_take(self, asked_at: float, shares: int) -> bool:
        return shares <= min(self._under_way, _MOST_SHARES) and not self._is_silent_since(asked_at)

    def _is_silent_since(self, asked_at: float) -> bool:
        return asked_at > self._answered_at

    def _ended(self, question: asyncio.Future[Any]) -> None:
        asked_at = self._overdue.pop(question)
        if question.cancelled():
            return
        error = question.exception()
        if error is None:
            self._answered_at = time.monotonic()
        elif isinstance(error, IndexerError) and self._is_silent_since(asked_at):
            self._on_failure(error)
