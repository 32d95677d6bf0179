"""Usage by the instances of all cells within a period, and the part of the period that each cell knows.

Usage is read from the cells, page by page (fleetlight.cells.usage), since the index has no past.
"""

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from fleetlight.cells.errors import CellUnreachableError, UnknownCellError
from fleetlight.cells.model import Cell
from fleetlight.cells.usage import Group, Usage, UsagePart, UsageRequest, read_usage
from fleetlight.listing.admission import NO_LIMIT, Admission
from fleetlight.listing.announced import NO_ANNOUNCED, AnnouncedStore, only_known_now
from fleetlight.listing.answer import CellAnswer, Page, Route
from fleetlight.listing.errors import TooManyGroupsError
from fleetlight.listing.sources import CellReader, log_failure
from fleetlight.query.counts import MAX_GROUPS
from fleetlight.resources.fields import from_microseconds

CELL = "cell"
"""The name by which sums are grouped by cell, beside those of fleetlight.cells.usage.GROUPS."""

_KEEPS_NONE = (
    "it keeps no changes: an instance counts from its last launch, by its present size, until its row is purged"
)
_KNOWS_NO_PAST = "it knows neither when its instances were launched nor those that it has deleted"


@dataclass(frozen=True, slots=True)
class CellUsage:
    """The usage of one cell. sums: by group. exact_from: see UsagePart. why: the reasons for which the sums may be
    inexact; empty if every change of the period counted."""

    answer: CellAnswer
    sums: Mapping[Group, Usage] = field(default_factory=dict)
    exact_from: int | None = None
    why: Sequence[str] = ()

    @property
    def is_known(self) -> bool:
        """Whether the cell answered."""
        return self.answer.route is not Route.SKIPPED


@dataclass(frozen=True, slots=True)
class FleetUsage:
    """The usage of all cells. by: names of the groups of each cell's sums. proof: which cells answered in full."""

    by: Sequence[str]
    cells: Sequence[CellUsage]
    proof: Page

    def sums(self, by: Sequence[str]) -> Mapping[Group, Usage]:
        """Sum up all cells, grouped by `by` in that order; CELL may be one of the names. Raises TooManyGroupsError."""
        sums: dict[Group, Usage] = defaultdict(Usage)
        for each in self.cells:
            for group, usage in each.sums.items():
                values = {CELL: each.answer.cell.name, **dict(zip(self.by, group, strict=True))}
                sums[tuple(values[name] for name in by)].add(usage)
            _refuse_too_many(sums)
        return sums


class UsageLister:
    """Sums up the usage of instances. announced: instances that only notifications announced, without a known past."""

    def __init__(self, reader: CellReader, announced: AnnouncedStore = NO_ANNOUNCED) -> None:
        self._reader = reader
        self._announced = announced

    async def usage(
        self, request: UsageRequest, *, cell_timeout_s: float, admission: Admission = NO_LIMIT
    ) -> FleetUsage:
        """Read the usage of all cells concurrently. A cell that fails adds nothing, and the answer is incomplete.

        cell_timeout_s: time limit of one page of a cell. Raises FleetUnreachableError when the list of cells cannot be
        read, TooManyGroupsError, and the errors of `admission`.
        """
        async with admission.page() as slot:
            has_all_cells = await self._reader.knows_all_cells()
            cells = await self._reader.cells()
            await slot.ask_cells()
            announced = await only_known_now(self._announced, cells, cell_timeout_s)
            found = await asyncio.gather(
                *(self._of_cell(cell, request, cell_timeout_s, announced.get(cell.uuid)) for cell in cells)
            )
        return FleetUsage(request.by, found, Page(b"", 0, None, [each.answer for each in found], has_all_cells))

    async def _of_cell(self, cell: Cell, request: UsageRequest, timeout_s: float, announced: str | None) -> CellUsage:
        if not cell.can.keeps_ended:
            return _nothing_of(cell, _KNOWS_NO_PAST)
        parts = _Parts()
        try:
            while not parts.is_whole:
                ask = partial(read_usage, request=request, after=parts.after)
                parts.add(await self._reader.ask(cell.uuid, ask, timeout_s))
        except (CellUnreachableError, UnknownCellError) as error:
            log_failure(cell.uuid, error)
            return _nothing_of(cell, str(error))
        lacks = [*sorted(parts.lacks), *([announced] if announced else [])]
        route = Route.LIVE if parts.exact_from is None else Route.CHANGELOG
        answer = CellAnswer(cell, route, not lacks, failure=lacks[0] if lacks else None)
        return CellUsage(answer, parts.sums, parts.exact_from, [*lacks, *_limits(parts.exact_from, request.start)])


class _Parts:
    """The sum of the parts of one cell."""

    def __init__(self) -> None:
        self.sums: dict[Group, Usage] = defaultdict(Usage)
        self.after: tuple[Any, ...] | None = None
        self.is_whole = False
        self.exact_from: int | None = None
        self.lacks: set[str] = set()

    def add(self, part: UsagePart) -> None:
        for group, usage in part.sums.items():
            self.sums[group].add(usage)
        _refuse_too_many(self.sums)
        if part.exact_from is not None:
            # The cell may prune changes between two parts.
            self.exact_from = max(part.exact_from, self.exact_from or 0)
        self.lacks |= part.lacks
        self.after, self.is_whole = part.after, part.after is None


def _refuse_too_many(sums: Mapping[Group, Usage]) -> None:
    if len(sums) > MAX_GROUPS:
        raise TooManyGroupsError(MAX_GROUPS)


def _nothing_of(cell: Cell, why: str) -> CellUsage:
    return CellUsage(CellAnswer(cell, Route.SKIPPED, is_complete=False, failure=why), why=(why,))


def _limits(exact_from: int | None, start: int) -> list[str]:
    """Return why changes since `start` did not count; empty if all did."""
    if exact_from is None:
        return [_KEEPS_NONE]
    if exact_from <= start:
        return []
    since = f"{from_microseconds(exact_from):%Y-%m-%dT%H:%M:%S.%fZ}"
    return [f"it keeps changes since {since}: before, an instance counts from its launch, by its size at that time"]
