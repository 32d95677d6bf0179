from pathlib import Path

import pytest
from psycopg import DatabaseError
from psycopg.errors import InvalidAuthorizationSpecification, InvalidCatalogName, InvalidPassword
from sqlalchemy.exc import OperationalError

from fleetlight.cells.capabilities import CellKind
from fleetlight.cells.database.engines import create_database_engine
from fleetlight.cells.errors import CellConflictError, FleetUnusableError, UnknownCellError
from fleetlight.cells.fleet.database import translated_fleet_failures
from fleetlight.cells.fleet.fleet import Fleet, InstanceMapping
from fleetlight.cells.model import Cell

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


def test_fleet_database_that_cannot_be_used_says_what_would_be_right(tmp_path: Path) -> None:
    (tmp_path / "damaged.db").write_text("no database at all, but a text that is long enough for one")
    (tmp_path / "empty.db").touch()
    old = create_database_engine(f"sqlite:///{tmp_path}/old.db")
    with old.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE cells (uuid TEXT)")
    old.dispose()
    wrong = {
        "empty": "no such table: cells; `fleetlight database upgrade` brings its tables to this version",
        "old": "no such column: cells.name; `fleetlight database upgrade` brings its tables to this version",
        "none": "unable to open database file; `fleetlight database upgrade` makes a new one",
        "damaged": "file is not a database; see fleet.database_url",
    }
    for name, problem in wrong.items():
        engine = create_database_engine(f"sqlite:///{tmp_path}/{name}.db", must_exist=True)
        with pytest.raises(FleetUnusableError) as caught:
            Fleet(engine).cells()
        assert str(caught.value) == f"the fleet database cannot be used: {problem}"
        engine.dispose()


@pytest.mark.parametrize(
    ("refusal", "remedy"),
    [
        (InvalidPassword("mot de passe incorrect"), "PGUSER, PGPASSFILE and PGPASSWORD in the environment"),
        (InvalidAuthorizationSpecification("aucune entrée"), "PGUSER, PGPASSFILE and PGPASSWORD in the environment"),
        (InvalidCatalogName("n'existe pas"), "`fleetlight database upgrade` makes the tables"),
    ],
)
def test_code_of_a_refused_login_counts_in_any_language(refusal: DatabaseError, remedy: str) -> None:
    with pytest.raises(FleetUnusableError) as caught, translated_fleet_failures():
        raise OperationalError(None, None, refusal)
    assert str(caught.value).startswith(f"the fleet database cannot be used: {refusal}; ")
    assert str(caught.value).endswith(remedy)


def test_a_cell_does_not_show_its_urls(cell: Cell) -> None:
    assert "sqlite" not in repr(cell)
