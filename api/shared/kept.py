"""A cache of answers that callers share for some seconds."""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

from fleetlight.resources.clock import Clock
from fleetlight.resources.units import MICROSECONDS_PER_SECOND

Answer = TypeVar("Answer")


class Kept(Generic[Answer]):
    """Answers of a few keys, each kept for `kept_s`. Use it in one event loop."""

    def __init__(self, clock: Clock, kept_s: int) -> None:
        self._clock = clock
        self._kept_us = kept_s * MICROSECONDS_PER_SECOND
        self._making = asyncio.Lock()
        self._made: dict[Hashable, tuple[int, Answer]] = {}

    async def get(self, asked: Hashable, make: Callable[[], Awaitable[Answer]]) -> Answer:
        """Return the answer of `make`, or that of an earlier call. Errors of `make` are not shared."""
        async with self._making:
            known = self._made.get(asked)
            if known is None or not 0 <= self._clock() - known[0] < self._kept_us:
                answer = await make()
                known = self._made[asked] = self._clock(), answer
            return known[1]
