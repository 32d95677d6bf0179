"""The accounts on PostgreSQL that a fleet has, and their rights to tables that were not there when they were made."""

from collections.abc import Sequence
from functools import partial

from fleetlight.cells.database.engines import create_database_engine
from fleetlight.cells.errors import CellUnreachableError, FleetUnreachableError
from fleetlight.cells.model import Cell

ROLE_PREFIX = "fleetlight_"


def renew_rights(fleet_url: str, cells: Sequence[Cell]) -> Sequence[str]:
    """Give each account that the fleet database knows its rights to what is there now, in that and in native `cells`.

    Returns the names of these accounts, none where the databases are files. Only the owner of the databases may;
    raises FleetUnreachableError and CellUnreachableError, for other accounts too.
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
