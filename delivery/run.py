"""The deliveries of one subscription: in order for each instance, otherwise in parallel, repeated until they succeed.

Events come from a watch of the feed, as those of a stream do. The stored position is the lowest one before which
everything was delivered or put aside. So a deliverer that ends, in whatever way, omits nothing; events that it was
delivering are delivered again, with the same ids.
"""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass, replace
from functools import partial
from uuid import uuid4

import msgspec
import structlog

from fleetlight.api.subscriptions.events import Event, change_event, other_event
from fleetlight.cells.daemon_threads import DaemonThreads
from fleetlight.cells.epochs import Position
from fleetlight.cells.errors import FleetUnreachableError
from fleetlight.cells.fleet.subscriptions import (
    MAX_FAILURES,
    FailedDelivery,
    Subscription,
    Subscriptions,
    SubscriptionState,
)
from fleetlight.cells.retrying import retrying_every
from fleetlight.delivery.errors import StopDeliveryError
from fleetlight.delivery.metrics import DelivererMetrics
from fleetlight.delivery.outcomes import Away, Delivered, Outcome, Refused, Target, Unwanted
from fleetlight.delivery.pace import Pace, Waits
from fleetlight.listing.errors import RightsLostError
from fleetlight.listing.watches.positions import Positions
from fleetlight.listing.watches.watch import ConfirmsRights, Watch, WatchEvent
from fleetlight.listing.watches.watched_list import ChangeKind, WatchedList
from fleetlight.resources.clock import Clock


@dataclass(slots=True, eq=False)
class Step:
    """An event whose delivery has begun. positions: of the cells after it; None if they were not read."""

    positions: Mapping[str, Position] | None
    has_ended: bool = False


class Progress:
    """The lowest position before which all events have ended."""

    def __init__(self) -> None:
        self._open: deque[Step] = deque()
        self.reached: Mapping[str, Position] | None = None

    def begin(self, positions: Mapping[str, Position] | None) -> Step:
        """Begin the next event, in the order of the feed."""
        step = Step(positions)
        self._open.append(step)
        return step

    def end(self, step: Step) -> None:
        step.has_ended = True
        while self._open and self._open[0].has_ended:
            positions = self._open.popleft().positions
            if positions is not None:
                self.reached = positions


_log = structlog.get_logger(__name__)

MAX_PENDING = 500
MAX_REQUESTS = 32
"""Limits of one subscription: unfinished events, and attempts at the same time."""
_SAVE_INTERVAL_S = 1.0
_LAST_SAVE_S = 5.0
_RETRY_S = 1.0
# Reading the position of the watch costs time for each cell.
_EVENTS_OF_POSITION = 20
_KINDS = frozenset(ChangeKind)


@dataclass(frozen=True, slots=True)
class Patience:
    """waits: between attempts. max_attempts: number of refusals after which an event is put aside.

    suspend_after_us: time without a success, in microseconds, after which a subscription is suspended.
    """

    waits: Waits
    max_attempts: int
    suspend_after_us: int


@dataclass(frozen=True, slots=True)
class Reading:
    """open_list: opens the list whose changes are delivered, over the current cells; raises FleetUnreachableError.

    open_watch: watches its changes from a position on. positions_of: returns the watch's position in all cells.
    """

    open_list: Callable[[], Awaitable[WatchedList]]
    open_watch: Callable[[WatchedList, Positions | None], Watch]
    positions_of: Callable[[Watch], Positions]


@dataclass(frozen=True, slots=True)
class Shared:
    """Parts that all runs share. threads: for blocking calls to the fleet database."""

    store: Subscriptions
    threads: DaemonThreads
    patience: Patience
    metrics: DelivererMetrics
    clock: Clock


class SubscriptionRun:
    """Delivers one subscription during `run`. rights: of its owner."""

    def __init__(
        self, subscription: Subscription, reading: Reading, target: Target, rights: ConfirmsRights, shared: Shared
    ) -> None:
        self._id = subscription.id
        self._what = subscription.content.what
        self._reading = reading
        self._target = target
        self._rights = rights
        self._store = shared.store
        self._threads = shared.threads
        self._patience = shared.patience
        self._metrics = shared.metrics
        self._clock = shared.clock
        self._state = self._saved_state = subscription.delivery
        self._told = subscription.delivery.is_complete
        self._progress = Progress()
        self._saved_positions: Positions | None = None
        self._pace = Pace(shared.patience.waits)
        self._room = asyncio.Semaphore(MAX_PENDING)
        self._places = asyncio.Semaphore(MAX_REQUESTS)
        self._last: dict[str, asyncio.Task[None]] = {}
        self._replayed: set[str] = set()
        self._tasks: asyncio.TaskGroup | None = None
        self._read = 0

    async def run(self) -> StopDeliveryError:
        """Deliver until cancelled, or until deliveries have to stop; returns the reason for that."""
        stops: list[StopDeliveryError] = []
        try:
            async with asyncio.TaskGroup() as self._tasks:
                self._tasks.create_task(self._save_regularly())
                await self._follow()
        except* StopDeliveryError as group:
            stops += [error for error in group.exceptions if isinstance(error, StopDeliveryError)]
        finally:
            self._tasks = None
            with suppress(FleetUnreachableError, TimeoutError):
                async with asyncio.timeout(_LAST_SAVE_S):
                    await self._save()
            await self._target.close()
        return stops[0]

    def replay(self, failed: FailedDelivery) -> None:
        """Retry an event that was put aside, after waiting ones of the same instance."""
        if self._tasks is not None and failed.id not in self._replayed:
            self._replayed.add(failed.id)
            self._begin(failed.subject or failed.id, self._try_again(failed))

    async def _follow(self) -> None:
        """Follow the feed for ever. Raises StopDeliveryError."""
        read_positions = partial(self._store.positions, self._id)
        since: Positions | None = await retrying_every(_RETRY_S, FleetUnreachableError)(
            self._threads.run, read_positions
        )
        if self._told is None:
            since = None  # nothing was delivered yet
        while True:
            try:
                since = await self._follow_from(since)
            except FleetUnreachableError as error:
                _log.warning("deliverer.fleet_unreachable", reason=error.reason)
            await asyncio.sleep(_RETRY_S)

    async def _follow_from(self, since: Positions | None) -> Positions | None:
        """Deliver the events of one watch; returns the position for the next one.

        The watch ends if this reader was too slow for it; the next one reads the missed changes from the changelogs. It
        also ends after a reset, since there may be other cells, which the list must know.
        """
        watched = await self._reading.open_list()
        watch = self._reading.open_watch(watched, since)
        async with aclosing(watch.events()) as events:
            async for event in events:
                if since is None:
                    await self._store_beginning(self._reading.positions_of(watch))
                positions = self._positions_at(event, watch)
                since = positions or since or {}
                await self._take(event, positions)
                if event.reset is not None:
                    break
                if event.cursor is not None and event.name != "ready":
                    await self._tell_coverage(watch, watched, positions)
        return since

    async def _store_beginning(self, positions: Positions) -> None:
        """Store the position before the first delivery: from then on nothing is omitted, even if this process dies."""
        self._state = replace(self._state, is_complete=False)
        self._progress.reached = positions
        await retrying_every(_RETRY_S, FleetUnreachableError)(self._save)

    def _positions_at(self, event: WatchEvent, watch: Watch) -> Positions | None:
        """The position of the watch after the event; None if it is not due to be read."""
        self._read += 1
        is_due = self._read % _EVENTS_OF_POSITION == 0
        is_place = event.reset is not None or (event.cursor is not None and event.name != "ready")
        return self._reading.positions_of(watch) if is_due or is_place else None

    async def _take(self, event: WatchEvent, positions: Positions | None) -> None:
        if event.name == "ended":
            raise StopDeliveryError(SubscriptionState.ENDED, msgspec.json.decode(event.data)["reason"])
        if event.reset is not None:
            await self._tell("reset", event.data, positions)
        elif event.name in _KINDS:
            await self._add(change_event(self._id, self._what, event.data), self._progress.begin(positions))
        elif positions is not None:
            self._progress.end(self._progress.begin(positions))

    async def _tell_coverage(self, watch: Watch, watched: WatchedList, positions: Positions | None) -> None:
        """Tell the target that its copy is complete, or is not, if that differs from what it was last told."""
        covered = watch.coverage()
        is_complete = all(each.why_not is None for each in covered)
        if is_complete is not self._told:
            await self._tell("complete" if is_complete else "incomplete", watched.coverage(covered, None), positions)
            self._told = is_complete
            self._state = replace(self._state, is_complete=is_complete)

    async def _tell(self, name: str, data: bytes, positions: Positions | None) -> None:
        """Deliver an event about all instances: after all events before it, and before all others."""
        while self._last:
            await asyncio.wait(self._last.values())
        step = self._progress.begin(positions)
        await self._deliver(other_event(self._id, name, data))
        self._progress.end(step)

    async def _add(self, event: Event, step: Step) -> None:
        await self._room.acquire()
        self._begin(event.subject or event.id, self._deliver_change(event, step))

    def _begin(self, key: str, work: Coroutine[None, None, None]) -> None:
        """Start work in parallel; work with the same key runs in order."""
        if self._tasks is not None:
            self._last[key] = self._tasks.create_task(self._after(self._last.get(key), key, work))

    async def _after(self, before: asyncio.Task[None] | None, key: str, work: Coroutine[None, None, None]) -> None:
        try:
            if before is not None:
                await asyncio.wait([before])
            await work
        finally:
            work.close()
            if self._last.get(key) is asyncio.current_task():
                del self._last[key]

    async def _deliver_change(self, event: Event, step: Step) -> None:
        await self._deliver(event)
        self._room.release()
        self._progress.end(step)

    async def _deliver(self, event: Event) -> None:
        """Return once the event is delivered or put aside."""
        refusals = 0
        while not isinstance(outcome := await self._attempt(event), Delivered):
            if not isinstance(outcome, Refused):
                continue  # the next attempt waits until the target may be there
            refusals += 1
            if refusals >= self._patience.max_attempts:
                failed = FailedDelivery(
                    str(uuid4()), self._id, event.id, event.type, event.subject, event.body, outcome.reason, refusals, 0
                )
                await self._put_aside(failed)
                return
            await asyncio.sleep(self._patience.waits.after(refusals))

    async def _attempt(self, event: Event) -> Outcome:
        async with self._places:
            if not self._pace.is_away:
                return await self._send(event)
        async with self._pace.probing:
            await self._pace.wait()
            return await self._send(event)

    async def _try_again(self, failed: FailedDelivery) -> None:
        async with self._places:
            outcome = await self._send(Event(failed.event_id, failed.type, failed.subject, failed.body))
        if isinstance(outcome, Delivered):
            drop = partial(self._store.drop, self._id, [failed.id])
            await retrying_every(_RETRY_S, FleetUnreachableError)(self._threads.run, drop)
        else:
            await self._put_aside(replace(failed, reason=outcome.reason, times=failed.times + 1, is_wanted=False))
        self._replayed.discard(failed.id)

    async def _put_aside(self, failed: FailedDelivery) -> None:
        keep = partial(self._store.add_failure, replace(failed, failed_at=self._clock()))
        count: int = await retrying_every(_RETRY_S, FleetUnreachableError)(self._threads.run, keep)
        self._metrics.put_aside.inc()
        _log.warning("deliverer.put_aside", subscription=self._id, event_id=failed.event_id, reason=failed.reason)
        if count >= MAX_FAILURES:
            raise StopDeliveryError(
                SubscriptionState.SUSPENDED, f"{count} events that were refused wait: replay or skip them first"
            )

    async def _send(self, event: Event) -> Outcome:
        """Send an event once. Raises StopDeliveryError."""
        await self._confirm_rights()
        began_at = time.monotonic()
        outcome = await self._target.send(event)
        self._note(outcome, began_at)
        if isinstance(outcome, Unwanted):
            raise StopDeliveryError(SubscriptionState.ENDED, outcome.reason)
        return outcome

    async def _confirm_rights(self) -> None:
        """Check the rights again, since an event may wait for days. Raises StopDeliveryError."""
        try:
            await self._rights.confirm()
        except RightsLostError as error:
            raise StopDeliveryError(SubscriptionState.ENDED, error.reason) from error

    def _note(self, outcome: Outcome, began_at: float) -> None:
        self._metrics.attempts.labels(type(outcome).__name__.lower()).inc()
        if isinstance(outcome, Away):
            self._pace.failed(began_at, outcome.retry_after_s)
        else:
            self._pace.worked()
        state, now = self._state, self._clock()
        if isinstance(outcome, Delivered):
            self._state = replace(
                state, delivered=state.delivered + 1, delivered_at=now, failing_since=None, last_error=None
            )
        else:
            self._state = replace(state, failing_since=state.failing_since or now, last_error=outcome.reason)

    async def _save_regularly(self) -> None:
        """Save each second. Raises StopDeliveryError if nothing was delivered for too long."""
        while True:
            await asyncio.sleep(_SAVE_INTERVAL_S)
            with suppress(FleetUnreachableError):  # the next save will do
                await self._save()
            since = self._state.failing_since
            if since is not None and self._clock() - since >= self._patience.suspend_after_us:
                reason = f"its target has taken nothing for too long: {self._state.last_error}"
                raise StopDeliveryError(SubscriptionState.SUSPENDED, reason)

    async def _save(self) -> None:
        """Save state and positions if they changed. Raises FleetUnreachableError."""
        state, reached = self._state, self._progress.reached
        if state == self._saved_state and reached is self._saved_positions:
            return
        positions = None if reached is self._saved_positions else reached
        await self._threads.run(partial(self._store.save, self._id, positions, state))
        self._saved_state, self._saved_positions = state, reached
