"""What a project takes up, over all cells."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from uuid import uuid4

import pytest
from sqlalchemy import Engine

from fleetlight.cells.capabilities import CellKind
from fleetlight.cells.errors import QuotaExceededError
from fleetlight.cells.fan_out.cell_pool import CellPool
from fleetlight.cells.fan_out.native_cells import NativeCells
from fleetlight.cells.fan_out.quota_usage import check_new_instances, in_use
from fleetlight.cells.fleet.fleet import Fleet, InstanceMapping
from fleetlight.cells.kinds.opening import open_adapter
from fleetlight.cells.model import Cell, CellAdapter
from tests.support.fleets.instance_operations import InstanceOperations


def test_usage_is_the_sum_of_the_flavors_of_a_project(
    fleet: Fleet, engine: Engine, operations: InstanceOperations
) -> None:
    assert engine  # the cell is migrated
    large = fleet.flavors.find("4")
    values = {"project_id": "red", "user_id": "ada", "flavor": large.payload(), "instance_type_id": large.number}
    for _ in range(3):
        uuid = operations.create(values).uuid
    operations.create(values | {"project_id": "blue"})
    operations.delete(uuid)
    with native_cells(fleet) as native:
        used = in_use(fleet, native, "red", "ada")
        assert used == {"instances": 2, "cores": 8, "ram": 16384, "server_groups": 0, "key_pairs": 0}
        check_new_instances(fleet, native, "red", large, 3)
        with pytest.raises(QuotaExceededError, match="cores"):
            check_new_instances(fleet, native, "red", large, 4)


def test_cells_that_a_project_is_in_are_asked_at_the_same_time_and_no_others(
    fleet: Fleet, engine: Engine, operations: InstanceOperations
) -> None:
    def open_together(cell: Cell) -> CellAdapter:
        """Of these none answers before all have been asked."""
        meeting.wait(60)
        return open_adapter(cell)

    large = fleet.flavors.find("4")
    operations.create({"project_id": "red", "user_id": "ada", "flavor": large.payload()})
    others = [fleet.add_cell(f"other{number}", CellKind.NATIVE, engine_url(engine), "memory://") for number in range(3)]
    fleet.add_cell("without", CellKind.NATIVE, engine_url(engine), "memory://")  # is not asked
    fleet.add_mappings([InstanceMapping(str(uuid4()), cell.uuid, "red", "ada", 0) for cell in others])
    meeting = threading.Barrier(1 + len(others))
    with native_cells(fleet, open_together) as native:
        assert in_use(fleet, native, "red")["cores"] == large.vcpus * (1 + len(others)), "they share one database here"


@contextmanager
def native_cells(fleet: Fleet, open_cell: Callable[[Cell], CellAdapter] = open_adapter) -> Iterator[NativeCells]:
    pool = CellPool(fleet.cells, open_cell, deadline_s=60)
    try:
        yield NativeCells(fleet.cells, pool)
    finally:
        asyncio.run(pool.close())


def engine_url(engine: Engine) -> str:
    return engine.url.render_as_string(hide_password=False)
