from pathlib import Path

import pytest

from cells.database import create_database_engine
from cells.errors import CellConflictError, FleetUnreachableError, UnknownCellError
from cells.fleet.fleet import Fleet, InstanceMapping
from cells.model import Cell, CellKind

UUIDS = [f"00000000-0000-4000-8000-{number:012d}" for number in range(4)]


def test_adding_a_cell_again_keeps_its_uuid_and_brings_its_urls_up_to_date(fleet: Fleet, cell: Cell) -> None:
    again = fleet.add_cell("one", CellKind.NATIVE, "sqlite:///elsewhere.db", "amqp://bus")
    assert again.uuid == cell.uuid
    assert fleet.cells() == (again,)
    assert fleet.cell("one").transport_url == "amqp://bus"


def test_a_name_is_not_given_to_another_cell(fleet: Fleet, cell: Cell) -> None:
    with pytest.raises(CellConflictError, match="'one'"):
        fleet.add_cell("one", CellKind.NOVA_DB, cell.database_url, cell.transport_url)
    with pytest.raises(CellConflictError):
        fleet.add_cell("one", CellKind.NATIVE, cell.database_url, cell.transport_url, uuid=UUIDS[0])


def test_cell_is_found_by_name_and_by_uuid(fleet: Fleet, cell: Cell) -> None:
    assert fleet.cell("one") == fleet.cell(cell.uuid) == cell


def test_unknown_cell_names_the_known_ones(fleet: Fleet, cell: Cell) -> None:
    with pytest.raises(UnknownCellError, match="'two'; known: one"):
        fleet.cell("two")


def test_mappings_of_a_cell_leave_out_what_is_deleted(fleet: Fleet, cell: Cell) -> None:
    mappings = [InstanceMapping(uuid, cell.uuid, f"p{number % 2}", "u", number) for number, uuid in enumerate(UUIDS)]
    fleet.add_mappings(mappings)
    fleet.mark_queued_for_delete(cell.uuid, [UUIDS[0]])

    deleted = fleet.mapping_of(UUIDS[0])
    assert deleted is not None
    assert deleted.queued_for_delete
    assert fleet.mapping_of("no-such") is None
    assert fleet.mappings_of_cell(cell.uuid, limit=10) == tuple(mappings[1:])
    assert fleet.mappings_of_cell(cell.uuid, limit=1) == (mappings[1],)
    assert fleet.mappings_of_cell(cell.uuid, project_id="p1", limit=10) == (mappings[1], mappings[3])
    assert fleet.count_mappings(cell.uuid) == len(mappings) - 1
    assert fleet.count_mappings(cell.uuid, project_id="p0") == 1


def test_a_fleet_database_without_tables_is_reported_as_unreachable(tmp_path: Path) -> None:
    engine = create_database_engine(f"sqlite:///{tmp_path}/empty.db")
    with pytest.raises(FleetUnreachableError, match="no such table"):
        Fleet(engine).cells()
    engine.dispose()


def test_a_cell_does_not_show_its_urls(cell: Cell) -> None:
    assert "sqlite" not in repr(cell)
