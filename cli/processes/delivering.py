"""Runs the deliverer of subscriptions; a module of its own, since its imports are slow."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from threading import Event

import uvloop

from fleetlight.api.identity.opening import open_identity
from fleetlight.api.identity.rights import KnowsRoles
from fleetlight.api.subscriptions.targets import TargetRules
from fleetlight.cells.daemon_threads import DaemonThreads
from fleetlight.cells.fan_out.cell_pool import CellPool
from fleetlight.cells.fleet.fleet import Fleet
from fleetlight.cells.kinds.opening import open_adapter
from fleetlight.cells.model import Cell
from fleetlight.cli.settings import Settings
from fleetlight.delivery.deliverer import Deliverer, Owners
from fleetlight.delivery.metrics import DelivererMetrics
from fleetlight.delivery.pace import Waits
from fleetlight.delivery.run import Patience
from fleetlight.indexer.stream.liveness import ALIVE, Probe, SignOfLife
from fleetlight.listing.watches.changelogs import Changelogs
from fleetlight.listing.watches.feed import ChangeFeed

_SILENT_AFTER_S = 180.0
_DAY_US = 24 * 3600 * 1_000_000


class DelivererProbes:
    """The probes of a deliverer, which takes no requests."""

    def __init__(self) -> None:
        self.heartbeat = SignOfLife()

    def healthz(self) -> Probe:
        return Probe(False, {"status": "stuck"}) if self.heartbeat.silent_s > _SILENT_AFTER_S else ALIVE

    def readyz(self) -> Probe:
        return ALIVE


def run_deliverer(
    settings: Settings,
    fleet: Fleet,
    metrics: DelivererMetrics,
    stop: Event,
    *,
    beat: Callable[[], None] = lambda: None,
    waits: Waits | None = None,
) -> None:
    """Deliver the subscriptions that no other process delivers, in an event loop, until `stop` is set.

    beat: called whenever the deliverer makes progress. waits: waits between attempts, if not the default ones.
    """
    delivery = settings.delivery
    patience = Patience(waits or Waits(), delivery.max_attempts, round(delivery.suspend_after_d * _DAY_US))
    owners = _owners(settings)

    async def deliver() -> None:
        pool = _cell_pool(settings, fleet)
        changelogs = Changelogs(pool, fleet.journals, settings.search.cell_timeout_s, clock=fleet.clock)
        feed = ChangeFeed(pool, changelogs)
        stopping, waiting = asyncio.Event(), DaemonThreads(1, "stop")
        try:
            with closing(fleet.open_leases("fleetlight deliverer")) as leases:
                deliverer = Deliverer(
                    fleet,
                    pool,
                    feed,
                    leases,
                    rules=TargetRules(delivery),
                    patience=patience,
                    owners=owners,
                    metrics=metrics,
                    beat=beat,
                )
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(deliverer.run(stopping))
                    await waiting.run(stop.wait)
                    stopping.set()
        finally:
            feed.close()
            changelogs.close()
            await pool.close()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(deliver())


def _cell_pool(settings: Settings, fleet: Fleet) -> CellPool:
    def cells() -> Sequence[Cell]:
        fleet.clock.look()
        return fleet.cells()

    return CellPool(
        cells,
        partial(open_adapter, statement_timeout_s=settings.search.cell_timeout_s),
        refresh_interval_s=settings.fleet.cells_refresh_interval_s,
        deadline_s=settings.search.cell_timeout_s,
    )


def _owners(settings: Settings) -> Owners:
    """The lookup of subscription owners. Raises IdentityConfigurationError."""
    if settings.api.auth in {"none", "keystone"}:
        return Owners(None, is_believed=settings.api.auth == "none")
    identity = open_identity(settings.api, settings.identity, settings.keystone)
    return Owners(identity if isinstance(identity, KnowsRoles) else None, is_believed=False)
