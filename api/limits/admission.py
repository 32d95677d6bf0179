"""The limit on pages that are made at the same time, of lists, queries and counts of every face.

More pages at once are not made any faster: they wait for the same processors, and keep each other from being ready in
time. So a few are made, fewer of those for which cells are asked, and the others wait in order, the callers in rounds
(`fleetlight.api.limits.fair_queue`). Those that cannot be served in time are refused at once, before anything is done
for them. A slot is held while a page is made, and not while its caller receives it; the bytes that callers have not
taken yet have a bound of their own. Each process counts for itself.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final

from fleetlight.api.caller import Caller
from fleetlight.api.http.connection import UNKNOWN, Connection
from fleetlight.api.http.errors import TooManyListsError
from fleetlight.api.limits.fair_queue import FairQueue, Refusal
from fleetlight.api.limits.queue_metrics import ListQueueMetrics
from fleetlight.api.settings import ApiSettings

LISTS: Final = "lists"
LIVE: Final = "live"
_SHARE_OF_CALLER = 4
_MIB = 2**20


class ListAdmission:
    """The places of one process, for one event loop.

    has_identity: whether callers prove who they are; otherwise they are told apart by their addresses.
    """

    def __init__(self, settings: ApiSettings, metrics: ListQueueMetrics, *, has_identity: bool) -> None:
        self._has_identity = has_identity
        self._unread = _Unread(settings.max_unread_mib * _MIB)
        self.lists = _Queue(LISTS, settings.max_lists, settings, metrics)
        self.live = _Queue(LIVE, settings.max_live_lists, settings, metrics)

    def of(self, caller: Caller, connection: Connection = UNKNOWN) -> "RequestAdmission":
        """What admits the pages of one request (fleetlight.listing.admission.Admission)."""
        lane = caller.user_id if self._has_identity else connection.network
        return RequestAdmission(self, lane, connection, self._unread)


class RequestAdmission:
    """Of one request, of which only the first page, or question to cells, is refused: what was begun is finished."""

    def __init__(self, places: ListAdmission, lane: Hashable, connection: Connection, unread: "_Unread") -> None:
        self._places = places
        self._lane = lane
        self._connection = connection
        self._unread = unread
        self._is_begun = False
        self._entered: set[_Queue] = set()
        self._refused_by: _Queue | None = None

    async def enter(self, *, is_small: bool) -> "_Place":
        place = _Place(self)
        if not self._is_begun and (why := self._unread.refusal_of(self._lane)) is not None:
            raise self._places.lists.refused(why)
        if not is_small:
            await place.wait_in(self._places.lists)
        return place

    @property
    def live(self) -> "_Queue":
        return self._places.live

    async def wait(self, queue: "_Queue") -> None:
        """Raises TooManyListsError, CallerLeftError."""
        is_begun = self._is_begun or queue in self._entered
        try:
            await queue.acquire(self._lane, self._connection, is_begun=is_begun)
        except TooManyListsError:
            self._refused_by = queue
            raise
        self._entered.add(queue)

    @property
    def is_still_refused(self) -> Callable[[], bool] | None:
        """Tells whether another such request would be refused by the same queue, and counts that as one.

        None if this one was not refused.
        """
        return None if self._refused_by is None else partial(self._refused_by.refuses, self._lane)

    @contextmanager
    def handing_over(self, size: int) -> Iterator[None]:
        """In the block the caller takes an answer of so many bytes, which are kept until then."""
        self._unread.add(self._lane, size)
        try:
            yield
        finally:
            self._unread.add(self._lane, -size)

    def begin(self) -> None:
        """Something has been made for the request, which is not to be lost."""
        self._is_begun = True


class _Place:
    """Tasks of one page share it: what a page needs of its cells is asked at once."""

    def __init__(self, request: RequestAdmission) -> None:
        self._request = request
        self._held: _Queue | None = None
        self._is_left = False
        # Of several tasks that wait for the same place one would keep it for ever.
        self._moving = asyncio.Lock()

    async def wait_in(self, queue: "_Queue") -> None:
        await self._request.wait(queue)
        self._held = queue
        if self._is_left:
            # Another task of the page has failed meanwhile, and this one is not waited for any more.
            self._give_back()

    async def ask_cells(self) -> None:
        async with self._moving:
            if self._held is not self._request.live:
                self._give_back()
                await self.wait_in(self._request.live)

    def leave(self) -> None:
        self._is_left = True
        self._request.begin()
        self._give_back()

    def _give_back(self) -> None:
        if self._held is not None:
            self._held.release()
            self._held = None


class _Unread:
    """The bytes of answers that callers have not taken yet."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._of = Counter[Hashable]()
        self._total = 0

    def add(self, lane: Hashable, size: int) -> None:
        self._total += size
        self._of[lane] += size
        if not self._of[lane]:
            del self._of[lane]

    def refusal_of(self, lane: Hashable) -> Refusal | None:
        """Why no further answer is made for this caller now."""
        if self._total >= self._most:
            return Refusal.FULL
        return Refusal.OWN if self._of[lane] >= self._most // _SHARE_OF_CALLER else None


class _Queue:
    """Places of one kind, with what is measured of them."""

    def __init__(self, kind: str, at_once: int, settings: ApiSettings, metrics: ListQueueMetrics) -> None:
        self._metrics = metrics.of_queue(kind)
        self._queue = FairQueue(
            at_once,
            most_waiting=settings.max_waiting_lists,
            most_in_lane=max(1, settings.max_waiting_lists // _SHARE_OF_CALLER),
            refusal=self.refused,
            wait_s=settings.list_wait_s,
        )
        self._metrics.show(lambda: self._queue.waiting, lambda: self._queue.served)

    async def acquire(self, lane: Hashable, connection: Connection, *, is_begun: bool) -> None:
        began = time.perf_counter()
        await self._queue.acquire(lane, connection, is_begun=is_begun)
        self._metrics.count_wait(time.perf_counter() - began)

    def refuses(self, lane: Hashable) -> bool:
        """Whether a request of this lane gets no place to wait at; it is counted as refused."""
        why = self._queue.refusal_of(lane)
        if why is not None:
            self._metrics.count_refusal(why)
        return why is not None

    def release(self) -> None:
        self._queue.release()

    def refused(self, why: Refusal) -> TooManyListsError:
        """The error of a request that is refused; it is counted."""
        self._metrics.count_refusal(why)
        return TooManyListsError(is_own=why is Refusal.OWN)
