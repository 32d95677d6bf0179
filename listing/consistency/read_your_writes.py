"""Read your own writes: the cells that a list asks itself, to include what the index does not know yet."""

import asyncio
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import Engine

from fleetlight.cells.change_positions import Numbered, position_of
from fleetlight.cells.errors import CellUnreachableError, ChangeNotFoundError, FleetUnreachableError
from fleetlight.cells.fan_out.cell_pool import CellPool
from fleetlight.cells.fleet.fleet import Fleet
from fleetlight.cells.model import Cell, InstanceRow
from fleetlight.indexer.backends.base import CellProgress
from fleetlight.listing.consistency.own_changes import OwnChange
from fleetlight.listing.consistency.shared_changes import SharedChanges
from fleetlight.listing.consistency.tokens import ChangeToken, unknown_token
from fleetlight.listing.errors import CellDownError
from fleetlight.listing.find_instance import InstanceFinder, MaySee
from fleetlight.listing.index_gateway import IndexGateway
from fleetlight.listing.settings import SearchSettings
from fleetlight.listing.sources import CellReader, ask_fleet
from fleetlight.resources.clock import Clock, system_clock

_POLL_INTERVAL_S = 0.05


class ReadYourWrites:
    """What lists have to include, by tokens and without, and whether the index knows it.

    reader: has the cells that lists ask. pool: has the native ones open. engine: opens the database of a native cell.
    """

    def __init__(
        self,
        fleet: Fleet,
        index: IndexGateway,
        settings: SearchSettings,
        *,
        reader: CellReader,
        finder: InstanceFinder,
        pool: CellPool,
        engine: Callable[[Cell], Engine],
        clock: Clock = system_clock,
    ) -> None:
        self._fleet = fleet
        self._reader = reader
        self._finder = finder
        self._pool = pool
        self._engine = engine
        self._index = index
        self._settings = settings
        # Twice: the clocks of the process that announces changes and of this one may differ.
        self._changes = SharedChanges(fleet.recent_changes, 2 * settings.staleness_limit_s, clock)

    async def include(self, row: InstanceRow, reader: str) -> None:
        """From now on the lists of `reader` include this state of an instance of a native cell.

        So do those of its project. reader: a project, or a user without one, that has changed or seen it.
        """
        if self._index.is_used:
            await self._changes.share({reader, row.record["project_id"] or reader}, row)

    async def cells_to_ask(self, tokens: Sequence[ChangeToken], may_see: MaySee) -> Collection[str]:
        """The uuids of the cells that have to be asked themselves, since the index was not up to date soon enough.

        Raises TokenError for a token that was not handed out to the caller.
        """
        try:
            found = await self._cells_of(tokens, may_see)
        except (FleetUnreachableError, CellDownError):
            # It is not known which cells they are of; all together they are right.
            return {cell.uuid for cell in await self._reader.cells()}
        listed = {cell.uuid for cell in await self._reader.cells()}
        # Cells of other kinds number no changes, and of a cell that has just joined the list would know nothing.
        to_ask = {cell.uuid for cell in found.values() if not cell.can.numbers_changes or cell.uuid not in listed}
        waiting = {token: cell for token, cell in found.items() if cell.uuid not in to_ask}
        positions: dict[ChangeToken, Numbered] = {}
        deadline = time.monotonic() + self._settings.token_wait_s
        while True:
            to_ask |= await self._look_up(waiting, positions)
            followed = await self._index.followed(_POLL_INTERVAL_S)
            to_ask |= {cell.uuid for cell in waiting.values() if cell.uuid not in followed}
            waiting = {
                token: cell
                for token, cell in waiting.items()
                if cell.uuid not in to_ask and not _is_known(positions.get(token), followed[cell.uuid])
            }
            if not waiting:
                return to_ask
            if time.monotonic() >= deadline:
                return to_ask | {cell.uuid for cell in waiting.values()}
            await asyncio.sleep(_POLL_INTERVAL_S)

    async def cells_behind(self, reader: str) -> Collection[str]:
        """The uuids of the cells that have to be asked themselves, since the index lacks what `reader` has to find.

        No list waits for the index: the cell answers sooner, and is asked no longer than the index needs.
        """
        # Without an index all cells are asked anyway.
        noted = () if self._index.why_not is not None else await self._changes.of(reader)
        if not noted:
            return ()
        followed = await self._index.followed(_POLL_INTERVAL_S)
        cells = {cell.uuid: cell for cell in await self._reader.cells()}
        by_cell: dict[str, list[OwnChange]] = {}
        for change in reversed(noted):  # the newest first, since the index reaches it last
            by_cell.setdefault(change.cell_uuid, []).append(change)

        async def is_behind(uuid: str) -> bool:
            if uuid not in followed or uuid not in cells:
                return True
            for change in by_cell[uuid]:
                if not await self._is_in(followed[uuid], cells[uuid], change):
                    return True
                change.is_indexed = True
            return False

        answers = await asyncio.gather(*map(is_behind, by_cell))
        return {uuid for uuid, answer in zip(by_cell, answers, strict=True) if answer}

    async def _is_in(self, progress: CellProgress, cell: Cell, change: OwnChange) -> bool:
        """Whether the index knows a change, or cannot any more, since the cell was restored without it."""
        if change.position is None:
            try:
                position = await self._position_of(change.token, cell)
            except ChangeNotFoundError:
                return True
            if isinstance(position, _Down):
                return False
            change.position = position
        return _is_known(change.position, progress)

    async def _cells_of(self, tokens: Sequence[ChangeToken], may_see: MaySee) -> Mapping[ChangeToken, Cell]:
        timeout_s = self._settings.cell_timeout_s
        cells = {cell.uuid: cell for cell in await ask_fleet(self._fleet.cells, timeout_s)}
        found = {}
        for token in tokens:
            mapping = await self._finder.mapping_of(token.instance_uuid, timeout_s)
            if mapping is None or mapping.cell_uuid not in cells or not may_see(mapping.project_id, mapping.user_id):
                raise unknown_token(str(token))
            found[token] = cells[mapping.cell_uuid]
        return found

    async def _look_up(self, waiting: Mapping[ChangeToken, Cell], positions: dict[ChangeToken, Numbered]) -> set[str]:
        """Add the `positions` that have been given out since; returns the uuids of cells that do not answer."""
        missing = [token for token in waiting if token not in positions]
        answers = await asyncio.gather(*(self._known_position_of(token, waiting[token]) for token in missing))
        positions.update(
            {token: answer for token, answer in zip(missing, answers, strict=True) if isinstance(answer, Numbered)}
        )
        return {answer.cell.uuid for answer in answers if isinstance(answer, _Down)}

    async def _known_position_of(self, token: ChangeToken, cell: Cell) -> "Numbered | _Down | None":
        """As `_position_of`. Raises TokenError for a token that was not handed out."""
        try:
            return await self._position_of(token, cell)
        except ChangeNotFoundError:
            raise unknown_token(str(token)) from None

    async def _position_of(self, token: ChangeToken, cell: Cell) -> "Numbered | _Down | None":
        """None for a change that has no number yet. Raises ChangeNotFoundError."""

        def ask() -> Numbered | None:
            return position_of(self._engine(cell), cell, token.instance_uuid, token.revision)

        try:
            return await self._pool.ask_known(cell, ask, self._settings.cell_timeout_s)
        except CellUnreachableError:
            return _Down(cell)


def _is_known(position: Numbered | None, progress: CellProgress) -> bool:
    """Whether the index has a change; None for one that has no number yet."""
    return position is not None and position.is_covered_by(progress.epoch, progress.watermark)


@dataclass(frozen=True, slots=True)
class _Down:
    cell: Cell
