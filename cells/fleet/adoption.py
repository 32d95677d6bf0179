"""A cell that joins the fleet with instances that are there already."""

from dataclasses import replace

from cells.fleet.fleet import Fleet, InstanceMapping
from cells.model import CellAdapter
from query.filters import EVERYTHING
from query.page import PageRequest
from query.sort import SortOrder
from resources.clock import system_clock
from resources.instance import INSTANCE_FIELDS

_BATCH_SIZE = 500
_BY_UUID = SortOrder.of(INSTANCE_FIELDS, ())


def map_instances(adapter: CellAdapter, fleet: Fleet) -> int:
    """Say in the fleet database that the instances of a cell live there, deleted ones too; returns how many they are.

    Can be repeated. Raises CellUnreachableError, FleetUnreachableError, and InstanceExistsError for an instance that
    another cell has.
    """
    count = 0
    request = PageRequest(EVERYTHING, _BY_UUID, _BATCH_SIZE, fields=InstanceMapping.FIELDS)
    while True:
        rows = adapter.read_page(request)
        fleet.add_mappings([InstanceMapping.of(row, system_clock()) for row in rows])
        count += len(rows)
        if len(rows) < _BATCH_SIZE:
            return count
        request = replace(request, after=_BY_UUID.values(rows[-1].record))
