"""Grants the fleet's PostgreSQL accounts their rights on tables that were created after them."""

from collections.abc import Sequence
from functools import partial

from fleetlight.cells.database.engines import create_database_engine
from fleetlight.cells.errors import CellUnreachableError, FleetUnreachableError
from fleetlight.cells.model import Cell

ROLE_PREFIX = "fleetlight_"


def renew_rights(fleet_url: str, cells: Sequence[Cell]) -> Sequence[str]:
    """Grant each known account its rights on the current tables of the fleet database and of native `cells`.

    Returns the accounts' names; empty if the databases are SQLite files. Only the owner of the databases may do this.
    Raises FleetUnreachableError and CellUnreachableError, also for any other account.
    """
    if not fleet_url.startswith("postgresql"):
        return ()
    from fleetlight.cells import postgresql_accounts as accounts  # noqa: PLC0415 -- has the driver

    engine = create_database_engine(fleet_url, pool_size=1)
    try:
        known = [
            name for name in accounts.ACCOUNTS if accounts.has_rights(engine, ROLE_PREFIX + name, FleetUnreachableError)
        ]
        for name in known:
            accounts.grant(engine, ROLE_PREFIX + name, None, accounts.ACCOUNTS[name][0], FleetUnreachableError)
    finally:
        engine.dispose()
    for cell in cells:
        if not cell.database_url.startswith("postgresql"):
            continue
        engine = create_database_engine(cell.database_url, cell_uuid=cell.uuid, pool_size=1)
        try:
            for name in known:
                unreachable = partial(CellUnreachableError, cell.name)
                accounts.grant(engine, ROLE_PREFIX + name, None, accounts.ACCOUNTS[name][1], unreachable)
        finally:
            engine.dispose()
    return known
