"""Findings of all cells: from the checks of native cells, the comparison of mappings, and the audit of the index.

Sources are queried independently. A source that does not answer, or not in full, yields an `unknown` finding.
"""

import asyncio
from collections.abc import Collection, Iterator, Sequence
from functools import partial
from itertools import chain

from fleetlight.cells.errors import CellUnreachableError, FleetUnreachableError, UnknownCellError
from fleetlight.cells.findings import Finding, FindingKind, FindingsAdapter, unknown, wrong
from fleetlight.cells.fleet.adoption import COMPARISON_INTERVAL_S
from fleetlight.cells.fleet.audit_rounds import AuditRound
from fleetlight.cells.fleet.compared_mappings import ComparedMappings
from fleetlight.cells.fleet.fleet import Fleet
from fleetlight.cells.fleet.restored_cells import RestoredCell, acknowledged_by
from fleetlight.cells.model import Cell, CellAdapter
from fleetlight.listing.sources import CellReader, ask_fleet
from fleetlight.resources.units import MICROSECONDS_PER_SECOND

MAX_OF_KIND = 200
"""At most so many findings of one kind are read from one cell."""
_LATE_US = 3 * COMPARISON_INTERVAL_S * MICROSECONDS_PER_SECOND
_OF_LATE_US = 24 * 3600 * MICROSECONDS_PER_SECOND


class CellFindings:
    """Asks all native cells and the fleet database at the same time, each for at most `timeout_s`."""

    def __init__(self, reader: CellReader, fleet: Fleet, timeout_s: float) -> None:
        self._reader = reader
        self._fleet = fleet
        self._timeout_s = timeout_s

    async def look(self, now: int, only: Collection[str] | None) -> Sequence[Finding]:
        """Collect the findings. now: microseconds since the epoch. only: uuids of the cells to ask; None for all.

        Raises FleetUnreachableError when the list of cells cannot be read.
        """
        cells = [cell for cell in await self._reader.cells() if only is None or cell.uuid in only]
        native = (self._ask(cell) for cell in cells if cell.can.takes_changes)
        return list(chain.from_iterable(await asyncio.gather(self._ask_fleet(cells, now), *native)))

    async def _ask(self, cell: Cell) -> Sequence[Finding]:
        try:
            found = await self._reader.ask(cell.uuid, _findings_of, self._timeout_s)
        except (CellUnreachableError, UnknownCellError) as error:
            return [unknown("cell", str(error), cell=cell.name)]
        counts = [kind for kind in FindingKind if sum(each.kind is kind for each in found) >= MAX_OF_KIND]
        return [*found, *(unknown("cell", f"there may be more of '{kind}'", cell=cell.name) for kind in counts)]

    async def _ask_fleet(self, cells: Sequence[Cell], now: int) -> Sequence[Finding]:
        try:
            return await ask_fleet(partial(known_to_fleet, self._fleet, cells, now), self._timeout_s)
        except FleetUnreachableError as error:
            return [unknown("fleet database", str(error))]


def known_to_fleet(fleet: Fleet, cells: Sequence[Cell], now: int) -> Sequence[Finding]:
    """Read the fleet database's findings about `cells`. now: microseconds. Blocks; raises FleetUnreachableError."""
    compared, audited, restored = fleet.compared_mappings.all(), fleet.audit_rounds.all(), fleet.restored_cells.all()
    of_mappings = (of_compared_mappings(cell, compared.get(cell.uuid), now) for cell in cells)
    of_audit = (_of_audit(cell, audited[cell.uuid]) for cell in cells if cell.uuid in audited)
    gone_back = (_restored(cell, restored[cell.uuid]) for cell in cells if cell.uuid in restored)
    return [*gone_back, *chain.from_iterable(of_mappings), *chain.from_iterable(of_audit)]


def _findings_of(adapter: CellAdapter) -> Sequence[Finding]:
    return adapter.findings(MAX_OF_KIND) if isinstance(adapter, FindingsAdapter) else ()


def _restored(cell: Cell, found: RestoredCell) -> Finding:
    remedy = acknowledged_by(cell.name)
    return wrong(cell.name, found.evidence, remedy, kind=FindingKind.CELL_RESTORED, cell=cell.name, since=found.at)


def of_compared_mappings(cell: Cell, known: ComparedMappings | None, now: int) -> Iterator[Finding]:
    """Findings of the last comparison, which keeps numbers only. known: None if the cell was never compared."""
    if known is None:
        return
    new = partial(wrong, cell.name, cell=cell.name)
    if not cell.disabled and now - known.compared_at > _LATE_US:
        yield new(
            f"the mappings of its instances were compared with its rows {(now - known.compared_at) / 60e6:.0f} "
            "minutes ago",
            "see that `fleetlight worker` runs; if the fleet database went back to an older copy, the next comparison "
            "repairs it",
            kind=FindingKind.MAPPING_NOT_COMPARED,
            since=known.compared_at,
        )
    if known.elsewhere:
        yield new(
            f"{known.elsewhere} of its instances have a mapping that names another cell",
            f"`fleetlight index verify --cell {cell.name}` names them",
            kind=FindingKind.MAPPING_ELSEWHERE,
        )
    if known.repaired_at is not None and now - known.repaired_at < _OF_LATE_US:
        yield new(
            f"{known.repaired} mappings differed from its rows until now, and were repaired",
            "nothing is left to do; was the fleet database restored?",
            kind=FindingKind.MAPPING_REPAIRED,
            since=known.repaired_at,
        )


def _of_audit(cell: Cell, last: AuditRound) -> Iterator[Finding]:
    if not last.found:
        return
    remedy = f"`fleetlight index verify --cell {cell.name} --repair`"
    if last.repaired >= last.found:
        remedy = "nothing is left to do; the log of the indexer names them (`indexer.audit_found`)"
    evidence = f"{last.found} documents differed from its rows at the last audit, of which {last.repaired} are repaired"
    yield wrong(cell.name, evidence, remedy, kind=FindingKind.DOCUMENT_REPAIRED, cell=cell.name, since=last.at)
