"""Runs all checks in order. The checks of cells come last, since they need the fleet's list of cells."""

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from importlib import import_module
from importlib.metadata import version
from itertools import groupby

from fleetlight.cells.daemon_threads import in_background
from fleetlight.cells.errors import CellError
from fleetlight.cells.findings import Finding, FindingKind, State, ok, unknown, wrong
from fleetlight.cells.fleet.fleet import Fleet
from fleetlight.cells.model import Cell
from fleetlight.cli.board import CellLine, read_board
from fleetlight.cli.doctor.certificates import certificate_checks
from fleetlight.cli.doctor.checks import (
    DEADLINE_S,
    FOLLOW,
    START_DATABASE,
    Check,
    IndexKnows,
    answers,
    bus_check,
    cell_check,
    disk_checks,
    fleet_check,
    following_check,
    hosts_of,
    index_check,
    progress_check,
)
from fleetlight.cli.errors import CommandError
from fleetlight.cli.fleet import open_fleet, sorted_by_name
from fleetlight.cli.opened_index import IndexedCells
from fleetlight.cli.operator_api import OperatorApi
from fleetlight.cli.settings import Settings
from fleetlight.indexer.followed_by import FollowedBy
from fleetlight.listing.cell_board import CellHealth
from fleetlight.listing.findings import known_to_fleet
from fleetlight.resources.clock import system_clock

_BOARD = "board of cells"
_BOARD_REMEDIES: Mapping[CellHealth, str] = {
    CellHealth.DOWN: START_DATABASE,
    CellHealth.UNCERTAIN: "an indexer repairs it; `fleetlight index verify --repair` does so at once",
    CellHealth.BEHIND: FOLLOW,
}
_STANDING: Mapping[FindingKind | None, str] = {
    FindingKind.CELL_RESTORED: "database",
    FindingKind.MAPPING_ELSEWHERE: "mappings",
    FindingKind.MAPPING_NOT_COMPARED: "mappings",
}
"""Findings of the fleet database that still stand, not repaired ones, and what the doctor calls the subject of each."""


@dataclass
class Examination:
    """findings: in the order of the checks. board: all cells; None if it could not be read."""

    findings: list[Finding] = field(default_factory=list)
    board: Sequence[CellLine] | None = None

    @property
    def wrong(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.state is State.WRONG]

    def counts(self) -> str:
        """The number of findings in each state, as text."""
        states = Counter(each.state for each in self.findings)
        return ", ".join(f"{states[state]} {state}" for state in State if states[state])


def examined(settings: Settings) -> Examination:
    """Run all checks and read the board of cells; takes at most twice DEADLINE_S."""
    import_module("fleetlight.cli.in_process")  # Before any deadline starts, since the import takes a moment.
    use = "" if settings.search.enabled else "; an API with it lists from the cells alone (search.enabled is off)"
    own = ok("configuration", f"fleetlight {version('fleetlight')}, index in {settings.index.backend}{use}")
    found = Examination([own, *hosts_of(settings)])
    with open_fleet(settings.fleet, answer_timeout_s=DEADLINE_S) as fleet:
        cells: list[Cell] = []
        known = IndexKnows()

        def read_cells() -> Sequence[Finding]:
            cells.extend(sorted_by_name(fleet.cells()))
            if not cells:
                return [wrong("cells", "there are none", "`fleetlight cell add native NAME`")]
            fleet.clock.look()
            return [
                replace(each, about=f"{_STANDING[each.kind]} of {each.cell}")
                for each in known_to_fleet(fleet, cells, fleet.clock())
                if each.kind in _STANDING
            ]

        found.findings += answers(
            [
                fleet_check(settings, system_clock),
                Check("cells", read_cells, "the fleet database has to answer first"),
                index_check(settings),
                progress_check(settings, fleet, known),
            ]
        )
        if cells:
            board = in_background(lambda: asyncio.run(_look(settings, fleet)), "doctor-board")
            found.findings += answers(_about_cells(settings, known, tuple(cells)))
            found.findings += _board_seen(board, found)
    found.findings += suspected(found)
    return found


async def _look(settings: Settings, fleet: Fleet) -> Sequence[CellLine]:
    search = settings.search
    in_time = search.model_copy(update={"cell_timeout_s": min(search.cell_timeout_s, DEADLINE_S / 2)})
    async with OperatorApi(settings.model_copy(update={"search": in_time}), fleet).opened() as app:
        return await read_board(app)


def _board_seen(board: Future[Sequence[CellLine]], found: Examination) -> Sequence[Finding]:
    """Store the board in `found`. If it cannot be read, other checks report the cause."""
    try:
        found.board = board.result(DEADLINE_S)
    except TimeoutError:
        return [unknown(_BOARD, "it was not there in time")]
    except (CellError, CommandError) as error:
        return [unknown(_BOARD, str(error))]
    return []


def suspected(found: Examination) -> Iterator[Finding]:
    """Faults that only the board shows, for cells about which no check found anything wrong."""
    explained = {finding.about for finding in found.wrong}
    for cell in found.board or ():
        remedy = _BOARD_REMEDIES.get(cell.health)
        if cell.health is CellHealth.BEHIND and cell.log_problem is not None:
            remedy = (
                f"have it followed by its log: {cell.log_problem}; or let lists take what is as old as a comparison, "
                "by search.staleness_limit_s: docs/operations/nova-databases.md"
            )
        said = {"index", "progress of the index", f"cell {cell.name}", f"index of {cell.name}"}
        if remedy is not None and not said & explained:
            yield wrong(f"lists of {cell.name}", f"{cell.health}: {cell.reason}", remedy)


def _about_cells(settings: Settings, known: IndexKnows, cells: Sequence[Cell]) -> list[Check]:
    enabled = [cell for cell in cells if not cell.disabled]
    indexed = known.indexed or IndexedCells()
    # No process reads the bus of a cell that is followed by its log.
    heard = [cell for cell in enabled if cell.transport_url and indexed.followed_by(cell) is not FollowedBy.LOG]
    with_bus = sorted(heard, key=lambda cell: cell.transport_url)
    buses = [list(group) for _, group in groupby(with_bus, key=lambda cell: cell.transport_url)]
    return [
        *(cell_check(cell, system_clock) for cell in enabled),
        *(bus_check(sharing, settings.bus) for sharing in buses),
        *(
            following_check(cell, known.indexed, known.dead_letters, settings, system_clock)
            for cell in enabled
            if known.indexed is not None
        ),
        *certificate_checks(settings, enabled, system_clock),
        *disk_checks(settings, cells),
    ]


def as_json(finding: Finding) -> dict[str, str | None]:
    """A finding as JSON."""
    return {
        "about": finding.about,
        "state": finding.state.value,
        "found": finding.evidence,
        "what_to_do": finding.remedy,
    }
