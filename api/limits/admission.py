"""The limit on concurrent pages, of lists, queries and counts of every face.

More concurrent pages would not be faster: they share the same processors, and would all miss their deadlines. So a
process makes a few at a time, fewer of those that ask cells, and the others wait, callers taking turns
(`fleetlight.api.limits.fair_queue`). A page that cannot be served in time is refused at once. A page holds its slot
while the process makes it, and not while its caller receives it; bytes that callers have not taken yet have a limit of
their own. Each process has its own limits.
"""

import asyncio
import collections
import time
from collections.abc import AsyncIterator, Callable, Hashable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from starlette.types import Scope

from fleetlight.api.caller import Caller
from fleetlight.api.http.connection import UNKNOWN, ClientConnection
from fleetlight.api.http.errors import RETRY_LISTS_AFTER_S, TooManyListsError
from fleetlight.api.limits.fair_queue import FairQueue, QueueRefusal
from fleetlight.api.settings import ApiSettings

LISTS: Final = "lists"
LIVE: Final = "live"
WATCHES = "watches"
_SHARE_OF_CALLER = 4
_MIB = 2**20
SECONDS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
"""Buckets for durations of milliseconds to seconds."""


class ListQueueMetrics:
    """The metrics of all queues of pages, in `registry`."""

    def __init__(self, registry: CollectorRegistry) -> None:
        gauge = partial(Gauge, registry=registry)
        counter = partial(Counter, registry=registry)
        histogram = partial(Histogram, registry=registry)
        self._list_wait = histogram(
            "fleetlight_list_wait_seconds",
            "Time for which a page waited for a place, by queue: `lists`, or `live` where cells are asked",
            ["queue"],
            buckets=SECONDS,
        )
        self._waiting_lists = gauge(
            "fleetlight_lists_waiting",
            "Pages that wait for a place, by queue: `lists`, or `live` where cells are asked",
            ["queue"],
        )
        self._lists_in_the_making = gauge(
            "fleetlight_lists_in_the_making",
            "Pages that are made now, by queue: `lists`, or `live` where cells are asked",
            ["queue"],
        )
        self._refused_lists = counter(
            "fleetlight_lists_refused",
            "Pages refused with 503: `full`, as many wait as may; `own`, as many of the caller; `late`, waited long",
            ["queue", "reason"],
        )

    def of_queue(self, queue: str) -> "QueueMetrics":
        return QueueMetrics(
            self._waiting_lists.labels(queue),
            self._lists_in_the_making.labels(queue),
            self._list_wait.labels(queue),
            {reason: self._refused_lists.labels(queue, reason) for reason in QueueRefusal},
        )


class QueueMetrics:
    """The metrics of one queue: numbers of waiting, served and refused pages, and waiting times."""

    def __init__(self, waiting: Gauge, served: Gauge, wait: Histogram, refused: Mapping[QueueRefusal, Counter]) -> None:
        self._waiting = waiting
        self._served = served
        self.wait = wait
        self._refused = refused

    def show(self, waiting: Callable[[], int], served: Callable[[], int]) -> None:
        """Read these numbers whenever the metrics are read."""
        self._waiting.set_function(waiting)
        self._served.set_function(served)

    def count_refusal(self, why: QueueRefusal) -> None:
        self._refused[why].inc()


@dataclass(frozen=True, slots=True)
class RateLimit:
    """A limit on a caller in the headers of an answer, by draft-ietf-httpapi-ratelimit-headers-10.

    All limits are on concurrent requests (`qu="concurrent-requests"`), so there is no window, and the remaining number
    changes whenever a request ends.
    name: of the limited resource. quota: concurrent requests of a caller. left: how many more now. wait_s: time to the
    next attempt, in seconds.
    """

    name: str
    quota: int
    left: int
    wait_s: int | None = None

    @property
    def headers(self) -> tuple[tuple[str, str], tuple[str, str]]:
        wait = "" if self.wait_s is None else f";t={self.wait_s}"
        return (
            ("RateLimit-Policy", f'"{self.name}";q={self.quota};qu="concurrent-requests"'),
            ("RateLimit", f'"{self.name}";r={max(0, self.left)}{wait}'),
        )


class ListAdmission:
    """The slots of one process, for one event loop.

    has_identity: whether callers log in; otherwise client addresses count as callers.
    unanswered: bytes of bodies of unanswered requests (fleetlight.api.limits.bodies).
    """

    def __init__(self, settings: ApiSettings, metrics: ListQueueMetrics, *, has_identity: bool) -> None:
        self._has_identity = has_identity
        self._unsent = HeldBytes(settings.max_unread_mib * _MIB)
        self.unanswered = HeldBytes(settings.max_unread_mib * _MIB)
        self.lists = _Queue(LISTS, settings.max_lists, settings, metrics)
        self.live = _Queue(LIVE, settings.max_live_lists, settings, metrics)

    def of(self, caller: Caller, connection: ClientConnection = UNKNOWN) -> "RequestAdmission":
        """Make the admission of one request."""
        flow = caller.user_id if self._has_identity else connection.network
        return RequestAdmission(self, flow, connection, self._unsent)


class RequestAdmission:
    """The admission of one request (fleetlight.listing.admission.Admission).

    Only its first page, or its first query to cells, can be refused; a request that has begun may finish.
    """

    def __init__(
        self, limits: ListAdmission, flow: Hashable, connection: ClientConnection, unsent: "HeldBytes"
    ) -> None:
        """flow: the key of the caller's requests, a user or a network."""
        self._limits = limits
        self.flow = flow
        self.connection = connection
        self._unsent = unsent
        self.is_begun = False
        self.entered: set[_Queue] = set()
        self.refused_by: _Queue | None = None
        self._slot: _Slot | None = None
        self._entering = asyncio.Lock()

    @asynccontextmanager
    async def page(self, *, is_small: bool = False) -> AsyncIterator["_Slot"]:
        """See fleetlight.listing.admission.Admission. Raises TooManyListsError, CallerLeftError."""
        # If several tasks begin a page, one waits, and the others share its slot.
        async with self._entering:
            slot = self._slot = self._slot or await self.enter(is_small=is_small)
            slot.pages += 1
        try:
            yield slot
        finally:
            slot.pages -= 1
            if not slot.pages:
                self._slot = None
                slot.leave()

    async def enter(self, *, is_small: bool) -> "_Slot":
        """Take a slot, until `leave`. Raises TooManyListsError, CallerLeftError."""
        slot = _Slot(self, self._limits.live)
        if not self.is_begun and (why := self._unsent.refusal_of(self.flow)) is not None:
            raise self._limits.lists.refused(why)
        if not is_small:
            await slot.wait_in(self._limits.lists)
        return slot

    @property
    def rate_limit(self) -> RateLimit | None:
        """Return the limit for the headers of the answer; None if the request met no limit."""
        queue = self.refused_by or next(iter(self.entered), None)
        if queue is None:
            return None
        if self.refused_by is not None:
            return RateLimit(LISTS, queue.most_in_flow, 0, RETRY_LISTS_AFTER_S)
        return RateLimit(LISTS, queue.most_in_flow, queue.left_for(self.flow))

    @property
    def is_still_refused(self) -> Callable[[], bool] | None:
        """Return a function that says whether the same queue would refuse an equal request, and counts that refusal.

        None if this request was not refused.
        """
        return None if self.refused_by is None else partial(self.refused_by.refuses, self.flow)

    @contextmanager
    def handing_over(self, size: int) -> Iterator[None]:
        """Count `size` bytes of an answer as kept in memory while the caller reads them in the block."""
        self._unsent.add(self.flow, size)
        try:
            yield
        finally:
            self._unsent.add(self.flow, -size)


def admission_of(scope: Scope) -> RequestAdmission | None:
    """Return the admission in a request's state, for middleware; None until a face has set it."""
    admission: RequestAdmission | None = scope.get("state", {}).get("admission")
    return admission


class _Slot:
    """The slot that the tasks of one page share. pages: number of nested pages in it."""

    def __init__(self, request: RequestAdmission, live: "_Queue") -> None:
        self.pages = 0
        self._request = request
        self._live = live
        self._held: _Queue | None = None
        self._is_left = False
        # Without the lock, one of several tasks that wait for the slot would keep it for ever.
        self._moving = asyncio.Lock()

    async def wait_in(self, queue: "_Queue") -> None:
        """Move to a slot of `queue`. Raises TooManyListsError, CallerLeftError."""
        request = self._request
        is_begun = request.is_begun or queue in request.entered
        try:
            began = time.perf_counter()
            await queue.acquire(request.flow, request.connection, is_begun=is_begun)
            queue.metrics.wait.observe(time.perf_counter() - began)
        except TooManyListsError:
            request.refused_by = queue
            raise
        request.entered.add(queue)
        self._held = queue
        if self._is_left:
            # Another task of the page has failed meanwhile, so no task needs the slot any more.
            self._give_back()

    async def ask_cells(self) -> None:
        async with self._moving:
            if self._held is not self._live:
                self._give_back()
                await self.wait_in(self._live)

    def leave(self) -> None:
        """Leave the slot, since the page is ready, or has failed."""
        self._is_left = True
        # The request has work to lose from now on, so it is not refused any more.
        self._request.is_begun = True
        self._give_back()

    def _give_back(self) -> None:
        if self._held is not None:
            self._held.release()
            self._held = None


class HeldBytes:
    """Bytes kept in memory by flow: of answers that callers have not taken yet, or of bodies."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._of = collections.Counter[Hashable]()
        self._total = 0

    def add(self, flow: Hashable, size: int) -> None:
        self._total += size
        self._of[flow] += size
        if not self._of[flow]:
            del self._of[flow]

    def refusal_of(self, flow: Hashable) -> QueueRefusal | None:
        """Return why no further bytes may be kept for this caller now; None if they may."""
        if self._total >= self._most:
            return QueueRefusal.FULL
        return QueueRefusal.OWN if self._of[flow] >= self._most // _SHARE_OF_CALLER else None


class _Queue(FairQueue):
    """A queue of slots of one kind, with its metrics."""

    def __init__(self, kind: str, at_once: int, settings: ApiSettings, metrics: ListQueueMetrics) -> None:
        self.metrics = metrics.of_queue(kind)
        super().__init__(
            at_once,
            most_waiting=settings.max_waiting_lists,
            most_in_flow=max(1, settings.max_waiting_lists // _SHARE_OF_CALLER),
            refusal=self.refused,
            wait_s=settings.list_wait_s,
        )
        self.metrics.show(lambda: self.waiting, lambda: self.served)

    def refuses(self, flow: Hashable) -> bool:
        """Whether a request of this flow may not wait; counts it as refused then."""
        why = self.refusal_of(flow)
        if why is not None:
            self.metrics.count_refusal(why)
        return why is not None

    def refused(self, why: QueueRefusal) -> TooManyListsError:
        """Count a refused request, and make its error."""
        self.metrics.count_refusal(why)
        return TooManyListsError(is_own=why is QueueRefusal.OWN)
