"""Delivers all subscriptions: begins, ends and supervises a run for each.

A lease decides which deliverer works on a subscription: of several, each takes those that no other holds.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

import structlog

from fleetlight.api.caller import Caller, with_implied
from fleetlight.api.changes.watched_items import WatchedItems
from fleetlight.api.http.errors import BadRequestError, DirectoryUnavailableError, ForbiddenError, NotFoundError
from fleetlight.api.identity.rights import KnowsRoles
from fleetlight.api.subscriptions.brokers import broker_address, is_broker
from fleetlight.api.subscriptions.questions import caller_of, question_of
from fleetlight.api.subscriptions.targets import TargetRules
from fleetlight.cells.daemon_threads import DaemonThreads
from fleetlight.cells.database.leases import Leases
from fleetlight.cells.errors import FleetUnreachableError, ResourceNotFoundError
from fleetlight.cells.fan_out.cell_pool import CellPool
from fleetlight.cells.fleet.fleet import Fleet
from fleetlight.cells.fleet.subscriptions import Subscription, SubscriptionState
from fleetlight.cells.retrying import retrying_every
from fleetlight.delivery.broker_link import BrokerLink
from fleetlight.delivery.brokers import Broker
from fleetlight.delivery.errors import StopDeliveryError
from fleetlight.delivery.metrics import DelivererMetrics
from fleetlight.delivery.outcomes import Target
from fleetlight.delivery.run import Patience, Reading, Shared, SubscriptionRun
from fleetlight.delivery.webhooks import Webhook, WebhookCalls
from fleetlight.listing.errors import RightsLostError
from fleetlight.listing.watches.feed import ChangeFeed
from fleetlight.listing.watches.positions import PositionCodec, Positions
from fleetlight.listing.watches.watch import RIGHTS_INTERVAL_S, Watch
from fleetlight.listing.watches.watched_list import WatchedList
from fleetlight.query.errors import QueryError

_log = structlog.get_logger(__name__)
_RETRY_S = 1.0
UNCONFIRMED_US = 30 * 24 * 3600 * 1_000_000
_LOOK_INTERVAL_S = 1.0
_THREADS = 4
# The wait after a mistake of ours, which would be repeated at once.
_AGAIN_AFTER_FAILURE_S = 60.0
_UNASKABLE = (BadRequestError, ForbiddenError, NotFoundError, QueryError)


class StandingRights:
    """Checks that the owner of a subscription still has its rights (ConfirmsRights), without its credentials.

    If the identity strategy has its own users (`basic`, `tokens`), it is asked for the owner's current roles. With
    `none` every caller has every right. Keystone does not tell services about users who are not logged in: such a
    subscription goes on for a while after its owner last used it (`UNCONFIRMED_US`). identity: None if there is nothing
    to look up.
    """

    def __init__(self, owner: Caller, identity: KnowsRoles | None) -> None:
        self._owner = owner
        self._identity = identity
        self._confirmed_at = float("-inf")

    @property
    def are_old(self) -> bool:
        return time.monotonic() - self._confirmed_at >= RIGHTS_INTERVAL_S

    async def confirm(self) -> None:
        """Return once it is certain that the owner still has every right. Raises RightsLostError."""
        if not self.are_old:
            return
        if self._identity is not None:
            looking = retrying_every(_RETRY_S, DirectoryUnavailableError, _log_first)
            roles: frozenset[str] | None = await looking(
                self._identity.roles_of, self._owner.user_id, self._owner.project_id
            )
            if roles is None:
                raise RightsLostError("its owner cannot log in any more")
            lost = with_implied(self._owner.roles) - with_implied(roles)
            if lost:
                raise RightsLostError(f"its owner has lost the role {min(lost)}")
        self._confirmed_at = time.monotonic()


def _log_first(error: Exception, attempt: int, _wait_s: float) -> None:
    if attempt == 1:
        _log.warning("deliverer.rights_unknown", reason=str(error))


@dataclass(frozen=True, slots=True)
class Owners:
    """identity: knows the roles of owners, or None. is_believed: every caller has every right, so that no roles are
    needed.
    """

    identity: KnowsRoles | None
    is_believed: bool

    def rights_of(self, subscription: Subscription) -> StandingRights:
        is_known = subscription.content.user_id is not None and not self.is_believed
        return StandingRights(caller_of(subscription.content), self.identity if is_known else None)

    def are_unconfirmed(self, subscription: Subscription, now: int) -> bool:
        """Whether the owner's rights have not been confirmed for too long. now: Unix time in microseconds."""
        is_by_use = subscription.content.user_id is not None and self.identity is None and not self.is_believed
        return is_by_use and now - subscription.confirmed_at >= UNCONFIRMED_US


class Deliverer:
    """Runs in one event loop. cells, feed: of the fleet. leases: of this process, on the fleet database."""

    def __init__(
        self,
        fleet: Fleet,
        cells: CellPool,
        feed: ChangeFeed,
        leases: Leases,
        *,
        rules: TargetRules,
        patience: Patience,
        owners: Owners,
        metrics: DelivererMetrics,
        beat: Callable[[], None] = lambda: None,
    ) -> None:
        """beat: called at each look for subscriptions to deliver."""
        self._store = fleet.subscriptions
        self._clock = fleet.clock
        self._cells = cells
        self._feed = feed
        self._leases = leases
        self._owners = owners
        self._metrics = metrics
        self._beat = beat
        self._threads = DaemonThreads(_THREADS, "deliverer")
        self._shared = Shared(fleet.subscriptions, self._threads, patience, metrics, fleet.clock)
        self._codec = PositionCodec(None)
        self._rules = rules
        self._calls = WebhookCalls(rules)
        self._runs: dict[str, tuple[SubscriptionRun, asyncio.Task[StopDeliveryError]]] = {}
        self._not_before: dict[str, float] = {}

    async def run(self, stop: asyncio.Event) -> None:
        """Deliver until `stop` is set."""
        try:
            while not stop.is_set():
                self._beat()
                try:
                    await self._look()
                except FleetUnreachableError as error:
                    _log.warning("deliverer.fleet_unreachable", reason=error.reason)
                with suppress(TimeoutError):
                    async with asyncio.timeout(_LOOK_INTERVAL_S):
                        await stop.wait()
        finally:
            await self._end(list(self._runs))
            await self._calls.close()
            self._threads.shutdown(wait=False)

    async def _look(self) -> None:
        """Begin runs of active subscriptions, end those of others, and record those that ended. Raises
        FleetUnreachableError.
        """
        for subscription_id, (_, task) in list(self._runs.items()):
            if task.done():
                await self._note_end(subscription_id, task)
        found = await self._threads.run(self._store.all)
        active = {each.id: each for each in found if each.state is SubscriptionState.ACTIVE}
        for subscription in [each for each in active.values() if self._owners.are_unconfirmed(each, self._clock())]:
            await self._suspend(subscription, "its owner has not asked for it for 30 days: resume it to go on")
            del active[subscription.id]
        kept = await self._threads.run(partial(self._held, active))
        await self._end([each for each in self._runs if each not in kept])
        now = asyncio.get_running_loop().time()
        for subscription_id in kept.keys() - self._runs.keys():
            if self._not_before.get(subscription_id, 0) <= now:
                await self._begin(kept[subscription_id])
        await self._replay()
        self._metrics.counted(_by_state(found))

    def _held(self, active: Mapping[str, Subscription]) -> Mapping[str, Subscription]:
        """The subscriptions whose lease this process holds, or gets now. Blocks. Raises FleetUnreachableError."""
        held = self._leases.holds
        names = {each: _lease(each) for each in active}
        return {each: active[each] for each, name in names.items() if held(name) or self._leases.acquire(name)}

    async def _begin(self, subscription: Subscription) -> None:
        try:
            question = question_of(subscription.content, await self._cells.cells())
            target = await self._target_of(subscription)
        except _UNASKABLE as error:
            await self._suspend(subscription, f"its query cannot be asked any more: {error}")
            return
        except ResourceNotFoundError:
            return  # the subscription was removed meanwhile
        rights = self._owners.rights_of(subscription)

        async def open_list() -> WatchedList:
            return WatchedItems(question, caller_of(subscription.content), await self._cells.cells())

        def open_watch(watched: WatchedList, since: Positions | None) -> Watch:
            return Watch(self._feed, self._codec, watched, rights, since)

        def positions_of(watch: Watch) -> Positions:
            return self._codec.decode(watch.cursor()) or {}

        reading = Reading(open_list, open_watch, positions_of)
        run = SubscriptionRun(subscription, reading, target, rights, self._shared)
        self._runs[subscription.id] = run, asyncio.create_task(run.run())
        _log.info("deliverer.begun", subscription=subscription.id)

    async def _target_of(self, subscription: Subscription) -> Target:
        """The target of a subscription. Raises ResourceNotFoundError if the subscription was removed."""
        secret, url = await self._threads.run(partial(self._store.secret, subscription.id)), subscription.content.target
        if is_broker(url):
            return Broker(BrokerLink(broker_address(url), secret, self._rules))
        return Webhook(self._calls, url, secret)

    async def _note_end(self, subscription_id: str, task: "asyncio.Task[StopDeliveryError]") -> None:
        """Record that a run has ended by itself."""
        error = task.exception()
        if error is None:
            stop = task.result()
            _log.warning("deliverer.stopped", subscription=subscription_id, state=stop.state.value, reason=stop.reason)
            change = partial(self._store.change_state, subscription_id, stop.state, stop.reason)
            await self._threads.run(change)
        else:
            _log.error("deliverer.failed", subscription=subscription_id, exc_info=error)
            self._not_before[subscription_id] = asyncio.get_running_loop().time() + _AGAIN_AFTER_FAILURE_S
        del self._runs[subscription_id]
        await self._threads.run(partial(self._leases.release, _lease(subscription_id)))

    async def _end(self, ids: Sequence[str]) -> None:
        """Cancel runs, and release their subscriptions to other deliverers."""
        ending = [self._runs.pop(each)[1] for each in ids]
        for task in ending:
            task.cancel()
        await asyncio.gather(*ending, return_exceptions=True)
        for each in ids:
            await self._threads.run(partial(self._leases.release, _lease(each)))

    async def _suspend(self, subscription: Subscription, reason: str) -> None:
        _log.warning("deliverer.stopped", subscription=subscription.id, state="suspended", reason=reason)
        change = partial(self._store.change_state, subscription.id, SubscriptionState.SUSPENDED, reason)
        await self._threads.run(change)

    async def _replay(self) -> None:
        for failed in await self._threads.run(self._store.wanted):
            if failed.subscription_id in self._runs:
                self._runs[failed.subscription_id][0].replay(failed)


def _by_state(found: Sequence[Subscription]) -> Counter[str]:
    return Counter(
        "failing"
        if each.state is SubscriptionState.ACTIVE and each.delivery.failing_since is not None
        else each.state.value
        for each in found
    )


def _lease(subscription_id: str) -> str:
    return f"deliver-{subscription_id}"
