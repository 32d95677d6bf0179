"""A queue for work of which little is done at the same time: bounded, and fair between callers."""

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable, Hashable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import StrEnum

from fleetlight.api.http.connection import UNKNOWN, ClientConnection
from fleetlight.api.http.errors import CallerLeftError


class QueueRefusal(StrEnum):
    """Why a request is not served.

    full: as many wait as may. own: as many of its lane wait as may, or it gave way to one of a shorter lane.
    late: it has waited for as long as it may.
    """

    FULL = "full"
    OWN = "own"
    LATE = "late"


@dataclass(frozen=True, slots=True, eq=False)
class _Waiting:
    """served: done when its turn has come, and failed when it gave way. may_give_way: to a request of another lane."""

    served: asyncio.Future[None]
    may_give_way: bool


class FairQueue:
    """For one event loop. Requests wait in lanes, and the lanes are served in rounds: one request of each.

    When as many wait as may, the longest lane gives way to one that is shorter by two at least: a few callers that ask
    for much do not keep others from waiting. Those that are preferred, or have begun, give way to none.

    at_once: how many are served at the same time. most_waiting: in all lanes. most_in_lane: in one of them.
    most_others: how many wait that are not preferred; as many as may wait unless given.
    wait_s: how long one waits at most; None: for as long as it takes.
    refusal: makes the error that a request gets which is not served.
    """

    def __init__(
        self,
        at_once: int,
        *,
        most_waiting: int,
        most_in_lane: int,
        refusal: Callable[[QueueRefusal], Exception],
        most_others: int | None = None,
        wait_s: float | None = None,
    ) -> None:
        self._free = self._at_once = at_once
        self._most_waiting = most_waiting
        self._most_in_lane = most_in_lane
        self._most_others = most_waiting if most_others is None else most_others
        self._refusal = refusal
        self._wait_s = wait_s
        self._lanes: OrderedDict[Hashable, deque[_Waiting]] = OrderedDict()

    @property
    def waiting(self) -> int:
        return sum(map(len, self._lanes.values()))

    @property
    def served(self) -> int:
        """How many are served now."""
        return self._at_once - self._free

    @asynccontextmanager
    async def lock(
        self, lane: Hashable, caller: ClientConnection = UNKNOWN, *, is_preferred: bool = False
    ) -> AsyncIterator[None]:
        """As `acquire`; the place is held while the block lasts."""
        await self.acquire(lane, caller, is_preferred=is_preferred)
        try:
            yield
        finally:
            self.release()

    async def acquire(
        self, lane: Hashable, caller: ClientConnection = UNKNOWN, *, is_preferred: bool = False, is_begun: bool = False
    ) -> None:
        """Wait until the request is served; its place is held until `release`.

        is_preferred: it may wait where others may not. is_begun: it goes on with what was served before, so it is never
        refused.

        Raises what `refusal` makes, at once when too many wait already, and CallerLeftError when the caller goes while
        it waits.
        """
        if self._free:
            # Then no caller waits.
            self._free -= 1
            return
        if not is_begun and (why := self.refusal_of(lane, is_preferred=is_preferred)) is not None:
            raise self._refusal(why)
        if not is_begun and self._is_full(is_preferred=is_preferred):
            self._make_room(lane)
        waiting = _Waiting(asyncio.get_running_loop().create_future(), not (is_begun or is_preferred))
        await self._wait(lane, waiting, caller, None if is_begun else self._wait_s)

    def release(self) -> None:
        """Give the place that has become free to the next lane, which goes behind the others then."""
        if not self._lanes:
            self._free += 1
            return
        lane, waiting = self._lanes.popitem(last=False)
        waiting.popleft().served.set_result(None)
        if waiting:
            self._lanes[lane] = waiting

    def refusal_of(self, lane: Hashable, *, is_preferred: bool = False) -> QueueRefusal | None:
        """Why a request that comes now is refused; None if it is served, or may wait."""
        if self._free:
            return None
        if len(self._lanes.get(lane, ())) >= self._most_in_lane:
            return QueueRefusal.OWN
        return QueueRefusal.FULL if self._is_full(is_preferred=is_preferred) and not self._giving_way_to(lane) else None

    def _is_full(self, *, is_preferred: bool) -> bool:
        return self.waiting >= (self._most_waiting if is_preferred else self._most_others)

    def _giving_way_to(self, lane: Hashable) -> tuple[Hashable, _Waiting] | None:
        """The last of the longest lane that may give way to a request of `lane`, with its own."""
        longest = max(self._lanes, key=lambda each: len(self._lanes[each]), default=lane)
        if len(self._lanes.get(longest, ())) <= len(self._lanes.get(lane, ())) + 1:
            return None
        return next(((longest, each) for each in reversed(self._lanes[longest]) if each.may_give_way), None)

    def _make_room(self, lane: Hashable) -> None:
        found = self._giving_way_to(lane)
        if found is not None:
            longest, waiting = found
            self._remove(longest, waiting)
            waiting.served.set_exception(self._refusal(QueueRefusal.OWN))

    async def _wait(self, lane: Hashable, waiting: _Waiting, caller: ClientConnection, wait_s: float | None) -> None:
        self._lanes.setdefault(lane, deque()).append(waiting)
        leaving = asyncio.ensure_future(caller.left())
        try:
            await asyncio.wait((waiting.served, leaving), timeout=wait_s, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            self._give_up(lane, waiting)
            raise
        finally:
            has_left = not leaving.cancel()
        if has_left:
            self._give_up(lane, waiting)
            raise CallerLeftError
        if not waiting.served.done():
            self._give_up(lane, waiting)
            raise self._refusal(QueueRefusal.LATE)
        waiting.served.result()

    def _give_up(self, lane: Hashable, waiting: _Waiting) -> None:
        if not waiting.served.done():
            self._remove(lane, waiting)
        elif waiting.served.exception() is None:
            self.release()

    def _remove(self, lane: Hashable, waiting: _Waiting) -> None:
        self._lanes[lane].remove(waiting)
        if not self._lanes[lane]:
            del self._lanes[lane]
