"""Read your own writes: how a list makes sure that it includes what tokens stand for."""

import asyncio
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from api.compute.protocol.fleet_access import FleetAccess
from api.compute.protocol.token import Token, unknown_token
from api.identity.caller import Caller
from api.listing.list_index import ListIndex
from api.listing.sources import CellReader
from cells.errors import CellUnreachableError, ChangeNotFoundError, FleetUnreachableError
from cells.model import Cell, CellKind
from cells.native.change_positions import Numbered, position_of
from indexer.backends.base import CellProgress

_POLL_INTERVAL_S = 0.05


class TokenWatch:
    """Finds out whether the index knows what tokens stand for. wait_s: how long it may take until it does."""

    def __init__(self, access: FleetAccess, reader: CellReader, index: ListIndex, wait_s: float) -> None:
        self._access = access
        self._reader = reader
        self._index = index
        self._wait_s = wait_s

    async def cells_to_ask(self, tokens: Sequence[Token], caller: Caller) -> Collection[str]:
        """The uuids of the cells that have to be asked themselves, since the index was not up to date soon enough.

        Raises BadRequestError for a token that nobody has handed out to this caller.
        """
        try:
            found = await self._access.ask(partial(self._cells_of, tokens, caller))
        except FleetUnreachableError:
            # Nobody can say which cells they are of; all together they are right.
            return {cell.uuid for cell in await self._reader.cells()}
        # Cells of other kinds number no changes.
        to_ask = {cell.uuid for cell in found.values() if cell.kind is not CellKind.NATIVE}
        waiting = {token: cell for token, cell in found.items() if cell.kind is CellKind.NATIVE}
        positions: dict[Token, Numbered] = {}
        deadline = time.monotonic() + self._wait_s
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

    def _cells_of(self, tokens: Sequence[Token], caller: Caller) -> Mapping[Token, Cell]:
        cells = {cell.uuid: cell for cell in self._access.fleet.cells()}
        found = {}
        for token in tokens:
            mapping = self._access.fleet.mapping_of(token.instance_uuid)
            if (
                mapping is None
                or mapping.cell_uuid not in cells
                or not caller.may_see(mapping.project_id, mapping.user_id)
            ):
                raise unknown_token(str(token))
            found[token] = cells[mapping.cell_uuid]
        return found

    async def _look_up(self, waiting: Mapping[Token, Cell], positions: dict[Token, Numbered]) -> set[str]:
        """Add the `positions` that have been given out since; returns the uuids of cells that do not answer."""
        missing = [token for token in waiting if token not in positions]
        answers = await asyncio.gather(*(self._position_of(token, waiting[token]) for token in missing))
        positions.update(
            {token: answer for token, answer in zip(missing, answers, strict=True) if isinstance(answer, Numbered)}
        )
        return {answer.cell.uuid for answer in answers if isinstance(answer, _Down)}

    async def _position_of(self, token: Token, cell: Cell) -> "Numbered | _Down | None":
        def ask() -> Numbered | None:
            return position_of(self._access.native.engine(cell), cell, token.instance_uuid, token.revision)

        try:
            return await self._access.ask_cell(cell, ask)
        except ChangeNotFoundError:
            raise unknown_token(str(token)) from None
        except CellUnreachableError:
            return _Down(cell)


def _is_known(position: Numbered | None, progress: CellProgress) -> bool:
    """Whether the index has a change; None for one that has no number yet."""
    return position is not None and position.is_covered_by(progress.incarnation, progress.watermark)


@dataclass(frozen=True, slots=True)
class _Down:
    cell: Cell
