"""An answer that all who ask within some seconds share, made once."""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

from fleetlight.resources.clock import Clock
from fleetlight.resources.units import MICROSECONDS_PER_SECOND

Answer = TypeVar("Answer")


class Kept(Generic[Answer]):
    """Answers by what was asked for, of which there are few. For use in one event loop. kept_s: for how long."""

    def __init__(self, clock: Clock, kept_s: int) -> None:
        self._clock = clock
        self._kept_us = kept_s * MICROSECONDS_PER_SECOND
        self._making = asyncio.Lock()
        self._made: dict[Hashable, tuple[int, Answer]] = {}

    async def get(self, asked: Hashable, make: Callable[[], Awaitable[Answer]]) -> Answer:
        """The answer of `make`, or that of an earlier call; what it raises, only its own caller gets."""
        async with self._making:
            known = self._made.get(asked)
            if known is None or not 0 <= self._clock() - known[0] < self._kept_us:
                answer = await make()
                known = self._made[asked] = self._clock(), answer
            return known[1]
