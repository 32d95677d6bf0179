"""Runs an indexer, which follows all cells, within a process."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from functools import partial
from threading import Event
from typing import TYPE_CHECKING

import structlog

from fleetlight.bus.bus import Receiver, remove_bus, remove_work_queue
from fleetlight.bus.external_exchange import split_address
from fleetlight.bus.no_bus import NoBus
from fleetlight.cells.fleet.cell_keys import Keyring
from fleetlight.cells.fleet.fleet import Fleet
from fleetlight.cells.fleet.producer_keys import ProducerKeyring
from fleetlight.cells.kinds.opening import open_adapter, open_changelog_adapter
from fleetlight.cells.model import Cell
from fleetlight.cells.retrying import retrying_until
from fleetlight.cli.index.orders import OrderedWork
from fleetlight.cli.interpreter import keep_collector_out_of_the_way, share_among_threads
from fleetlight.cli.settings import Settings
from fleetlight.indexer.backends.opening import open_writer
from fleetlight.indexer.errors import IndexerError
from fleetlight.indexer.metrics import IndexerMetrics
from fleetlight.indexer.reconcile.audit import Auditor
from fleetlight.indexer.reconcile.cell_repair import CellRepair
from fleetlight.indexer.reconcile.retention import Purger, removal_delay_s
from fleetlight.indexer.reconcile.sealer import Sealer
from fleetlight.indexer.stream.consumer import MessageSource
from fleetlight.indexer.stream.follower import FollowerParts
from fleetlight.indexer.stream.service import IndexerService
from fleetlight.indexer.writing.leases import CellLeases

if TYPE_CHECKING:
    from fleetlight.bus.traces import Traces

_log = structlog.get_logger(__name__)

_PREPARED_INTERVAL_S = 0.2


Watching = Callable[[IndexerService, Callable[[], bool]], AbstractContextManager[None]]
"""Makes a context for the lifetime of an indexer. It takes the indexer, and a function: is its index suspect?"""


def _unwatched(_service: IndexerService, _is_suspected: Callable[[], bool]) -> AbstractContextManager[None]:
    """For callers that do not watch the indexer."""
    return nullcontext()


def keep_indexing(
    settings: Settings,
    fleet: Fleet,
    metrics: IndexerMetrics,
    stop: Event,
    watching: Watching = _unwatched,
    *,
    keys: Keyring | None = None,
    traces: "Traces | None" = None,
) -> None:
    """`run_indexer`, restarted whenever the index fails, for a process that also does other work."""
    longest_wait_s = settings.indexer.retry_wait_max_s
    retrying = retrying_until(stop, IndexerError, _log_failure, first_wait_s=1, longest_wait_s=longest_wait_s)
    retrying(run_indexer, settings, fleet, metrics, stop, watching, keys=keys, traces=traces)


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
    traces: "Traces | None" = None,
) -> None:
    """Bring the changes of all cells into the index until `stop` is set.

    keys: the relays' keys, which this call refreshes; by default its own. traces: of the process; None makes no traces.
    Raises IndexUnavailableError if the index cannot be opened, IndexRequestError if it refuses a request.
    """

    def open_receiver(cell: Cell) -> MessageSource:
        return _open_receiver(settings, cell)

    producers = ProducerKeyring(fleet.producer_keys, fleet.clock)
    keyring = keys or Keyring(fleet.cell_keys, fleet.clock)

    def cells() -> Sequence[Cell]:
        # The freshness of cells is measured by this clock.
        fleet.clock.look()
        keyring.refresh()
        producers.refresh()
        known = fleet.cells()
        share_among_threads(len(known))
        return known

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
            removal_delay_s=removal_delay_s(settings.fleet.cells_refresh_interval_s),
            clock=fleet.clock,
        )
        parts = FollowerParts(
            open_receiver=open_receiver,
            writer=writer,
            leases=leases,
            owners=fleet,
            is_of_relay=keyring.is_of_relay,
            announcer=producers.announcer,
            failures=fleet.failures,
            journals=fleet.journals,
            settings=settings.indexer,
            metrics=metrics,
            clock=fleet.clock,
            traces=traces,
            note_restored=fleet.restored_cells.record,
        )
        service = IndexerService(
            cells,
            parts,
            open_adapter=open_changelog_adapter,
            open_external=partial(open_adapter, clock=fleet.clock),
            refresh_interval_s=settings.index.refresh_interval_s,
            cells_refresh_interval_s=settings.fleet.cells_refresh_interval_s,
            release_bus=partial(_release_bus, settings),
        )

        def after_preparation(run: Callable[[Event], None]) -> Callable[[Event], None]:
            def run_then(until: Event) -> None:
                # Before preparation there is nothing to work on; at the very first start there is not even an index.
                while not service.is_prepared and not until.wait(_PREPARED_INTERVAL_S):
                    pass
                run(until)

            return run_then

        repair = CellRepair(
            fleet.cells,
            open_changelog_adapter,
            partial(open_adapter, clock=fleet.clock),
            writer=writer,
            leases=leases,
            owners=fleet,
            journals=fleet.journals,
            clock=fleet.clock,
        )
        auditor = Auditor(lambda: service.audited, repair, settings.indexer, metrics, fleet.audit_rounds.record)
        sealer = Sealer(repair, metrics)
        ordered = OrderedWork(settings, fleet)
        with (
            watching(service, lambda: sealer.is_mending),
            _beside("purger", after_preparation(purger.run)) as purging,
            _beside("auditor", auditor.run) as auditing,
            _beside("sealer", after_preparation(sealer.run)) as sealing,
            _beside("index-work", after_preparation(ordered.run)) as working,
        ):
            service.run(stop, [purging, auditing, sealing, working])


def _open_receiver(settings: Settings, cell: Cell) -> MessageSource:
    """The source of a cell's messages. Raises BusError."""
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
    """Remove the queues of a cell that is gone, or the work queue of a disabled one. Raises BusError."""
    release = remove_bus if is_gone else remove_work_queue
    release(cell.transport_url, cell.uuid, settings.bus)


@contextmanager
def _beside(name: str, run: Callable[[Event], None]) -> Iterator[Future[None]]:
    """Run `run` in a thread called `name` during the block; raises what it raised."""
    stop = Event()
    with ThreadPoolExecutor(1, thread_name_prefix=name) as threads:
        running = threads.submit(run, stop)
        try:
            yield running
        finally:
            stop.set()
    running.result()
