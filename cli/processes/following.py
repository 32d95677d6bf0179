"""What follows the cells, as long as a process wants it to: relay and worker of a cell, and the indexer."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from functools import partial
from threading import Event

import structlog
from sqlalchemy import Engine

from bus.bus import Publisher, Receiver, remove_bus, unbind
from bus.external_exchange import split_address
from bus.no_bus import NoBus
from cells.database.engines import create_database_engine
from cells.fleet.cell_keys import Keyring
from cells.fleet.fleet import Fleet
from cells.kinds.native.adapter import NativeAdapter
from cells.kinds.native.relay import Relay
from cells.kinds.native.relay_metrics import RelayMetrics
from cells.kinds.opening import open_adapter, open_changelog_adapter
from cells.model import Cell
from cells.retrying import retrying_until
from cli.processes.collector import keep_collector_out_of_the_way
from cli.settings import Settings
from indexer.backends.opening import open_writer
from indexer.errors import IndexerError
from indexer.metrics import IndexerMetrics
from indexer.reconcile.audit import Auditor
from indexer.reconcile.retention import Purger, grace_s
from indexer.stream.consumer import MessageSource
from indexer.stream.service import IndexerService
from indexer.writing.leases import CellLeases
from operations.actions.accepting import Acceptance
from operations.actions.reclaiming import Reclaimer
from operations.cell_worker import new_worker
from operations.jobs.chores import Chore
from operations.jobs.metrics import WorkerMetrics
from operations.jobs.pruning import Pruner
from operations.jobs.worker import Worker
from operations.mapping_upkeep import MappingUpkeep
from operations.nodes.opening import NodeRpcs
from operations.opcodes.filters.applying import HeldJobs
from operations.opcodes.instances.expire import Expirer
from operations.opcodes.refresh import Refresher
from resources.clock import Clock

_log = structlog.get_logger(__name__)

_PREPARED_INTERVAL_S = 0.2
_EXPIRY_INTERVAL_S = 1.0
_HELD_JOBS_INTERVAL_S = 1.0
_REFRESH_LOOK_INTERVAL_S = 5.0


Beat = Callable[[], None]
"""Called when work gets done, when there is none, and when somebody is waited for who is away."""


def _unheard() -> None:
    """For callers who do not listen."""


def run_relay(
    settings: Settings,
    metrics: RelayMetrics,
    cell: Cell,
    stop: Event,
    beat: Beat = _unheard,
    *,
    keys: Keyring,
    clock: Clock,
) -> None:
    """Relay the changes of one native cell until `stop` is set; connections of its own.

    keys: what to sign with. clock: of the fleet: heartbeats say by it up to when a cell is known.
    """
    takeover_after_s = settings.fleet.takeover_after_s
    engine = create_database_engine(cell.database_url, idle_transaction_timeout_s=takeover_after_s)
    publisher = Publisher(cell.transport_url, cell.uuid, settings.bus)
    try:
        Relay(
            engine,
            cell,
            publisher,
            settings.relay,
            clock,
            sign=partial(keys.sign, cell.uuid),
            beat=beat,
            check_bus=publisher.check,
            metrics=metrics,
            takeover_after_s=takeover_after_s,
        ).run(stop)
    finally:
        publisher.close()
        engine.dispose()


def run_worker(
    settings: Settings,
    fleet: Fleet,
    cell: Cell,
    stop: Event,
    beat: Beat = _unheard,
    *,
    rpcs: NodeRpcs | None = None,
    metrics: WorkerMetrics | None = None,
) -> None:
    """Carry out the jobs of one native cell until `stop` is set; connections of its own.

    rpcs, metrics: as of `worker_of`.
    """
    engine = create_database_engine(
        cell.database_url, must_exist=True, idle_transaction_timeout_s=settings.fleet.takeover_after_s
    )
    try:
        worker_of(settings, engine, fleet, cell, beat, rpcs=rpcs, metrics=metrics).run(stop)
    finally:
        engine.dispose()


def worker_of(
    settings: Settings,
    engine: Engine,
    fleet: Fleet,
    cell: Cell,
    beat: Beat = _unheard,
    *,
    rpcs: NodeRpcs | None = None,
    metrics: WorkerMetrics | None = None,
) -> Worker:
    """A worker of one native cell. rpcs: what calls the agents of its hosts. Both are of the process."""
    pruner = Pruner(engine, cell, kept_s=settings.fleet.jobs_kept_h * 3600, kept_count=settings.fleet.jobs_kept_count)
    metrics = metrics or WorkerMetrics()
    mappings = MappingUpkeep(NativeAdapter(cell, engine=engine), fleet, metrics)
    chores = [
        Chore(pruner.prune),
        Chore(mappings.step),
        Chore(HeldJobs(engine, cell).release, _HELD_JOBS_INTERVAL_S),
        Chore(Expirer(engine, cell).expire, _EXPIRY_INTERVAL_S),
    ]
    if settings.nodes.refresh_interval_s:
        refresher = Refresher(engine, cell, settings.nodes.refresh_interval_s)
        chores.append(Chore(refresher.submit, _REFRESH_LOOK_INTERVAL_S))
    interval_s = settings.fleet.reclaim_instance_interval_s
    if interval_s:
        reclaimer = Reclaimer(Acceptance(engine, fleet, cell), engine, cell, interval_s)
        chores.append(Chore(reclaimer.reclaim, interval_s))
    return new_worker(engine, fleet, cell, chores=chores, beat=beat, rpcs=rpcs, metrics=metrics)


Watching = Callable[[IndexerService], AbstractContextManager[None]]
"""Makes what lasts as long as an indexer runs."""


def _unwatched(_service: IndexerService) -> AbstractContextManager[None]:
    """For callers who do not look at the indexer while it runs."""
    return nullcontext()


def keep_indexing(
    settings: Settings,
    fleet: Fleet,
    metrics: IndexerMetrics,
    stop: Event,
    watching: Watching = _unwatched,
    *,
    keys: Keyring | None = None,
) -> None:
    """`run_indexer`, started again whenever the index fails it: for a process that has more to do than indexing."""
    longest_wait_s = settings.indexer.retry_wait_max_s
    retrying = retrying_until(stop, IndexerError, _log_failure, first_wait_s=1, longest_wait_s=longest_wait_s)
    retrying(run_indexer, settings, fleet, metrics, stop, watching, keys=keys)


def _log_failure(error: IndexerError, attempt: int, _wait_s: float) -> None:
    _log.error("indexer.failed", reason=str(error), attempt=attempt)


def run_indexer(
    settings: Settings,
    fleet: Fleet,
    metrics: IndexerMetrics,
    stop: Event,
    watching: Watching = _unwatched,
    *,
    keys: Keyring | None = None,
) -> None:
    """Bring the changes of all cells into the index until `stop` is set.

    keys: what relays sign with, refreshed here; known to this call alone unless given.
    Raises IndexUnavailableError when the index cannot be opened, IndexRequestError when it refuses something.
    """

    def open_receiver(cell: Cell) -> MessageSource:
        return _open_receiver(settings, cell)

    keyring = keys or Keyring(fleet.cell_keys, fleet.clock)

    def cells() -> Sequence[Cell]:
        # All that is said of how fresh they are is said by this clock.
        fleet.clock.look()
        keyring.refresh()
        return fleet.cells()

    keep_collector_out_of_the_way()
    with (
        closing(open_writer(settings.index)) as writer,
        closing(CellLeases(fleet.open_leases("fleetlight indexer"))) as leases,
    ):
        purger = Purger(
            cells,
            writer,
            leases,
            retention_s=settings.index.deleted_retention.total_seconds(),
            grace_s=grace_s(settings.fleet.cells_refresh_interval_s),
            clock=fleet.clock,
        )
        service = IndexerService(
            cells=cells,
            open_adapter=open_changelog_adapter,
            open_external=partial(open_adapter, clock=fleet.clock),
            open_receiver=open_receiver,
            writer=writer,
            leases=leases,
            owners=fleet,
            is_of_relay=keyring.is_of_relay,
            failures=fleet.failures,
            journals=fleet.journals,
            settings=settings.indexer,
            refresh_interval_s=settings.index.refresh_interval_s,
            cells_refresh_interval_s=settings.fleet.cells_refresh_interval_s,
            metrics=metrics,
            clock=fleet.clock,
            release_bus=partial(_release_bus, settings),
        )

        def purge(until: Event) -> None:
            # Before that there is nothing to look at, and at the very first start not even an index.
            while not service.is_prepared and not until.wait(_PREPARED_INTERVAL_S):
                pass
            purger.run(until)

        auditor = Auditor(
            lambda: service.audited,
            open_adapter=open_changelog_adapter,
            writer=writer,
            leases=leases,
            owners=fleet,
            settings=settings.indexer,
            metrics=metrics,
        )
        with watching(service), _beside("purger", purge), _beside("auditor", auditor.run):
            service.run(stop)


def _open_receiver(settings: Settings, cell: Cell) -> MessageSource:
    """Raises BusError."""
    binding = None
    if not cell.can.numbers_changes:
        if not cell.transport_url:
            return NoBus()
        _, binding = split_address(cell.transport_url)
    return Receiver(
        cell.transport_url,
        cell.uuid,
        settings.indexer.prefetch,
        settings.bus,
        prefetch_max_bytes=settings.indexer.prefetch_max_bytes,
        binding=binding,
    )


def _release_bus(settings: Settings, cell: Cell, *, is_gone: bool) -> None:
    """Raises BusError."""
    release = remove_bus if is_gone else unbind
    release(cell.transport_url, cell.uuid, settings.bus)


@contextmanager
def _beside(name: str, run: Callable[[Event], None]) -> Iterator[None]:
    """`run` in a thread of its own, called `name`, as long as the block takes."""
    stop = Event()
    with ThreadPoolExecutor(1, thread_name_prefix=name) as threads:
        running = threads.submit(run, stop)
        try:
            yield
        finally:
            stop.set()
    running.result()
