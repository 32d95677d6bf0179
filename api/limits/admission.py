"""The limit on pages that are made at the same time, of lists, queries and counts of every face.

More pages at once are not made any faster: they wait for the same processors, and keep each other from being ready in
time. So a few are made, fewer of those for which cells are asked, and the others wait in order, the callers in rounds
(`fleetlight.api.limits.fair_queue`). Those that cannot be served in time are refused at once, before anything is done
for them. A slot is held while a page is made, and not while its caller receives it; the bytes that callers have not
taken yet have a bound of their own. Each process counts for itself.
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
"""The buckets of what takes a part of a second, or a few."""


class ListQueueMetrics:
    """What is measured of all queues in which pages wait, in `registry`."""

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
    """What is measured of one queue: how many wait and are served, how long they waited, and how many were refused."""

    def __init__(self, waiting: Gauge, served: Gauge, wait: Histogram, refused: Mapping[QueueRefusal, Counter]) -> None:
        self._waiting = waiting
        self._served = served
        self.wait = wait
        self._refused = refused

    def show(self, waiting: Callable[[], int], served: Callable[[], int]) -> None:
        """Ask these when the metrics are read."""
        self._waiting.set_function(waiting)
        self._served.set_function(served)

    def count_refusal(self, why: QueueRefusal) -> None:
        self._refused[why].inc()


@dataclass(frozen=True, slots=True)
class RateLimit:
    """What an answer says of a limit on its caller, in the fields of draft-ietf-httpapi-ratelimit-headers-10.

    All our limits are of requests at the same time (`qu="concurrent-requests"`), so there is no window, and what is
    left changes whenever one ends.

    name: of what is limited. quota: how many a caller may have at the same time. left: how many more now. wait_s: when
    to try again, in seconds.
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

    has_identity: whether callers log in; otherwise callers are the addresses that requests come from.
    unanswered: the bytes of bodies whose requests are not answered yet (fleetlight.api.limits.bodies).
    """

    def __init__(self, settings: ApiSettings, metrics: ListQueueMetrics, *, has_identity: bool) -> None:
        self._has_identity = has_identity
        self._unsent = HeldBytes(settings.max_unread_mib * _MIB)
        self.unanswered = HeldBytes(settings.max_unread_mib * _MIB)
        self.lists = _Queue(LISTS, settings.max_lists, settings, metrics)
        self.live = _Queue(LIVE, settings.max_live_lists, settings, metrics)

    def of(self, caller: Caller, connection: ClientConnection = UNKNOWN) -> "RequestAdmission":
        """What admits the pages of one request."""
        flow = caller.user_id if self._has_identity else connection.network
        return RequestAdmission(self, flow, connection, self._unsent)


class RequestAdmission:
    """The admission of one request (fleetlight.listing.admission.Admission).

    Only its first page, or its first question to cells, is refused: what a request has begun it may finish.
    """

    def __init__(
        self, limits: ListAdmission, flow: Hashable, connection: ClientConnection, unsent: "HeldBytes"
    ) -> None:
        """flow: what is counted together, a user or a network."""
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
        # Of several tasks that begin a page one waits, and the others share its slot.
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
        """A slot of its own, until it is left."""
        slot = _Slot(self, self._limits.live)
        if not self.is_begun and (why := self._unsent.refusal_of(self.flow)) is not None:
            raise self._limits.lists.refused(why)
        if not is_small:
            await slot.wait_in(self._limits.lists)
        return slot

    @property
    def rate_limit(self) -> RateLimit | None:
        """What the answer says of the limit that the request is under; None if it was under none."""
        queue = self.refused_by or next(iter(self.entered), None)
        if queue is None:
            return None
        if self.refused_by is not None:
            return RateLimit(LISTS, queue.most_in_flow, 0, RETRY_LISTS_AFTER_S)
        return RateLimit(LISTS, queue.most_in_flow, queue.left_for(self.flow))

    @property
    def is_still_refused(self) -> Callable[[], bool] | None:
        """Says whether another such request would be refused by the same queue, and counts that as one.

        None if this one was not refused.
        """
        return None if self.refused_by is None else partial(self.refused_by.refuses, self.flow)

    @contextmanager
    def handing_over(self, size: int) -> Iterator[None]:
        """In the block the caller takes an answer of so many bytes, which are kept until then."""
        self._unsent.add(self.flow, size)
        try:
            yield
        finally:
            self._unsent.add(self.flow, -size)


def admission_of(scope: Scope) -> RequestAdmission | None:
    """What admits the pages of a request: the `admission` of its state, for middleware; None until a face knows it."""
    admission: RequestAdmission | None = scope.get("state", {}).get("admission")
    return admission


class _Slot:
    """What the tasks of one page hold. pages: how many are made in it, one inside of another."""

    def __init__(self, request: RequestAdmission, live: "_Queue") -> None:
        self.pages = 0
        self._request = request
        self._live = live
        self._held: _Queue | None = None
        self._is_left = False
        # Of several tasks that wait for the same slot one would keep it for ever.
        self._moving = asyncio.Lock()

    async def wait_in(self, queue: "_Queue") -> None:
        """Raises TooManyListsError, CallerLeftError."""
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
            # Another task of the page has failed meanwhile, and no task waits for this one any more.
            self._give_back()

    async def ask_cells(self) -> None:
        async with self._moving:
            if self._held is not self._live:
                self._give_back()
                await self.wait_in(self._live)

    def leave(self) -> None:
        """The page is made, or has failed."""
        self._is_left = True
        # Something has been made for the request, which is not to be lost.
        self._request.is_begun = True
        self._give_back()

    def _give_back(self) -> None:
        if self._held is not None:
            self._held.release()
            self._held = None


class HeldBytes:
    """The bytes that are kept for callers, by their flows: of answers that they have not taken yet, or of bodies."""

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
        """Why nothing more is kept for this caller now."""
        if self._total >= self._most:
            return QueueRefusal.FULL
        return QueueRefusal.OWN if self._of[flow] >= self._most // _SHARE_OF_CALLER else None


class _Queue(FairQueue):
    """Slots of one kind, with what is measured of them."""

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
        """Whether a request of this flow may not wait; it is counted as refused."""
        why = self.refusal_of(flow)
        if why is not None:
            self.metrics.count_refusal(why)
        return why is not None

    def refused(self, why: QueueRefusal) -> TooManyListsError:
        """The error of a request that is refused; it is counted."""
        self.metrics.count_refusal(why)
        return TooManyListsError(is_own=why is QueueRefusal.OWN)
