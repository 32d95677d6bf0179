"""A bounded queue for work with few concurrent slots, fair between callers."""

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable, Hashable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import StrEnum

from fleetlight.api.http.connection import UNKNOWN, ClientConnection
from fleetlight.api.http.errors import CallerLeftError


class QueueRefusal(StrEnum):
    """Why a request is refused.

    full: the queue is full. own: the queue of its flow is full, or it gave way to a request of a shorter flow.
    late: it has waited for the longest time.
    """

    FULL = "full"
    OWN = "own"
    LATE = "late"


@dataclass(frozen=True, slots=True, eq=False)
class _Waiting:
    """A waiting request. served: done when it is served; fails when it gives way. may_give_way: to another flow."""

    served: asyncio.Future[None]
    may_give_way: bool


class FairQueue:
    """A queue for one event loop. Each flow, such as the requests of a user, has a queue; flows take turns.

    When the queue is full, the longest flow gives way to a flow that is shorter by at least two, so that a few busy
    callers do not shut others out. Preferred requests, and those that have begun, never give way.
    at_once: number of concurrent slots. most_waiting: largest number of waiting requests; most_in_flow: of one flow;
    most_others: of those that are not preferred (default: `most_waiting`).
    wait_s: longest waiting time; None: unlimited.
    refusal: makes the error of a refused request.
    """

    def __init__(
        self,
        at_once: int,
        *,
        most_waiting: int,
        most_in_flow: int,
        refusal: Callable[[QueueRefusal], Exception],
        most_others: int | None = None,
        wait_s: float | None = None,
    ) -> None:
        self._free = self._at_once = at_once
        self._most_waiting = most_waiting
        self.most_in_flow = most_in_flow
        self._most_others = most_waiting if most_others is None else most_others
        self._refusal = refusal
        self._wait_s = wait_s
        self._flows: OrderedDict[Hashable, deque[_Waiting]] = OrderedDict()

    def left_for(self, flow: Hashable) -> int:
        """Return how many more requests of a flow may wait."""
        return self.most_in_flow - len(self._flows.get(flow, ()))

    @property
    def waiting(self) -> int:
        return sum(map(len, self._flows.values()))

    @property
    def served(self) -> int:
        """The number of occupied slots."""
        return self._at_once - self._free

    @asynccontextmanager
    async def lock(
        self, flow: Hashable, caller: ClientConnection = UNKNOWN, *, is_preferred: bool = False
    ) -> AsyncIterator[None]:
        """As `acquire`, for the time of the block."""
        await self.acquire(flow, caller, is_preferred=is_preferred)
        try:
            yield
        finally:
            self.release()

    async def acquire(
        self, flow: Hashable, caller: ClientConnection = UNKNOWN, *, is_preferred: bool = False, is_begun: bool = False
    ) -> None:
        """Wait for a slot, and hold it until `release`.

        is_preferred: it may wait where others may not. is_begun: it continues a served request, so it is never refused.
        Raises the error of `refusal`, at once if the queue is full, and CallerLeftError when the caller disconnects
        while it waits.
        """
        if self._free:
            # A free slot means that no request waits.
            self._free -= 1
            return
        if not is_begun and (why := self.refusal_of(flow, is_preferred=is_preferred)) is not None:
            raise self._refusal(why)
        if not is_begun and self._is_full(is_preferred=is_preferred):
            self._make_room(flow)
        waiting = _Waiting(asyncio.get_running_loop().create_future(), not (is_begun or is_preferred))
        await self._wait(flow, waiting, caller, None if is_begun else self._wait_s)

    def release(self) -> None:
        """Give the slot to the next flow, which then goes to the end of the turns."""
        if not self._flows:
            self._free += 1
            return
        flow, waiting = self._flows.popitem(last=False)
        waiting.popleft().served.set_result(None)
        if waiting:
            self._flows[flow] = waiting

    def refusal_of(self, flow: Hashable, *, is_preferred: bool = False) -> QueueRefusal | None:
        """Return why a request would be refused now; None if it would be served, or may wait."""
        if self._free:
            return None
        if len(self._flows.get(flow, ())) >= self.most_in_flow:
            return QueueRefusal.OWN
        return QueueRefusal.FULL if self._is_full(is_preferred=is_preferred) and not self._giving_way_to(flow) else None

    def _is_full(self, *, is_preferred: bool) -> bool:
        return self.waiting >= (self._most_waiting if is_preferred else self._most_others)

    def _giving_way_to(self, flow: Hashable) -> tuple[Hashable, _Waiting] | None:
        """Return the last request of the longest flow that may give way to a request of `flow`, and its flow."""
        longest = max(self._flows, key=lambda each: len(self._flows[each]), default=flow)
        if len(self._flows.get(longest, ())) <= len(self._flows.get(flow, ())) + 1:
            return None
        return next(((longest, each) for each in reversed(self._flows[longest]) if each.may_give_way), None)

    def _make_room(self, flow: Hashable) -> None:
        found = self._giving_way_to(flow)
        if found is not None:
            longest, waiting = found
            self._remove(longest, waiting)
            waiting.served.set_exception(self._refusal(QueueRefusal.OWN))

    async def _wait(self, flow: Hashable, waiting: _Waiting, caller: ClientConnection, wait_s: float | None) -> None:
        self._flows.setdefault(flow, deque()).append(waiting)
        leaving = asyncio.ensure_future(caller.left())
        try:
            await asyncio.wait((waiting.served, leaving), timeout=wait_s, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            self._give_up(flow, waiting)
            raise
        finally:
            has_left = not leaving.cancel()
        if has_left:
            self._give_up(flow, waiting)
            raise CallerLeftError
        if not waiting.served.done():
            self._give_up(flow, waiting)
            raise self._refusal(QueueRefusal.LATE)
        waiting.served.result()

    def _give_up(self, flow: Hashable, waiting: _Waiting) -> None:
        if not waiting.served.done():
            self._remove(flow, waiting)
        elif waiting.served.exception() is None:
            self.release()

    def _remove(self, flow: Hashable, waiting: _Waiting) -> None:
        self._flows[flow].remove(waiting)
        if not self._flows[flow]:
            del self._flows[flow]
