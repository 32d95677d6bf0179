"""The index as a list asks it: one that is slow is not waited for, while there are cells that can answer.

Falling back to the cells only when the index has missed its own time limit would add that limit to the request. So a
request waits for a moment and goes to the cells. What it asked goes on by itself, and whether the index failed, or was
slow once, is said when that has ended.

One heavy question must not take the index from everybody. So while nothing is known of the index but that a question is
overdue, one other at a time tries it; once one has been answered, it is that question that is slow, and not the index.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import structlog

from indexer.errors import IndexerError, IndexUnavailableError

T = TypeVar("T")

_log = structlog.get_logger(__name__)


class IndexSlowError(IndexUnavailableError):
    """The index has not answered yet; it may still do so, so this alone is no reason to stop asking it."""


class IndexDeadline:
    """Asks questions, and raises IndexSlowError for one that the index has not answered within `deadline_s`.

    While a question is overdue and nothing has been answered since it was asked, no more than one other waits.
    on_failure: told when the index fails after all, unless it has answered others since it was asked.
    """

    def __init__(self, deadline_s: float, on_failure: Callable[[IndexerError], None]) -> None:
        self._deadline_s = deadline_s
        self._on_failure = on_failure
        self._answered_at = float("-inf")
        self._overdue: dict[asyncio.Future[Any], float] = {}
        self._is_tried = False

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
        try:
            await asyncio.wait({asking}, timeout=self._deadline_s)
        except asyncio.CancelledError:
            asking.cancel()
            raise
        if asking.done():
            answer = asking.result()
            self._answered_at = time.monotonic()
            return answer
        _log.warning("index_slow", deadline_s=self._deadline_s)
        self._overdue[asking] = asked_at
        asking.add_done_callback(self._ended)
        raise IndexSlowError(f"no answer within {self._deadline_s:g} s")

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
