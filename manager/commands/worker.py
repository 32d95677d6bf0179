"""`fleetlight worker`: what carries out the jobs of native cells, as a process of its own."""

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
    """Carry out the jobs of native cells, also of cells that are added later.

    Any number may run.
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
            # Of a disabled cell too: what was accepted before is finished, and nothing new goes there.
            return [
                each
                for each in fleet.cells()
                if each.can.takes_changes and (cell is None or cell in {each.name, each.uuid})
            ]

        # Asked also when no cell is named: whether the fleet database can be used shows now.
        if not worked_cells() and cell is not None:
            raise ConfigurationError(f"cell {fleet.cell(cell).name} is not a native one: nothing is carried out there")
        return partial(
            run_workers, settings, fleet, worked_cells, heartbeats, rpcs=rpcs, metrics=metrics, traces=traces
        )

    with opened_nodes(settings.nodes, registry) as rpcs, opened_traces(settings.traces) as traces:
        run_until_signal("workers", settings, registry, heartbeats, begin)
