"""Disabling and removing cells in the registry, on each kind of database."""

from contextlib import closing

import pytest

from fleetlight.cells.capabilities import CellKind
from fleetlight.cells.errors import CellInUseError, UnknownCellError
from fleetlight.cells.fleet.adoption import map_instances
from fleetlight.cells.fleet.fleet import Fleet, InstanceMapping
from fleetlight.cells.kinds.opening import open_adapter
from fleetlight.cells.model import Cell
from tests.support.fleets.documents import make_uuid
from tests.support.fleets.instance_operations import InstanceOperations


def test_disabled_cell_stays_registered_and_keeps_its_state(fleet: Fleet, cell: Cell) -> None:
    fleet.set_disabled(cell.uuid, True)
    assert fleet.cell("one").disabled
    assert fleet.add_cell("one", CellKind.NATIVE, cell.database_url, cell.transport_url).disabled
    fleet.set_disabled(cell.uuid, False)
    assert fleet.cells() == (cell,)


def test_removed_cell_leaves_no_mapping(fleet: Fleet, cell: Cell, operations: InstanceOperations) -> None:
    other = fleet.add_cell("two", CellKind.NATIVE, "sqlite:////elsewhere.db", "memory://")
    uuids = [operations.create({}).uuid for _ in range(3)]
    operations.delete(uuids[0])
    fleet.set_disabled(cell.uuid, True)
    assert fleet.remove_cell(cell) == 3
    assert fleet.cells() == (other,)
    assert fleet.mapping_of(uuids[1]) is None
    with pytest.raises(UnknownCellError):
        fleet.cell("one")
    assert fleet.remove_cell(cell) == 0


def test_cell_that_is_enabled_is_not_removed(fleet: Fleet, cell: Cell, operations: InstanceOperations) -> None:
    operations.create({})
    with pytest.raises(CellInUseError, match="enabled"):
        fleet.remove_cell(cell)
    assert fleet.cells() == (cell,)
    assert fleet.count_mappings(cell.uuid) == 1


def test_instances_of_a_cell_that_joins_again_are_found(
    fleet: Fleet, cell: Cell, operations: InstanceOperations
) -> None:
    uuids = [changed.uuid for changed in operations.create_many([{"project_id": "p"} for _ in range(501)])]
    operations.delete(uuids[0])
    fleet.set_disabled(cell.uuid, True)
    fleet.remove_cell(cell)
    again = fleet.add_cell("one", cell.kind, cell.database_url, cell.transport_url)
    assert again.uuid != cell.uuid
    with closing(open_adapter(again)) as adapter:
        assert map_instances(adapter, fleet) == 501
        assert map_instances(adapter, fleet) == 501
    assert fleet.count_mappings(again.uuid, project_id="p") == 500
    mapping = fleet.mapping_of(uuids[0])
    assert mapping is not None
    assert mapping.queued_for_delete


def test_instances_that_live_in_another_cell_are_named_with_it(fleet: Fleet, cell: Cell) -> None:
    uuids = [make_uuid(number) for number in range(4)]
    other = fleet.add_cell("two", CellKind.NATIVE, "sqlite:///two.db", "memory://")
    fleet.add_mappings([InstanceMapping(uuid, cell.uuid, "p", "u", 1) for uuid in uuids[:2]])
    fleet.add_mappings([InstanceMapping(uuids[2], other.uuid, "p", "u", 1)])
    assert fleet.living_elsewhere(cell.uuid, uuids) == {uuids[2]: other.uuid}
    assert fleet.living_elsewhere(other.uuid, uuids) == dict.fromkeys(uuids[:2], cell.uuid)
    assert fleet.living_elsewhere(cell.uuid, []) == {}


def test_cells_of_a_deployment_are_found_by_the_uuids_that_they_have_there(fleet: Fleet, cell: Cell) -> None:
    url = "sqlite:///api.db"
    fleet.add_cell("build-requests", CellKind.NOVA_DB, url, "", api_database_url=url)
    cells = {
        name: fleet.add_cell(name, CellKind.NOVA_DB, f"sqlite:///{name}.db", "", api_database_url=api, nova_uuid=uuid)
        for name, api, uuid in (("cell1", url, make_uuid(1)), ("theirs", "sqlite:///other.db", make_uuid(2)))
    }
    assert fleet.cells_of_deployment(url) == {make_uuid(1): cells["cell1"].uuid}
    assert [known.deployment_cells for known in fleet.cells() if known.is_before_cells] == [frozenset({make_uuid(1)})]
