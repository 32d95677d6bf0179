"""The part of `fleetlight index verify` that compares each cell and shows the results."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console
from rich.progress import Progress as Bars
from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn

from fleetlight.cells.errors import CellUnreachableError
from fleetlight.cells.findings import Finding, wrong
from fleetlight.cells.fleet.adoption import MappingDifferences
from fleetlight.cells.fleet.fleet import Fleet
from fleetlight.cells.kinds.opening import open_adapter, open_changelog_adapter
from fleetlight.cells.model import Cell
from fleetlight.cli.index.mappings import compared_mappings_of, differences_as_json, print_mapping_differences
from fleetlight.cli.index.recorded_work import Outcome, Progress
from fleetlight.cli.options import Output
from fleetlight.cli.output import counted, print_error, print_notice, print_result, print_rows
from fleetlight.indexer.backends.base import IndexWriter
from fleetlight.indexer.errors import LeaseHeldError, LeaseLostError
from fleetlight.indexer.reconcile.differences import Difference, Verification
from fleetlight.indexer.reconcile.external_cell import ExternalComparison
from fleetlight.indexer.reconcile.native_cell import NativeComparison
from fleetlight.indexer.reconcile.other_items import verify_other_items
from fleetlight.indexer.reconcile.reconcile import Comparison, verify
from fleetlight.indexer.writing.journaling import CellJournal
from fleetlight.indexer.writing.leases import CellLeases
from fleetlight.resources.indexed_items import INDEXED_ITEMS, IndexedItems

# Enough for some refreshes of the index, and for another relay or indexer to take over.
_CATCH_UP_TIMEOUT_S = 30.0
_ROWS_AT_ONCE = 1000
_SHOWN_DIFFERENCES = 20
Show = Callable[[int, int], None]
_COLUMNS = ("CELL", "AGREES", "INSTANCES", "DELETED", "INDEXED", "FOREIGN", "DIFFERENT", "REPAIRED")


@dataclass(frozen=True, slots=True)
class Verified:
    """The result of one cell; verification is None if it could not be compared, and `problem` says why.

    deleted: how many of the cell's rows are deleted instances. items: results of other types, for a cell that has them.
    mappings: differences in the fleet database, for a cell that it maps; are_repaired: they have been repaired.
    """

    cell: Cell
    verification: Verification | None
    deleted: int = 0
    problem: str | None = None
    items: Sequence[tuple[IndexedItems, Verification]] = ()
    mappings: MappingDifferences | None = None
    are_repaired: bool = False

    @property
    def agrees(self) -> bool:
        others = (verification for _, verification in self.items)
        if self.verification is None or any(each.remaining for each in (self.verification, *others)):
            return False
        found = self.mappings
        return found is None or not (found.elsewhere or (found.repairable and not self.are_repaired))

    @property
    def has_caught_up(self) -> bool:
        others = (verification for _, verification in self.items)
        return self.verification is None or all(each.has_caught_up for each in (self.verification, *others))


def verify_cells(
    cells: Sequence[Cell],
    writer: IndexWriter,
    leases: CellLeases,
    fleet: Fleet,
    progress: Progress,
    *,
    repair: bool,
    fast: bool,
    start: Callable[[Cell], Show] = lambda _: lambda _compared, _differences: None,
) -> list[Verified]:
    """Verify one cell after the other; a cell that is unreachable, or that another process works on, is only reported.

    fast: compare only revisions, for native cells. start: returns for each cell a callback that shows how many were
    compared and differ. Raises StopRequestedError.
    """

    def shown(cell: Cell) -> Show:
        show = start(cell)

        def both(compared: int, differences: int) -> None:
            show(compared, differences)
            progress.show(cell.uuid, compared)

        return both

    return [_verify_cell(cell, writer, leases, fleet, shown(cell), repair=repair, fast=fast) for cell in cells]


def verification_outcome(verified: Sequence[Verified]) -> Outcome:
    """Sum up the results for consoles."""
    found = [finding for each in verified for finding in _findings(each)]
    agreeing = sum(each.agrees for each in verified)
    has_failed = any(each.verification is None for each in verified)
    return Outcome(f"{agreeing} of {counted(len(verified), 'cell')} agree with the index", found, has_failed)


def _findings(verified: Verified) -> Iterator[Finding]:
    name = verified.cell.name
    if verified.verification is None:
        yield wrong(name, verified.problem or "not compared", cell=name)
        return
    both = (("instance", verified.verification), *((stored.noun, found) for stored, found in verified.items))
    for noun, found in both:
        for each in found.differences:
            ending = "repaired" if each.is_repaired else each.problem or "not repaired"
            yield wrong(each.uuid, f"{noun} {each.kind}; {ending}", cell=name)


def print_verified(output: Output, verified: Sequence[Verified]) -> None:
    """Print a line for each cell and, as a table, the first differences; as JSON, everything."""
    document = [_as_json(each) for each in verified]
    print_rows(output, document, _COLUMNS, map(_as_row, verified), right_aligned=_COLUMNS[2:])
    if output is not Output.TABLE:
        return
    for each in verified:
        if each.verification is not None:
            _print_differences(each.cell, each.verification)
        for stored, verification in each.items:
            _print_differences(each.cell, verification, f"{stored.noun} ")
        if each.mappings is not None:
            print_mapping_differences(each.cell, each.mappings, repair=each.are_repaired)


def print_problems(verified: Sequence[Verified]) -> None:
    """Print why cells could not be compared, and why the index may look older or larger than it is."""
    for each in verified:
        if each.problem is not None:
            print_error(each.problem)
        elif not each.has_caught_up:
            print_notice(
                f"{each.cell.name}: the index did not catch up within {_CATCH_UP_TIMEOUT_S:.0f} s, so some of this may "
                "be lag: see `fleetlight index status`"
            )
        elif (why := _why_counts_differ(each)) is not None:
            print_notice(f"{each.cell.name}: INSTANCES and INDEXED differ, and nothing is wrong: {why}")


def _why_counts_differ(verified: Verified) -> str | None:
    """Why cell and index agree but count different numbers of instances; None if there is nothing to explain."""
    found = verified.verification
    if found is None or not verified.agrees or found.rows == found.documents or not found.has_caught_up:
        return None
    if verified.cell.can.numbers_changes:
        return "instances were made, or forgotten, while the two were counted"
    if found.documents > found.rows:
        return (
            f"the index has {counted(found.documents - found.rows, 'instance')} more than the cell: deleted ones that "
            "the cell has archived or forgotten stay in the index until they are purged (`fleetlight index purge`)"
        )
    return (
        f"the cell has {counted(found.rows - found.documents, 'instance')} more than the index: copies of instances "
        "that moved to another cell, which are that cell's in the index, or others that were made meanwhile"
    )


def _verify_cell(
    cell: Cell,
    writer: IndexWriter,
    leases: CellLeases,
    fleet: Fleet,
    show: Show,
    *,
    repair: bool,
    fast: bool,
) -> Verified:
    """Verify one cell. An error that `show` raises ends the verification."""
    try:
        with leases.bulk(cell) as confirm:
            instances = (0, 0)

            def on_progress(compared: int, differences: int) -> None:
                nonlocal instances
                instances = compared, differences
                confirm()
                show(compared, differences)

            def on_items(_compared: int, _differences: int) -> None:
                on_progress(*instances)  # the display counts instances alone

            verification, deleted = _verification(cell, writer, fleet, on_progress, repair=repair, fast=fast)
            items = _verified_items(cell, writer, on_items, repair=repair) if cell.can.numbers_changes else ()
            mappings = compared_mappings_of(cell, fleet, repair=repair)
    except (CellUnreachableError, LeaseHeldError, LeaseLostError) as error:
        return Verified(cell, None, problem=str(error))
    return Verified(cell, verification, deleted, items=items, mappings=mappings, are_repaired=repair)


def _verified_items(
    cell: Cell, writer: IndexWriter, on_progress: Callable[[int, int], None], *, repair: bool
) -> Sequence[tuple[IndexedItems, Verification]]:
    with closing(open_changelog_adapter(cell)) as adapter:
        return [
            (
                stored,
                verify_other_items(adapter, writer, stored.item_type, _CATCH_UP_TIMEOUT_S, on_progress, repair=repair),
            )
            for stored in INDEXED_ITEMS.values()
        ]


def _verification(
    cell: Cell,
    writer: IndexWriter,
    fleet: Fleet,
    on_progress: Callable[[int, int], None],
    *,
    repair: bool,
    fast: bool,
) -> tuple[Verification, int]:
    """Compare one cell; returns the result, and how many of its rows are deleted."""
    comparison: Comparison
    if cell.can.numbers_changes:
        with closing(open_changelog_adapter(cell)) as adapter:
            comparison = NativeComparison(
                adapter,
                writer,
                catch_up_timeout_s=_CATCH_UP_TIMEOUT_S,
                owners=fleet,
                contents_at_once=None if fast else _ROWS_AT_ONCE,
                pause=time.sleep,
            )
            found = verify(comparison, repair=repair, on_progress=on_progress)
            return found, comparison.count_deleted()
    fleet.clock.look()
    with closing(open_adapter(cell, clock=fleet.clock)) as external:
        comparison = ExternalComparison(
            external,
            writer,
            batch_size=_ROWS_AT_ONCE,
            owners=fleet,
            journal=CellJournal(cell.uuid, fleet.journals, writer, clock=fleet.clock),
            confirm_timeout_s=None if repair else _CATCH_UP_TIMEOUT_S,
        )
        found = verify(comparison, repair=repair, on_progress=on_progress)
        return found, comparison.count_deleted()


@contextmanager
def shown_verification(*, fast: bool) -> Iterator[Callable[[Cell], Show]]:
    """Show the progress of verifying each cell, on terminals only; yields a function that starts a cell's display."""
    console = Console(stderr=True)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Bars(*columns, console=console, disable=not console.is_terminal) as bar:

        def start(cell: Cell) -> Show:
            task = bar.add_task(cell.name)

            def show(ranges: int, differences: int) -> None:
                what = "range" if fast and cell.can.numbers_changes else "instance"
                compared, differing = counted(ranges, what), counted(differences, "difference")
                bar.update(task, description=f"{cell.name}: {compared} compared, {differing}")

            return show

        yield start


def _as_json(verified: Verified) -> dict[str, Any]:
    names = {"cell": verified.cell.name, "cell_uuid": verified.cell.uuid, "agrees": verified.agrees}
    verification = verified.verification
    if verification is None:
        return {**names, "problem": verified.problem}
    return {
        **names,
        "instances": verification.rows,
        "deleted": verified.deleted,
        "indexed": verification.documents,
        "external": verification.external,
        "rows_read": verification.rows_read,
        "has_caught_up": verification.has_caught_up,
        "differences": [asdict(difference) for difference in verification.differences],
        "others": {stored.item_type: _items_as_json(found) for stored, found in verified.items},
        "mappings": None if verified.mappings is None else differences_as_json(verified.mappings),
        "problem": None,
    }


def _items_as_json(found: Verification) -> dict[str, Any]:
    return {
        "rows": found.rows,
        "indexed": found.documents,
        "has_caught_up": found.has_caught_up,
        "differences": [asdict(difference) for difference in found.differences],
    }


def _as_row(verified: Verified) -> list[str]:
    verification = verified.verification
    if verification is None:
        return [verified.cell.name, "unknown", *["-"] * (len(_COLUMNS) - 2)]
    both = (verification, *(found for _, found in verified.items))
    different = sum(len(each.differences) for each in both)
    numbers = (
        verification.rows,
        verified.deleted,
        verification.documents,
        verification.external,
        different,
        different - sum(len(each.remaining) for each in both),
    )
    return [verified.cell.name, "yes" if verified.agrees else "no", *map(str, numbers)]


def _print_differences(cell: Cell, verification: Verification, noun: str = "") -> None:
    # Differences that are not repaired come first, since a person has to see them.
    differences = sorted(verification.differences, key=lambda difference: difference.is_repaired)
    for difference in differences[:_SHOWN_DIFFERENCES]:
        print_result(f"{cell.name}: {noun}{difference.uuid} {_sentence(difference)}")
    more = len(differences) - _SHOWN_DIFFERENCES
    if more > 0:
        print_result(f"{cell.name}: and {more} more (--output json lists them all)")


def _sentence(difference: Difference) -> str:
    cell = "not there" if difference.revision is None else f"revision {difference.revision}"
    index = "not there" if difference.version is None else f"version {difference.version}"
    owner = "" if difference.owner is None else f" of cell {difference.owner}"
    ending = "; repaired" if difference.is_repaired else ""
    if difference.problem is not None:
        ending = f"; not repaired: {difference.problem}"
    return f"{difference.kind} (cell: {cell}, index: {index}{owner}){ending}"
