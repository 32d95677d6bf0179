"""`fleetlight index rebuild` and `fleetlight index drop-old`: replace the current index by a new one."""

import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import partial
from threading import Event
from typing import Annotated

import typer

from fleetlight.cells.fleet.fleet import Fleet
from fleetlight.cells.fleet.index_work import WorkKind
from fleetlight.cells.kinds.opening import open_changelog_adapter
from fleetlight.cells.model import Cell, ChangelogAdapter
from fleetlight.cli.errors import INTERRUPTED, ConfigurationError
from fleetlight.cli.fleet import LoadedSettings, open_fleet
from fleetlight.cli.index.cell_processes import CellProcesses, cell_processes, number_of_processes
from fleetlight.cli.index.recorded_work import Outcome, Progress, instances_of, recorded
from fleetlight.cli.interpreter import keep_collector_out_of_the_way
from fleetlight.cli.opened_index import opened_index
from fleetlight.cli.options import (
    CELLS_AT_ONCE,
    ParallelOption,
    ProcessesOption,
    RateOption,
    examples,
)
from fleetlight.cli.output import in_brackets, print_notice, print_result
from fleetlight.cli.settings import Settings
from fleetlight.cli.work_progress import Show, shown_progress
from fleetlight.indexer.backends.opening import open_generations
from fleetlight.indexer.errors import IndexerError, IndexVersionError
from fleetlight.indexer.reconcile.fill import SyncResult
from fleetlight.indexer.reconcile.rebuild import (
    RebuildParts,
    RebuildPhase,
    abandon_rebuild,
    drop_previous,
    filling_rows,
    rebuild_index,
)
from fleetlight.indexer.writing.leases import CellLeases
from fleetlight.indexer.writing.throttle import Throttle

REBUILT = Outcome("the new index is the current one; the old one is kept")
_Horizon = tuple[Cell, int]
"""A cell, and the horizon before which it has forgotten deleted instances."""

WENT_BACK = Outcome("the previous index is the current one again; the other one is kept")
DROPPED = Outcome("the old index is dropped")
NONE_TO_DROP = Outcome("there is no old index")


def register(app: typer.Typer) -> None:
    """Add the commands to the group `index`."""
    app.command(
        epilog=examples(
            "fleetlight index rebuild", "fleetlight index rebuild --rate 2000", "fleetlight index rebuild --back"
        )
    )(rebuild)
    app.command("drop-old", epilog=examples("fleetlight index drop-old"))(drop_old)


def rebuild(
    *,
    back: Annotated[bool, typer.Option("--back", help="Go back to the index that the last rebuild replaced.")] = False,
    abandon: Annotated[
        bool, typer.Option("--abandon", help="Give up an unfinished rebuild; the current index stays as it is.")
    ] = False,
    rate: RateOption = None,
    parallel: ParallelOption = CELLS_AT_ONCE,
    processes: ProcessesOption = None,
    settings: LoadedSettings,
) -> None:
    """Fill a new index from the cells, compare it with them, and put it in place of the current one.

    Lists and changes go on. An interrupted rebuild, also one stopped by Ctrl-C, continues where it was. The replaced
    index is kept until `fleetlight index drop-old`, or until the next rebuild.
    """
    if back and abandon:
        raise ConfigurationError("--back and --abandon are two different things: leave one of them away")
    stop = Event()
    keep_collector_out_of_the_way()
    number = number_of_processes(settings, processes)
    kind = WorkKind.BACK if back else WorkKind.REBUILD
    with rebuild_parts(settings, rate, parallel, stop, processes=number) as (fleet, parts):
        if abandon:
            print_result("rebuild abandoned" if abandon_rebuild(parts) else "there is no rebuild to abandon")
            return
        try:
            parts.current.prepare()
        except IndexVersionError as error:
            print_notice(f"the index has version {error.version}, which this program cannot use: it makes another")
        try:
            with (
                shown_progress("instances") as start,
                _stopping(stop),
                recorded(fleet, kind, (), instances_of(fleet, fleet.cells()), stop) as work,
            ):
                rebuild_index(parts, _PrintedRebuild(fleet, start, work), back=back)
                work.outcome = WENT_BACK if back else REBUILT
        except KeyboardInterrupt:
            print_notice("stopped; the same command goes on from here")
            raise typer.Exit(INTERRUPTED) from None
        new, old = _names(parts)
    print_result(
        f"the previous index{new} is the current one again; `fleetlight index drop-old` drops the other one{old}"
        if back
        else f"the new index{new} is the current one; `--back` returns to the old one{old}, "
        "`fleetlight index drop-old` drops it"
    )


def drop_old(settings: LoadedSettings) -> None:
    """Drop the index that a rebuild has replaced; after that there is no way back to it."""
    with rebuild_parts(settings, None, 1, Event()) as (_, parts):
        _, old = _names(parts)
        print_result(f"old index{old} dropped" if drop_previous(parts) else "there is no old index")


def _names(parts: RebuildParts) -> tuple[str, str]:
    """The names of the current and previous index, in brackets; empty if the server has none for them."""
    try:
        current, previous = parts.generations.names()
    except IndexerError:
        return "", ""  # a missing name does not make the rebuild a failure
    return in_brackets(current), in_brackets(previous)


class RecordedRebuild:
    """A RebuildObserver (fleetlight.indexer.reconcile.rebuild) that records progress. on_notice: of the observer."""

    def __init__(self, progress: Progress, on_notice: Callable[[str], None]) -> None:
        self._progress = progress
        self.on_notice = on_notice

    def on_step(self) -> None:
        self._progress.step()

    def on_phase(self, phase: RebuildPhase) -> None:
        self._progress.phase = phase.value

    def on_rows(self, cell: Cell, rows: int) -> None:
        self._progress.show(cell.uuid, rows)


class _PrintedRebuild(RecordedRebuild):
    """A RecordedRebuild that also prints progress."""

    def __init__(self, fleet: Fleet, start: Callable[[str, int], Show], progress: Progress) -> None:
        super().__init__(progress, print_notice)
        self._fleet = fleet
        self._start = start
        self._shows: dict[str, Show] = {}

    def on_phase(self, phase: RebuildPhase) -> None:
        print_notice(phase.value)
        super().on_phase(phase)

    def on_rows(self, cell: Cell, rows: int) -> None:
        if cell.uuid not in self._shows:
            self._shows[cell.uuid] = self._start(cell.name, self._fleet.count_mappings(cell.uuid))
        self._shows[cell.uuid](rows)
        super().on_rows(cell, rows)


@contextmanager
def rebuild_parts(
    settings: Settings, rate: float | None, parallel: int, stop: Event, *, processes: int = 1
) -> Iterator[tuple[Fleet, RebuildParts]]:
    """Open the parts of a rebuild, as the settings say. stop: ends waits for the rate limit."""
    with ExitStack() as stack:
        children = stack.enter_context(cell_processes(settings, processes, parallel, rate, _filling_rows))
        fleet = stack.enter_context(open_fleet(settings.fleet))
        parts = RebuildParts(
            cells=fleet.cells,
            open_adapter=open_changelog_adapter,
            current=stack.enter_context(opened_index(settings.index)),
            generations=stack.enter_context(closing(open_generations(settings.index))),
            leases=stack.enter_context(closing(CellLeases(fleet.open_leases("fleetlight index rebuild")))),
            owners=fleet,
            pace=Throttle(rate, stop),
            batch_size=settings.indexer.sync_batch_size,
            parallel=max(parallel, processes),
            fill_rows=None if children is None else partial(_filled_by, children),
        )
        yield fleet, parts


@contextmanager
def _filling_rows(
    settings: Settings, rate: float | None, stop: Event
) -> Iterator[Callable[[_Horizon, Show], SyncResult]]:
    """Open the work of a rebuild's child: it fills the rows of one cell into the new index."""
    with (
        rebuild_parts(settings, rate, 1, stop) as (_, parts),
        closing(parts.generations.open_next()) as new,
    ):
        with suppress(IndexVersionError):
            parts.current.prepare()
        fill_rows = filling_rows(parts, new)

        def fill(job: _Horizon, on_progress: Show) -> SyncResult:
            cell, horizon = job
            with closing(parts.open_adapter(cell)) as adapter:
                return fill_rows(adapter, horizon, on_progress)

        yield fill


def _filled_by(
    children: CellProcesses[_Horizon, SyncResult], adapter: ChangelogAdapter, horizon: int, on_progress: Show
) -> SyncResult:
    return children.do(adapter.cell.name, (adapter.cell, horizon), on_progress)


@contextmanager
def _stopping(stop: Event) -> Iterator[None]:
    """Make Ctrl-C and SIGTERM end the work between two steps."""
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, lambda *_: stop.set()) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
