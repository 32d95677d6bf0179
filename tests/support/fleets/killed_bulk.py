"""A process that is killed while it carries out a bulk change: `python -m …killed_bulk FLEET_URL BULK_ID`."""

import asyncio
import os
import signal
import sys

from fleetlight.api.app import create_app
from fleetlight.api.http.in_process import call
from fleetlight.api.parts import ApiParts
from fleetlight.api.shared.endpoint import ApiRequest
from fleetlight.cells.database.engines import create_database_engine
from fleetlight.cells.fan_out.cell_pool import CellPool
from fleetlight.cells.fan_out.native_cells import NativeCells
from fleetlight.cells.fleet.bulk_changes import Outcome
from fleetlight.cells.fleet.fleet import Fleet
from fleetlight.cells.kinds.opening import open_adapter
from fleetlight.manager.faces.bulk.item_actions import BulkAction, ItemActions

_OWNER = {"X-User-Id": "ada", "X-Roles": "member", "X-Project-Id": "red"}
_submit = ItemActions.submit


async def _submit_and_die(actions: ItemActions, request: ApiRequest, action: BulkAction) -> Outcome:
    """Die when the cell has taken the item, and nothing says so yet."""
    await _submit(actions, request, action)
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("a killed process went on")


async def main(fleet_url: str, bulk_id: str) -> None:
    ItemActions.submit = _submit_and_die  # type: ignore[assignment, method-assign]
    fleet = Fleet(create_database_engine(fleet_url))
    pool = CellPool(fleet.cells, open_adapter)
    app = create_app(ApiParts(cells=pool, fleet=fleet, native=NativeCells(fleet.cells, pool))).web
    headers = _OWNER | {"Content-Type": "application/json"}
    await call(app, "POST", f"/fleetlight/bulk/{bulk_id}/start", headers=headers, body=b"{}")
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
