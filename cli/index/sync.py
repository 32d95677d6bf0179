"""`fleetlight index sync`: writes everything that the cells have into the index."""

from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from threading import Event
from typing import Annotated

import typer

from fleetlight.cells.errors import CellUnreachableError, UnknownCellError
from fleetlight.cells.findings import Finding, wrong
from fleetlight.cells.fleet.fleet import Fleet
from fleetlight.cells.fleet.index_work import WorkKind
from fleetlight.cells.kinds.nova_api.client import ComputeApi
from fleetlight.cells.kinds.opening import open_adapter, open_changelog_adapter
from fleetlight.cells.model import Cell
from fleetlight.cells.settings import UpstreamSettings
from fleetlight.cells.upstream.credentials import Credentials, Fixed
from fleetlight.cli.errors import INTERRUPTED, CommandError, ConfigurationError
from fleetlight.cli.fleet import LoadedSettings, chosen_cells, open_fleet
from fleetlight.cli.index.cell_processes import CellProcesses, cell_processes, number_of_processes
from fleetlight.cli.index.recorded_work import Outcome, Progress, instances_of, recorded
from fleetlight.cli.interpreter import keep_collector_out_of_the_way
from fleetlight.cli.opened_index import opened_index
from fleetlight.cli.options import (
    CELLS_AT_ONCE,
    CellOption,
    ParallelOption,
    ProcessesOption,
    RateOption,
    examples,
)
from fleetlight.cli.output import counted, print_error, print_notice, print_result
from fleetlight.cli.settings import Settings
from fleetlight.cli.work_progress import Show, shown_progress
from fleetlight.indexer.backends.base import CellProgress, IndexWriter
from fleetlight.indexer.errors import CellRestoredError, LeaseHeldError, LeaseLostError, StopRequestedError
from fleetlight.indexer.reconcile.api_source import ApiSource
from fleetlight.indexer.reconcile.differences import Verification
from fleetlight.indexer.reconcile.external_cell import UnindexedMoves, compare_cell
from fleetlight.indexer.reconcile.fill import CellRows, SyncResult
from fleetlight.indexer.reconcile.fill import sync as sync_source
from fleetlight.indexer.reconcile.other_items import reconcile_other_items
from fleetlight.indexer.reconcile.recorded_sync import sync_and_record
from fleetlight.indexer.reconcile.retention import load_horizons
from fleetlight.indexer.writing.checkpoints import FROM_API, FROM_CELLS, Checkpoints
from fleetlight.indexer.writing.journaling import CellJournal
from fleetlight.indexer.writing.leases import CellLeases
from fleetlight.indexer.writing.ownership import OwnWriter
from fleetlight.indexer.writing.rereading import rows_of
from fleetlight.indexer.writing.searchable_meanwhile import searchable_meanwhile
from fleetlight.indexer.writing.throttle import Throttle
from fleetlight.resources.indexed_items import INDEXED_ITEMS, INSTANCES, RESOURCE_TYPES, IndexedItems


class SyncSource(StrEnum):
    """Where a sync reads rows."""

    CELLS = "cells"
    API = "api"


_Seen = tuple[Cell, dict[str, int]]
_SyncedSeen = tuple[SyncResult, dict[str, int]]
"""A cell to sync, and its result, each with the cell's `seen_at` (SyncWork)."""


@dataclass(frozen=True, slots=True)
class SyncWork:
    """What the syncs of all cells share.

    upstream: the address of the API to read; None to read the cells. wanted: types of resources. children: the
    processes that read the cells; None for this process. seen_at: argument of UnindexedMoves, by uuid of the cell.
    """

    settings: Settings
    fleet: Fleet
    writer: IndexWriter
    leases: CellLeases
    pace: Throttle
    stop: Event
    upstream: str | None
    wanted: Collection[str]
    children: CellProcesses[_Seen, _SyncedSeen] | None = None
    seen_at: dict[str, dict[str, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Synced:
    """The result of one cell.

    instances: None if only other types were wanted. items: results of other types, for a cell that has them.
    """

    instances: SyncResult | None
    items: Sequence[tuple[IndexedItems, Verification]] = ()


SyncedOrNot = Synced | Exception


def register(app: typer.Typer) -> None:
    """Add the command to the group `index`."""
    app.command(
        epilog=examples(
            "fleetlight index sync",
            "fleetlight index sync --cell cell2 --rate 2000",
            f"fleetlight index sync --type {RESOURCE_TYPES[-1]}",
            "fleetlight index sync --cell cell2 --source api --url https://nova:8774/v2.1",
        )
    )(sync)


def sync(
    *,
    resource_type: Annotated[
        str | None,
        typer.Option("--type", metavar="TYPE", help=f"What to sync: {', '.join(RESOURCE_TYPES)}; all by default."),
    ] = None,
    source: Annotated[SyncSource, typer.Option(help="Read the cells, or the compute API in front of one cell.")] = (
        SyncSource.CELLS
    ),
    url: Annotated[
        str | None, typer.Option(metavar="URL", help="The address for --source api; upstream.url by default.")
    ] = None,
    cell: CellOption = None,
    rate: RateOption = None,
    parallel: ParallelOption = CELLS_AT_ONCE,
    processes: ProcessesOption = None,
    settings: LoadedSettings,
) -> None:
    """Write everything that the cells have into the index. Safe while changes arrive, and can be repeated.

    An interrupted sync, also one stopped by Ctrl-C, continues where it was. The exit code is 1 if another process is
    syncing or removing one of the cells.

    --source api reads instances of other software, which announces them by notifications, into one cell. An API tells
    neither how many instances it has nor up to which change it shows them, so progress has no total, and the index
    considers the cell no more complete than before. The login is in the section `upstream` of the configuration
    (upstream.token, or upstream.username and .password).
    """
    upstream = _upstream(settings, source, url, cell)
    wanted = _wanted_types(resource_type, source)
    number = 1 if upstream else number_of_processes(settings, processes)
    stop = Event()
    keep_collector_out_of_the_way()
    with (
        cell_processes(settings, number, parallel, rate, syncing_cells) as children,
        open_fleet(settings.fleet) as fleet,
        opened_index(settings.index) as writer,
        closing(CellLeases(fleet.open_leases("fleetlight index sync"))) as leases,
    ):
        cells = chosen_cells(fleet, cell)
        writer.prepare()
        work = SyncWork(settings, fleet, writer, leases, Throttle(rate, stop), stop, upstream, wanted, children)
        # An API does not tell how many instances it has.
        total = None if upstream else instances_of(fleet, cells)
        try:
            with (
                recorded(fleet, WorkKind.SYNC, [each.uuid for each in cells], total, stop) as recording,
                shown_progress("instances") as start,
            ):
                # Deleted instances are synced too, and not counted.
                bars = [start(each.name, None if upstream else fleet.count_mappings(each.uuid)) for each in cells]
                shows = [partial(_show, bar, recording, each) for bar, each in zip(bars, cells, strict=True)]
                outcomes = sync_cells(work, cells, shows, max(parallel, number))
                recording.outcome = sync_outcome(cells, outcomes)
        except KeyboardInterrupt:
            print_notice("stopped; the same command goes on from here")
            raise typer.Exit(INTERRUPTED) from None
    # Print only now: lines printed while progress bars are shown would end up between them.
    failed = [
        cell.name for cell, outcome in zip(cells, outcomes, strict=True) if not _is_complete(source, cell, outcome)
    ]
    if failed:
        raise CommandError(f"not synced completely: {', '.join(failed)}")


def _show(bar: Show, recording: Progress, cell: Cell, done: int) -> None:
    bar(done)
    recording.show(cell.uuid, done)


def sync_outcome(cells: Sequence[Cell], outcomes: Sequence[SyncedOrNot]) -> Outcome:
    """Sum up the results for consoles."""
    found = [finding for cell, synced in zip(cells, outcomes, strict=True) for finding in _findings(cell, synced)]
    rows = sum(each.instances.rows for each in outcomes if isinstance(each, Synced) and each.instances)
    return Outcome(f"{counted(rows, 'instance')} of {counted(len(cells), 'cell')} synced", found, bool(found))


def _findings(cell: Cell, synced: SyncedOrNot) -> Iterator[Finding]:
    if isinstance(synced, Exception):
        yield wrong(cell.name, str(synced), cell=cell.name)
        return
    rejected = {} if synced.instances is None else synced.instances.rejected
    for uuid, reason in rejected.items():
        yield wrong(uuid, f"rejected: {reason}", cell=cell.name)
    for stored, verification in synced.items:
        for difference in verification.remaining:
            yield wrong(difference.uuid, f"{stored.noun} rejected: {difference.problem}", cell=cell.name)


def _upstream(settings: Settings, source: SyncSource, url: str | None, cell: str | None) -> str | None:
    """The address of the API to read, None to read the cells. Raises ConfigurationError."""
    if source is SyncSource.CELLS:
        if url is not None:
            raise ConfigurationError("--url is the address of an API: add --source api")
        return None
    if cell is None:
        raise ConfigurationError("--source api reads one cell: name it with --cell")
    address = url or settings.upstream.url
    if address is None:
        raise ConfigurationError("--source api needs the address of the API: --url or upstream.url")
    return address


def _wanted_types(resource_type: str | None, source: SyncSource) -> Collection[str]:
    """The types of resources to sync. Raises ConfigurationError."""
    if resource_type is not None and resource_type not in RESOURCE_TYPES:
        raise ConfigurationError(f"--type '{resource_type}' is not known: use {', '.join(RESOURCE_TYPES)}")
    if source is SyncSource.API:
        if resource_type not in {None, INSTANCES}:
            raise ConfigurationError(f"--source api reads instances alone: use --type {INSTANCES}, or none")
        return (INSTANCES,)
    return RESOURCE_TYPES if resource_type is None else (resource_type,)


def sync_cells(work: SyncWork, cells: Sequence[Cell], shows: Sequence[Show], parallel: int) -> list[SyncedOrNot]:
    """Sync the cells, `parallel` at once; returns their results in order."""
    with (
        searchable_meanwhile(work.writer, work.pace),
        ThreadPoolExecutor(parallel, thread_name_prefix="sync") as threads,
    ):
        syncs = [threads.submit(_synced_or_not, work, cell, show) for cell, show in zip(cells, shows, strict=True)]
        try:
            for ended in wait(syncs, return_when=FIRST_EXCEPTION).done:
                ended.result()
            outcomes = [sync.result() for sync in syncs]
            # An instance can be hidden if its old cell was read before its new one. Now the new one was read, so try
            # again.
            return [
                threads.submit(_synced_or_not, work, cell, show).result() if _is_unsettled(outcome) else outcome
                for cell, show, outcome in zip(cells, shows, outcomes, strict=True)
            ]
        except BaseException:
            work.stop.set()
            threads.shutdown(cancel_futures=True)
            raise


def _is_unsettled(outcome: SyncedOrNot) -> bool:
    return isinstance(outcome, Synced) and outcome.instances is not None and outcome.instances.is_unsettled


def _synced_or_not(work: SyncWork, cell: Cell, show: Show) -> SyncedOrNot:
    """Sync one cell; returns an error that concerns this cell alone, and raises one that stops the others too."""
    try:
        return _sync_cell(work, cell, show)
    except (CellRestoredError, CellUnreachableError, LeaseHeldError, LeaseLostError, UnknownCellError) as error:
        return error


def _is_complete(source: SyncSource, cell: Cell, outcome: SyncedOrNot) -> bool:
    """Print the result of one cell; returns whether the index has all of it."""
    if isinstance(outcome, Exception):
        print_error(str(outcome))
        return False
    are_complete = [
        outcome.instances is None or _are_instances_complete(source, cell, outcome.instances),
        *(_are_items_complete(cell, stored, verification) for stored, verification in outcome.items),
    ]
    return all(are_complete)


def _are_items_complete(cell: Cell, stored: IndexedItems, verification: Verification) -> bool:
    print_result(f"{cell.name}: {counted(verification.rows, stored.noun)} synced")
    for difference in verification.remaining:
        print_error(f"{cell.name}: {stored.noun} {difference.uuid} was rejected: {difference.problem}")
    return not verification.remaining


def _are_instances_complete(source: SyncSource, cell: Cell, outcome: SyncResult) -> bool:
    instances = counted(outcome.rows, "instance")
    is_numbered = source is SyncSource.CELLS and cell.can.numbers_changes
    promise = f", complete up to sequence {outcome.sequence}" if is_numbered else ""
    deleted = f", {outcome.deleted} of them deleted" if outcome.deleted else ""
    print_result(f"{cell.name}: {instances} synced{deleted}{promise}")
    for uuid, reason in outcome.rejected.items():
        print_error(f"{cell.name}: instance {uuid} was rejected: {reason}")
    return not outcome.rejected


def _sync_cell(work: SyncWork, target: Cell, show: Show) -> Synced:
    with work.leases.bulk(target) as confirm:
        # The cell may have been removed before we had the lease.
        cell = work.fleet.cell(target.uuid)
        on_progress = _between_pages(work, confirm, show)
        instances = _sync_instances(work, cell, on_progress) if INSTANCES in work.wanted else None
        items = [each for each in INDEXED_ITEMS.values() if each.resource_type in work.wanted]
        return Synced(instances, _sync_items(work, cell, items) if cell.can.numbers_changes else ())


def _sync_items(
    work: SyncWork, cell: Cell, wanted: Sequence[IndexedItems]
) -> Sequence[tuple[IndexedItems, Verification]]:
    """Sync items of the wanted types; the index has none that have no revision."""
    if not wanted:
        return ()
    with closing(open_changelog_adapter(cell)) as adapter:
        return [(each, reconcile_other_items(adapter, work.writer, each.item_type)) for each in wanted]


@contextmanager
def syncing_cells(
    settings: Settings, rate: float | None, stop: Event
) -> Iterator[Callable[[_Seen, Show], _SyncedSeen]]:
    """Open the work of a sync's child (fleetlight.cli.index.cell_processes)."""
    with (
        open_fleet(settings.fleet) as fleet,
        opened_index(settings.index) as writer,
        closing(CellLeases(fleet.open_leases("fleetlight index sync"))) as leases,
    ):
        writer.prepare()
        work = SyncWork(settings, fleet, writer, leases, Throttle(rate, stop), stop, None, (INSTANCES,))

        def sync_one(job: _Seen, on_progress: Show) -> _SyncedSeen:
            cell, work.seen_at[cell.uuid] = job
            return _sync_instances(work, cell, on_progress), work.seen_at[cell.uuid]

        yield sync_one


def _sync_instances(work: SyncWork, cell: Cell, on_progress: Show) -> SyncResult:
    if work.children is not None:
        job = (cell, work.seen_at.get(cell.uuid, {}))
        result, work.seen_at[cell.uuid] = work.children.do(cell.name, job, on_progress)
        return result
    if work.upstream is not None:
        return _sync_from_api(work, work.upstream, cell, on_progress)
    if not cell.can.numbers_changes:
        return _compare(work, cell, on_progress)
    checkpoints = Checkpoints(work.writer, cell.uuid, FROM_CELLS)
    with closing(open_changelog_adapter(cell)) as adapter:
        source = CellRows(
            adapter,
            batch_size=work.settings.indexer.sync_batch_size,
            spend=work.pace.spend,
            horizon=load_horizons(work.writer).get(cell.uuid, 0),
        )
        return sync_and_record(
            cell.uuid,
            source,
            work.writer,
            checkpoints=checkpoints,
            on_progress=on_progress,
            pause=work.stop.wait,
            owners=work.fleet,
        )


def _compare(work: SyncWork, cell: Cell, on_progress: Show) -> SyncResult:
    """Sync a cell that does not number its changes; the index is then complete as of the beginning of the sync."""
    done = 0

    def between_pages(rows: int) -> None:
        nonlocal done
        on_progress(rows)
        work.pace.spend(rows - done)
        done = rows

    work.fleet.clock.look()
    known = work.writer.load_progress().get(cell.uuid)
    journal = CellJournal(cell.uuid, work.fleet.journals, work.writer)
    with closing(open_adapter(cell, clock=work.fleet.clock)) as adapter:
        compared = compare_cell(
            adapter,
            work.writer,
            batch_size=work.settings.indexer.sync_batch_size,
            owners=work.fleet,
            journal=journal.of_comparison(was_whole=known is not None and known.fresh_as_of > 0),
            on_progress=between_pages,
            clock=work.fleet.clock,
        )
        moves = UnindexedMoves(adapter, work.writer, work.fleet, work.seen_at.setdefault(cell.uuid, {}))
        unsettled = moves.unsettled(compared.homeless.values())
    rejected = {**compared.rejected, **unsettled}
    work.writer.save_progress([CellProgress(cell.uuid, 0, compared.began_at, is_complete=not rejected)])
    return SyncResult(compared.rows, compared.deleted, 0, rejected, is_unsettled=bool(unsettled))


def _sync_from_api(work: SyncWork, url: str, cell: Cell, on_progress: Show) -> SyncResult:
    """Sync from an API, and record no progress: an API cannot prove that anything is complete."""
    with ExitStack() as stack:
        settings = work.settings.upstream
        api = stack.enter_context(
            closing(ComputeApi(url, _credentials(settings), timeout_s=settings.timeout_s, ca_certs=settings.ca_certs))
        )
        is_native = cell.can.numbers_changes
        adapter = stack.enter_context(closing(open_changelog_adapter(cell))) if is_native else None

        def own(uuids: Collection[str]) -> Collection[str]:
            return rows_of(adapter, uuids) if adapter else ()

        work.fleet.clock.look()
        own_writer = OwnWriter(work.writer, cell.uuid, work.fleet)
        source = ApiSource(
            api,
            cell.uuid,
            read=own_writer.read,
            own=own,
            page_size=settings.page_size,
            spend=work.pace.spend,
            clock=work.fleet.clock,
        )
        checkpoints = Checkpoints(work.writer, cell.uuid, FROM_API)
        journal = CellJournal(cell.uuid, work.fleet.journals, work.writer)
        # Break off before, in case of an interruption, and after, in case a follower began a new journal meanwhile.
        journal.break_off()
        result = sync_source(source, own_writer, checkpoints=checkpoints, on_progress=on_progress)
        work.writer.make_searchable()
        journal.break_off()
        return result


def _credentials(settings: UpstreamSettings) -> Credentials:
    if settings.token is not None:
        return Fixed.token(settings.token.get_secret_value())
    if settings.username is not None and settings.password is not None:
        return Fixed.password(settings.username, settings.password.get_secret_value())
    return Fixed({})


def _between_pages(work: SyncWork, confirm: Callable[[], None], show: Show) -> Show:
    def between_pages(rows: int) -> None:
        if work.stop.is_set():
            raise StopRequestedError
        confirm()
        show(rows)

    return between_pages
