"""The board of cells: the health of each cell, the progress of the index in it, and the route of a list now.

The board reads the index and the fleet database once for all cells, and asks the cells concurrently, each with a
deadline. Unknown values are None.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from fleetlight.cells.errors import CellUnreachableError, FleetUnreachableError, UnknownCellError
from fleetlight.cells.fleet.audit_rounds import AuditRound
from fleetlight.cells.fleet.restored_cells import RestoredCell
from fleetlight.cells.model import NO_INSTANCE, Cell, CellAdapter, CellReport, ReportingAdapter
from fleetlight.indexer.backends.base import CellProgress
from fleetlight.indexer.backends.seal import SealState
from fleetlight.indexer.errors import IndexerError
from fleetlight.listing.answer import Route
from fleetlight.listing.explanation import why_live
from fleetlight.listing.index_gateway import IndexGateway
from fleetlight.listing.settings import SearchSettings
from fleetlight.listing.sources import CellReader, ask_fleet
from fleetlight.query.counts import CountRequest
from fleetlight.query.filters import Eq
from fleetlight.resources.instance import INSTANCE_FIELDS

_AT_ONCE = 32
"""Cells asked at the same time: with one thread for each of 1,000 cells a look takes 2.7 s of a processor, not 0.9."""
_PLACE_S = 0.25
"""For so long a cell that does not answer occupies a place among the cells asked at the same time."""
_INSTANCES = CountRequest(Eq("deleted", False), INSTANCE_FIELDS)


class CellHealth(StrEnum):
    """One word for a cell, the first that applies."""

    DISABLED = "disabled"  # indexers and relays do not follow it
    DOWN = "down"  # it does not answer
    UNCERTAIN = "uncertain"  # its documents in the index may be wrong
    BEHIND = "behind"  # the index lacks changes of it
    OK = "ok"


@dataclass(frozen=True, slots=True)
class FleetFacts:
    """What the fleet database knows about cells, by cell uuid; None if the process cannot see it.

    dead_letters: their number, without the cells that have none. followers: the processes that follow each cell.
    audits: the last audit of each audited cell. restored: restored cells that no operator has acknowledged.
    """

    dead_letters: Mapping[str, int] | None = None
    followers: Mapping[str, Sequence[str]] | None = None
    audits: Mapping[str, AuditRound] = field(default_factory=dict)
    restored: Mapping[str, RestoredCell] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CellState:
    """One cell on the board.

    reason: a sentence that says why the cell is not `ok`, or why lists read it live, or another remark. lag: number of
    changes that the cell has numbered and the index lacks. age_s: seconds since the index was last known to be
    complete. instances: their number in the index, without deleted ones. report: None unless the cell makes one.
    """

    cell: Cell
    health: CellHealth
    reason: str | None
    route: Route
    lag: int | None
    age_s: float | None
    progress: CellProgress | None
    instances: int | None
    dead_letters: int | None
    followers: Sequence[str] | None
    audit: AuditRound | None
    restored: RestoredCell | None
    report: CellReport | None


@dataclass(frozen=True, slots=True)
class Board:
    """The states of all cells, ordered by name. seal: None if the index is not in use, or does not answer."""

    cells: Sequence[CellState]
    seal: SealState | None


@dataclass(frozen=True, slots=True)
class _Indexed:
    """What the index reports. instances: their number by cell uuid; None if the index could not count them."""

    progress: Mapping[str, CellProgress] = field(default_factory=dict)
    instances: Mapping[str, int] | None = None
    seal: SealState | None = None


_Answer = CellReport | CellUnreachableError | UnknownCellError | None


class CellBoard:
    """Looks at all cells, in one event loop. Concurrent callers share one look, so many consoles cost as much as one.

    read_fleet: gets the uuids of the cells; blocks, and raises FleetUnreachableError.
    """

    def __init__(
        self,
        reader: CellReader,
        index: IndexGateway,
        settings: SearchSettings,
        read_fleet: Callable[[Sequence[str]], FleetFacts],
    ) -> None:
        self._reader = reader
        self._index = index
        self._settings = settings
        self._read_fleet = read_fleet
        self._looking: asyncio.Task[Board] | None = None
        self._places = asyncio.Semaphore(_AT_ONCE)

    async def look(self) -> Board:
        """Return the state of every cell. Raises FleetUnreachableError when the list of cells cannot be read."""
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look())
        return await asyncio.shield(self._looking)

    async def _look(self) -> Board:
        cells = await self._reader.cells()
        indexed, facts, answers = await asyncio.gather(
            self._indexed(),
            self._facts([cell.uuid for cell in cells]),
            asyncio.gather(*(self._ask(cell) for cell in cells)),
        )
        states = [self._state(cell, answer, indexed, facts) for cell, answer in zip(cells, answers, strict=True)]
        return Board(states, indexed.seal)

    async def _indexed(self) -> _Indexed:
        progress = await self._index.progress_or_nothing()
        seal = await self._index.seal()
        if not progress:
            return _Indexed(seal=seal)
        try:
            found = await self._index.count(_INSTANCES, progress)
        except IndexerError as error:
            self._index.failed(error)
            return _Indexed(progress, seal=seal)
        counts = {uuid: found[uuid].groups.get((), 0) if uuid in found else 0 for uuid in progress}
        return _Indexed(progress, counts, seal)

    async def _facts(self, uuids: Sequence[str]) -> FleetFacts:
        try:
            return await ask_fleet(lambda: self._read_fleet(uuids), self._settings.cell_timeout_s)
        except FleetUnreachableError:
            return FleetFacts()

    async def _ask(self, cell: Cell) -> _Answer:
        async with self._places:
            asking = asyncio.create_task(self._reader.ask(cell.uuid, _report_of, self._settings.cell_timeout_s))
            await asyncio.wait([asking], timeout=_PLACE_S)
        try:
            return await asking
        except (CellUnreachableError, UnknownCellError) as error:
            return error

    def _state(self, cell: Cell, answer: _Answer, indexed: _Indexed, facts: FleetFacts) -> CellState:
        progress = indexed.progress.get(cell.uuid)
        fresh = self._index.freshness()
        report = answer if isinstance(answer, CellReport) else None
        restored = facts.restored.get(cell.uuid)
        failure = str(answer) if isinstance(answer, Exception) else None
        why = self._index.why_not or why_live(progress, fresh, self._settings.staleness_limit_s)
        return CellState(
            cell,
            self._health(cell, failure, why, progress),
            failure or why or (None if restored is None else restored.evidence),
            _route(why, failure, progress),
            _lag(report, progress),
            None if progress is None or not progress.fresh_as_of else fresh.age_s(progress),
            progress,
            None if indexed.instances is None else indexed.instances.get(cell.uuid),
            None if facts.dead_letters is None else facts.dead_letters.get(cell.uuid, 0),
            None if facts.followers is None else facts.followers.get(cell.uuid, ()),
            facts.audits.get(cell.uuid),
            restored,
            report,
        )

    def _health(self, cell: Cell, failure: str | None, why: str | None, progress: CellProgress | None) -> CellHealth:
        if cell.disabled:
            return CellHealth.DISABLED
        if failure is not None:
            return CellHealth.DOWN
        if why is None or not self._index.is_used:
            return CellHealth.OK
        if self._index.why_not is not None or (progress is not None and progress.problem is not None):
            return CellHealth.UNCERTAIN
        return CellHealth.BEHIND


def _report_of(adapter: CellAdapter) -> CellReport | None:
    if isinstance(adapter, ReportingAdapter):
        return adapter.report()
    adapter.find(NO_INSTANCE)
    return None


def _route(why: str | None, failure: str | None, progress: CellProgress | None) -> Route:
    """The route that a list takes. why: the reason for reading the cell live. failure: the error of that read."""
    if why is None:
        return Route.INDEX
    if failure is None:
        return Route.LIVE
    return Route.SKIPPED if progress is None else Route.INDEX_WHILE_DOWN


def _lag(report: CellReport | None, progress: CellProgress | None) -> int | None:
    """Changes that the index lacks; None if its watermark belongs to another epoch than the cell's position."""
    if report is None or progress is None or report.position.epoch != progress.epoch:
        return None
    return max(0, report.position.sequence - progress.watermark)
