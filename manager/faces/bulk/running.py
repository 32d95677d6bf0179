"""Runs of bulk changes, in the API process that got the request, with the rights of its caller.

A lease shows that a process runs the change, and ends with that process. A run may lose its lease and go on for a
while: it claims items one by one under its number, so that two runs never submit the same item.
"""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

import structlog

from fleetlight.api.http.errors import ConflictError
from fleetlight.api.identity.rights import CallerRights
from fleetlight.api.shared.endpoint import ApiRequest
from fleetlight.api.shared.fleet_access import FleetAccess
from fleetlight.cells.errors import FleetUnreachableError
from fleetlight.cells.fleet.bulk_changes import BulkChange, BulkItem, ItemState, Outcome
from fleetlight.listing.errors import RightsLostError
from fleetlight.manager.faces.bulk.item_actions import BulkAction, ItemActions, request_for
from fleetlight.resources.clock import Clock

AT_ONCE = 8
"""Items that one process submits at the same time, over all its bulk changes."""
_ENDING_S = 5.0

_log = structlog.get_logger(__name__)
T = TypeVar("T")


@dataclass(slots=True)
class _Run:
    """One run in this process. reason: why it must end, unless its owner stops it; None while it goes on."""

    bulk: BulkChange
    number: int
    request: ApiRequest
    rights: CallerRights
    reason: str | None = None
    looking: asyncio.Lock = field(default_factory=asyncio.Lock)


class BulkRunner:
    """The runs of one process."""

    def __init__(self, access: FleetAccess, actions: ItemActions, clock: Clock) -> None:
        self._access = access
        self._fleet = access.fleet
        self._store = access.fleet.bulk_changes
        self._actions = actions
        self._clock = clock
        self._leases = access.fleet.open_leases("fleetlight bulk change")
        self._places = asyncio.Semaphore(AT_ONCE)
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_ending = False

    async def start(self, bulk: BulkChange, request: ApiRequest, rights: CallerRights) -> None:
        """Begin a run, which goes on after the answer to `request`. Raises ConflictError while one runs."""
        begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        # Take the lease within the task, or it would stay taken if the request ends meanwhile.
        task = asyncio.create_task(self._run(bulk, request, rights, begun))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        await asyncio.shield(begun)

    def is_held(self, bulk_id: str) -> bool:
        """Whether any process of the fleet runs a bulk change. Blocks; raises FleetUnreachableError."""
        name = _lease(bulk_id)
        holders = self._leases.holders([name])
        if holders is not None:
            return name in holders
        # Testing a file lease takes it briefly, which a concurrent start must not mistake for a run.
        with self._fleet.lock(name):
            if not self._leases.acquire(name):
                return True
            self._leases.release(name)
            return False

    async def end(self) -> None:
        """End all runs after their current items; an item that takes longer than some seconds becomes unknown."""
        self._is_ending = True
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=_ENDING_S)
            for task in late:
                task.cancel()
        self._leases.close()

    async def _run(
        self, bulk: BulkChange, request: ApiRequest, rights: CallerRights, begun: "asyncio.Future[None]"
    ) -> None:
        try:
            run = _Run(bulk, await self._ask(partial(self._begin, bulk.id)), request, rights)
        except Exception as error:  # noqa: BLE001  # the answer to the request
            begun.set_exception(error)
            return
        begun.set_result(None)
        try:
            items = iter(await self._ask(partial(self._store.items_of, bulk.id, ItemState.WAITING)))
            async with asyncio.TaskGroup() as group:
                for _ in range(AT_ONCE):
                    group.create_task(self._work(run, items))
            await self._ask(partial(self._store.end, bulk.id, run.number, run.reason))
        except Exception:  # noqa: BLE001  # nothing is above a task
            # With its lease free, the change reads as stopped.
            _log.exception("bulk.broken", bulk=bulk.id)
        finally:
            self._leases.release(_lease(bulk.id))

    def _begin(self, bulk_id: str) -> int:
        name = _lease(bulk_id)
        with self._fleet.lock(name):
            if self._is_ending or not self._leases.acquire(name):
                raise ConflictError(f"Bulk change {bulk_id} is being carried out already.")
            try:
                return self._store.begin(bulk_id, self._clock())
            except BaseException:
                self._leases.release(name)
                raise

    async def _work(self, run: _Run, items: Iterator[BulkItem]) -> None:
        """Submit one item after the other, concurrently with the other workers of the run."""
        try:
            for item in items:
                async with self._places:
                    if not await self._may_go_on(run) or not await self._carry_out(run, item):
                        return
        except FleetUnreachableError:
            # The other workers end after their current items, too.
            run.reason = "the fleet database did not answer"

    async def _may_go_on(self, run: _Run) -> bool:
        async with run.looking:
            if run.reason is None and run.rights.are_old:
                try:
                    await run.rights.confirm()
                except RightsLostError as error:
                    run.reason = str(error)
        if self._is_ending:
            run.reason = "the process ended that carried it out"
        return run.reason is None

    async def _carry_out(self, run: _Run, item: BulkItem) -> bool:
        """Submit one item; returns False if the run must end."""
        bulk, action = run.bulk, BulkAction(run.bulk.content.action)
        request = request_for(run.request, bulk.id, item.instance.uuid, action)
        refusal = await self._actions.refusal(request, item.instance)
        taken = refusal or Outcome(ItemState.SUBMITTING)
        leave = partial(self._store.leave_waiting, bulk.id, run.number, item.position)
        if not await self._ask(lambda: leave(taken, self._clock())):
            return await self._ask(partial(self._store.is_running, bulk.id, run.number))
        if refusal is None:
            done = await self._actions.submit(request, action)
            record = partial(self._store.record, bulk.id, item.position)
            await self._ask(lambda: record(done, self._clock()))
        return True

    async def _ask(self, question: Callable[[], T]) -> T:
        """Run a query without a timeout, after which it might still take effect."""
        return await self._access.act_anywhere(question)


def _lease(bulk_id: str) -> str:
    return f"bulk-change-{bulk_id}"
