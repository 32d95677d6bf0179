"""`fleetlight indexer`, `relay` and `deliverer`: run each as a process of its own, for production."""

import signal
from collections.abc import Callable, Sequence
from functools import partial
from threading import Event

import structlog
import typer
from prometheus_client import CollectorRegistry
from sqlalchemy import make_url

from fleetlight.cells.fleet.cell_keys import Keyring
from fleetlight.cells.fleet.clock_metrics import measure_clock
from fleetlight.cells.fleet.fleet import Fleet
from fleetlight.cells.kinds.native.relay_metrics import RelayMetrics
from fleetlight.cells.model import Cell
from fleetlight.cli.errors import ConfigurationError
from fleetlight.cli.fleet import LoadedSettings, chosen_cells, is_in_process, open_fleet
from fleetlight.cli.logging import configure_logging
from fleetlight.cli.monitoring import monitored
from fleetlight.cli.options import CellOption, examples
from fleetlight.cli.processes.cell_heartbeats import CellHeartbeats
from fleetlight.cli.processes.newer_tables import telling_of_newer_tables
from fleetlight.cli.processes.parts import ProcessPart, Run, raise_failure
from fleetlight.cli.processes.signals import signals_answered
from fleetlight.cli.processes.starting import ProbesOfStart, when_reachable
from fleetlight.cli.processes.tracing import opened_traces
from fleetlight.cli.settings import Settings
from fleetlight.indexer.stream.liveness import Probes

app = typer.Typer()

_log = structlog.get_logger(__name__)

# The indexer's progress for all cells waits while it queries the fleet database, so that has to fail soon.
_FLEET_TIMEOUT_S = 15.0
_NOT_SHARED = (
    "the fleet database is a SQLite file, through which indexers cannot coordinate: another one does no harm and "
    "takes over, but they share the cells evenly only on PostgreSQL"
)


@app.command(epilog=examples("fleetlight indexer --config /etc/fleetlight.toml"))
def indexer(settings: LoadedSettings) -> None:
    """Follow all cells and keep the index up to date."""
    # Each command imports the modules that only it needs, since imports are most of its start time.
    from fleetlight.cli.processes.following import run_indexer  # noqa: PLC0415
    from fleetlight.indexer.metrics import IndexerMetrics  # noqa: PLC0415
    from fleetlight.indexer.stream.probes import IndexerProbes  # noqa: PLC0415

    configure_logging(settings.log)
    registry = CollectorRegistry()
    metrics = IndexerMetrics(registry)
    probes = IndexerProbes()

    def begin(fleet: Fleet) -> Run:
        _refuse_in_process_buses(fleet.cells())
        if make_url(settings.fleet.database_url.get_secret_value()).get_backend_name() == "sqlite":
            _log.info("indexer.shares_no_cells", reason=_NOT_SHARED)
        return partial(run_indexer, settings, fleet, metrics, watching=probes.watching, traces=traces)

    with opened_traces(settings.traces) as traces:
        run_until_signal("indexer", settings, registry, probes, begin, fleet_timeout_s=_FLEET_TIMEOUT_S)


@app.command(epilog=examples("fleetlight relay", "fleetlight relay --cell cell1"))
def relay(*, cell: CellOption = None, settings: LoadedSettings) -> None:
    """Publish the changes of all native cells on their buses; cells added later are included.

    Several may run: one is active per cell.
    """
    from fleetlight.cli.processes.relaying import run_relays  # noqa: PLC0415

    configure_logging(settings.log)
    registry = CollectorRegistry()
    metrics = RelayMetrics(registry)
    heartbeats = CellHeartbeats()

    def begin(fleet: Fleet) -> Run:
        keys = Keyring(fleet.cell_keys, fleet.clock)

        def relayed_cells() -> Sequence[Cell]:
            fleet.clock.look()
            keys.refresh()
            # A cell given by --cell that has been disabled or removed since is left.
            named = [each for each in fleet.cells() if cell is None or cell in {each.name, each.uuid}]
            return [each for each in named if each.can.takes_changes and not each.disabled and not is_in_process(each)]

        native = [each for each in chosen_cells(fleet, cell) if each.can.takes_changes]
        if not native and cell is not None:
            raise ConfigurationError(f"there is no native cell to relay: '{cell}' is not one")
        _refuse_in_process_buses(native)
        clock = fleet.clock
        return partial(run_relays, settings, relayed_cells, heartbeats, metrics, keys=keys, clock=clock, traces=traces)

    with opened_traces(settings.traces) as traces:
        run_until_signal("relays", settings, registry, heartbeats, begin)


@app.command(epilog=examples("fleetlight deliverer --config /etc/fleetlight.toml"))
def deliverer(settings: LoadedSettings) -> None:
    """Deliver the events of subscriptions to their targets.

    Several may run: one is active per subscription.
    """
    from fleetlight.cli.processes.delivering import DelivererProbes, run_deliverer  # noqa: PLC0415
    from fleetlight.delivery.metrics import DelivererMetrics  # noqa: PLC0415

    configure_logging(settings.log)
    registry = CollectorRegistry()
    metrics, probes = DelivererMetrics(registry), DelivererProbes()

    def begin(fleet: Fleet) -> Run:
        fleet.cells()  # fails now if the fleet database cannot be used
        return partial(run_deliverer, settings, fleet, metrics, beat=probes.heartbeat.give)

    run_until_signal("deliverer", settings, registry, probes, begin)


def _refuse_in_process_buses(cells: Sequence[Cell]) -> None:
    for cell in cells:
        if is_in_process(cell):
            raise ConfigurationError(
                f"the bus of cell {cell.name} ({cell.transport_url}) is inside the process of `fleetlight up`, "
                "which relays and indexes by itself"
            )


def run_until_signal(
    name: str,
    settings: Settings,
    registry: CollectorRegistry,
    probes: Probes,
    begin: Callable[[Fleet], Run],
    *,
    fleet_timeout_s: float | None = None,
) -> None:
    """Run a part called `name` until SIGINT or SIGTERM, or until it fails, which raises CommandError.

    begin: makes the part once the fleet database answers; raises FleetUnreachableError before. registry, probes: of the
        part, served all the time. fleet_timeout_s: how long a query of the fleet database may take, if others wait for
        it.
    """
    stop = Event()

    def stop_after(number: signal.Signals) -> None:
        # Set it first, since logging raises if the reader of the log is gone, which would lose later signals, too.
        stop.set()
        _log.info("stopping", signal=number.name)

    start = ProbesOfStart(probes)
    with (
        signals_answered(stop_after),
        open_fleet(settings.fleet, answer_timeout_s=fleet_timeout_s) as fleet,
        monitored(settings.monitoring, registry, start),
    ):
        measure_clock(registry, fleet.clock)
        run = when_reachable(partial(begin, fleet), stop)
        if run is not None:
            start.has_started = True
            part = ProcessPart(name, run, stop.set)
            _log.info("started", parts=[name])
            with telling_of_newer_tables(fleet):
                stop.wait()
            part.stop()
            raise_failure([part])
    _log.info("stopped")
