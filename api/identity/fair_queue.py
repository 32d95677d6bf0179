"""A queue for work of which little is done at the same time: bounded, and fair between callers."""

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager

from api.http.errors import CallerLeftError, TooManyLoginsError
from api.identity.connection import UNKNOWN, Connection

_RETRY_AFTER_S = 2


class FairQueue:
    """For one event loop. Requests wait in lanes, and the lanes are served in rounds: one request of each.

    at_once: how many are served at the same time. most_waiting: in all lanes. most_in_lane: in one of them.
    """

    def __init__(self, at_once: int, *, most_waiting: int, most_in_lane: int) -> None:
        self._free = at_once
        self._most_waiting = most_waiting
        self._most_in_lane = most_in_lane
        self._lanes: OrderedDict[Hashable, deque[asyncio.Future[None]]] = OrderedDict()

    @property
    def waiting(self) -> int:
        return sum(map(len, self._lanes.values()))

    @asynccontextmanager
    async def lock(
        self, lane: Hashable, caller: Connection = UNKNOWN, *, is_preferred: bool = False
    ) -> AsyncIterator[None]:
        """Wait until the request is served, and hold its place while the block lasts.

        is_preferred: half of the places to wait at are for requests that are.

        Raises TooManyLoginsError when too many wait already, CallerLeftError when the caller goes while it waits.
        """
        if self._free:
            # Then no caller waits.
            self._free -= 1
        else:
            self._refuse_when_full(lane, is_preferred=is_preferred)
            await self._wait(lane, caller)
        try:
            yield
        finally:
            self._pass_on()

    def _refuse_when_full(self, lane: Hashable, *, is_preferred: bool) -> None:
        most = self._most_waiting if is_preferred else self._most_waiting // 2
        if self.waiting >= most or len(self._lanes.get(lane, ())) >= self._most_in_lane:
            raise TooManyLoginsError(_RETRY_AFTER_S, "Too many requests at once.")

    async def _wait(self, lane: Hashable, caller: Connection) -> None:
        lock = asyncio.get_running_loop().create_future()
        self._lanes.setdefault(lane, deque()).append(lock)
        leaving = asyncio.ensure_future(caller.left())
        try:
            await asyncio.wait((lock, leaving), return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            self._give_up(lane, lock)
            raise
        finally:
            has_left = not leaving.cancel()
        if has_left:
            self._give_up(lane, lock)
            raise CallerLeftError

    def _give_up(self, lane: Hashable, lock: asyncio.Future[None]) -> None:
        if lock.done():
            self._pass_on()
            return
        self._lanes[lane].remove(lock)
        if not self._lanes[lane]:
            del self._lanes[lane]

    def _pass_on(self) -> None:
        """Give the place that has become free to the next lane, which goes behind the others then."""
        if not self._lanes:
            self._free += 1
            return
        lane, waiting = self._lanes.popitem(last=False)
        waiting.popleft().set_result(None)
        if waiting:
            self._lanes[lane] = waiting
