"""`fleetlight worker`: runs the jobs of native cells, in a process of its own."""

from collections.abc import Sequence
from functools import partial

import typer
from prometheus_client import CollectorRegistry

from fleetlight.cells.fleet.fleet import Fleet
from fleetlight.cells.model import Cell
from fleetlight.cli.errors import ConfigurationError
from fleetlight.cli.fleet import LoadedSettings
from fleetlight.cli.logging import configure_logging
from fleetlight.cli.options import CellOption, examples
from fleetlight.cli.processes.cell_heartbeats import CellHeartbeats
from fleetlight.cli.processes.parts import Run
from fleetlight.cli.processes.processes import run_until_signal
from fleetlight.cli.processes.tracing import opened_traces

app = typer.Typer()


@app.command(epilog=examples("fleetlight worker", "fleetlight worker --cell cell1"))
def worker(*, cell: CellOption = None, settings: LoadedSettings) -> None:
    """Carry out the jobs of all native cells; cells added later are included.

    Any number of workers may run.
    """
    from fleetlight.manager.commands.working import run_workers  # noqa: PLC0415
    from fleetlight.manager.operations.jobs.metrics import WorkerMetrics  # noqa: PLC0415
    from fleetlight.manager.operations.nodes.opening import opened_nodes  # noqa: PLC0415

    configure_logging(settings.log)
    heartbeats = CellHeartbeats()
    registry = CollectorRegistry()
    metrics = WorkerMetrics(registry)

    def begin(fleet: Fleet) -> Run:
        def worked_cells() -> Sequence[Cell]:
            # Disabled cells too, so that accepted jobs are finished; no new ones go there.
            return [
                each
                for each in fleet.cells()
                if each.can.takes_changes and (cell is None or cell in {each.name, each.uuid})
            ]

        # Called even without --cell, since it fails if the fleet database cannot be used.
        if not worked_cells() and cell is not None:
            raise ConfigurationError(f"cell {fleet.cell(cell).name} is not a native one: nothing is carried out there")
        return partial(
            run_workers, settings, fleet, worked_cells, heartbeats, rpcs=rpcs, metrics=metrics, traces=traces
        )

    with opened_nodes(settings.nodes, registry) as rpcs, opened_traces(settings.traces) as traces:
        run_until_signal("workers", settings, registry, heartbeats, begin)
