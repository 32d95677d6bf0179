"""Outcomes of items whose cells have accepted the action, looked up whenever their bulk change is read.

So a restarted process has nothing to resume. A lookup costs one query per cell and 500 items.
"""

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import groupby

from fleetlight.api.shared.fleet_access import FleetAccess
from fleetlight.cells.batched import batched
from fleetlight.cells.errors import CellUnreachableError
from fleetlight.cells.fleet.bulk_changes import BulkChange, BulkItem, ItemState, Outcome
from fleetlight.cells.model import Cell
from fleetlight.manager.operations.instances.instance_actions import ActionProgress, InstanceActionLog
from fleetlight.resources.clock import Clock

_AT_ONCE = 500
_FAILED = "its job has failed, or was canceled: look at it"
_LEFT = "its cell does not know any more what came of it: look at it"


def request_id_of(bulk_id: str) -> str:
    """Return the request id shared by all items of a bulk change, which instance actions and jobs show."""
    return f"req-{bulk_id}"


class ItemFollower:
    """Follows items of native cells, which alone accept actions."""

    def __init__(self, access: FleetAccess, clock: Clock) -> None:
        self._access = access
        self._store = access.fleet.bulk_changes
        self._clock = clock

    async def follow(self, bulk: BulkChange) -> bool:
        """Record outcomes of items that have ended; returns whether there were any. Skips cells that do not answer.

        Raises FleetUnreachableError.
        """
        if not bulk.count(ItemState.RUNNING):
            return False
        ask = partial(self._store.items_of, bulk.id, ItemState.RUNNING)
        items, cells = await self._access.ask(lambda: (ask(), self._access.fleet.cells()))
        by_name = {cell.name: cell for cell in cells}
        of_cells = groupby(sorted(items, key=_cell_of), key=_cell_of)
        looks = [self._of_cell(by_name.get(name), list(own), bulk.id) for name, own in of_cells]
        ended = {position: outcome for found in await asyncio.gather(*looks) for position, outcome in found.items()}
        if ended:
            await self._access.ask(lambda: self._store.end_items(bulk.id, ended, self._clock()))
        return bool(ended)

    async def _of_cell(self, cell: Cell | None, items: Sequence[BulkItem], bulk_id: str) -> Mapping[int, Outcome]:
        if cell is None:
            return {item.position: Outcome(ItemState.UNKNOWN, "its cell has left the fleet") for item in items}
        ended: dict[int, Outcome] = {}
        try:
            log = InstanceActionLog(self._access.native.engine(cell), cell)
            for batch in batched(items, _AT_ONCE):
                uuids = [item.instance.uuid for item in batch]
                found = await self._access.ask_cell(cell, partial(log.progress, uuids, request_id_of(bulk_id)))
                outcomes = ((item.position, _outcome(found.get(item.instance.uuid))) for item in batch)
                ended |= {position: outcome for position, outcome in outcomes if outcome is not None}
        except CellUnreachableError:
            pass  # the cell's jobs go on, or wait for it
        return ended


def _outcome(progress: ActionProgress | None) -> Outcome | None:
    """Return the outcome of an item; None while it goes on."""
    if progress is None:
        return Outcome(ItemState.UNKNOWN, _LEFT)
    if progress.is_under_way:
        return None
    if progress.has_failed:
        return Outcome(ItemState.FAILED, progress.details or _FAILED)
    return Outcome(ItemState.DONE)


def _cell_of(item: BulkItem) -> str:
    return item.instance.cell
