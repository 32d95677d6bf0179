"""The rights of the accounts keep up with the tables."""

from fleetlight.cells.fleet.tables import cells, fleet_metadata
from fleetlight.cells.postgresql_accounts import ACCOUNTS


def test_some_process_may_change_each_table_of_the_fleet_but_that_of_the_cells() -> None:
    """Without such a right a new table works for its owner, in tests, and for no process with an account."""
    changed = {may.table.name for of_fleet, _ in ACCOUNTS.values() for may in of_fleet.changes}
    # Commands that change keys of producers and cells run as the owner.
    assert changed | {"cells", "cell_keys", "producer_keys"} == fleet_metadata.tables.keys()
    assert cells.name not in changed
