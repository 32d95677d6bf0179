"""`fleetlight index verify`: what it says, and what its exit code says."""

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import delete

from fleetlight.cells.capabilities import CellKind
from fleetlight.cells.fleet.compared_mappings import ComparedMappings
from fleetlight.cells.fleet.tables import instance_mappings
from fleetlight.cells.model import Cell
from fleetlight.cli.data_folder import DataFolder
from fleetlight.cli.fleet import open_fleet
from fleetlight.cli.index import verification
from fleetlight.cli.index.mappings import report_mappings
from fleetlight.cli.settings import load_settings
from fleetlight.indexer.backends.base import OLDEST_TIME_VERSION
from fleetlight.indexer.backends.opening import open_writer
from fleetlight.indexer.reconcile.differences import Difference, DifferenceKind, Verification
from fleetlight.indexer.reconcile.retention import LISTS_DELAY_S
from fleetlight.indexer.transform.documents import to_document
from fleetlight.manager.commands.embedded import set_up_cells, set_up_fleet
from fleetlight.resources.clock import system_clock
from tests.support.fleets.documents import make_document, make_uuid
from tests.support.fleets.instance_operations import InstanceOperations
from tests.unit.cli.conftest import Run


@pytest.fixture(autouse=True)
def nobody_indexes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verification, "_CATCH_UP_TIMEOUT_S", 0)


@pytest.fixture
def cell_uuids(empty_place: Path, run: Run) -> list[str]:
    """Two cells with two instances each, all of them in the index."""
    folder = DataFolder(empty_place / "fleetlight-data")
    folder.create()
    fleet = set_up_fleet(folder)
    uuids = []
    for embedded in set_up_cells(folder, fleet, 2):
        InstanceOperations(embedded.engine, fleet, embedded.cell).create_many([{}, {}])
        embedded.engine.dispose()
        uuids.append(embedded.cell.uuid)
    fleet.close()
    assert run("index", "sync").exit_code == 0
    return uuids


def change_index(*removed: str, cell_uuid: str) -> None:
    """Remove these documents, and write one that no cell has, and one of an external notification."""
    with closing(open_writer(load_settings(None, None).index)) as writer:
        writer.prepare()
        writer.remove(dict.fromkeys(removed, 1))
        writer.write(
            [
                make_document(1, cell_uuid=cell_uuid, version=3),
                make_document(2, cell_uuid=cell_uuid, version=OLDEST_TIME_VERSION),
            ]
        )


def instance_of(cell_uuid: str) -> str:
    with closing(open_writer(load_settings(None, None).index)) as writer:
        writer.prepare()
        return min(writer.revisions(cell_uuid, [""]))


def verified(run: Run, *arguments: str) -> tuple[int, dict[str, dict[str, Any]]]:
    result = run("index", "verify", "--output", "json", *arguments)
    return result.exit_code, {cell["cell"]: cell for cell in json.loads(result.stdout)}


def test_cells_that_agree_have_exit_code_0(run: Run, cell_uuids: list[str]) -> None:
    result = run("index", "verify")
    assert result.exit_code == 0
    assert [line.split() for line in result.stdout.splitlines()[2:4]] == [
        ["cell1", "yes", "2", "0", "2", "0", "0", "0"],
        ["cell2", "yes", "2", "0", "2", "0", "0", "0"],
    ]
    assert result.stderr == ""


def test_differences_are_listed_and_have_exit_code_1(run: Run, cell_uuids: list[str]) -> None:
    missing = instance_of(cell_uuids[1])
    change_index(missing, cell_uuid=cell_uuids[1])
    result = run("index", "verify")
    assert result.exit_code == 1
    assert [line.split() for line in result.stdout.splitlines()[2:4]] == [
        ["cell1", "yes", "2", "0", "2", "0", "0", "0"],
        ["cell2", "no", "2", "0", "2", "1", "2", "0"],
    ]
    assert f"cell2: {missing} missing in the index (cell: revision 1, index: not there)" in result.stdout
    assert f"cell2: {make_uuid(1)} only in the index (cell: not there, index: version 3)" in result.stdout
    assert "cell2: the index did not catch up" in result.stderr
    assert run("index", "verify", "--cell", "cell1").exit_code == 0


def test_differences_are_repaired_and_then_they_agree(run: Run, cell_uuids: list[str]) -> None:
    missing = instance_of(cell_uuids[0])
    change_index(missing, cell_uuid=cell_uuids[0])
    code, before = verified(run)
    assert code == 1
    assert (before["cell1"]["agrees"], before["cell2"]["agrees"]) == (False, True)
    assert before["cell1"]["differences"] == sorted(
        (
            {
                "uuid": uuid,
                "kind": kind,
                "revision": revision,
                "version": version,
                "is_repaired": False,
                "problem": None,
                "owner": None,
                "mapped_to": None,
            }
            for uuid, kind, revision, version in (
                (missing, "missing in the index", 1, None),
                (make_uuid(1), "only in the index", None, 3),
            )
        ),
        key=lambda difference: str(difference["uuid"]),
    )
    result = run("index", "verify", "--repair")
    assert result.exit_code == 0
    assert "; repaired" in result.stdout
    code, after = verified(run, "--fast")
    assert (code, after["cell1"]["differences"]) == (0, [])
    assert {key: after["cell1"][key] for key in ("instances", "indexed", "external", "rows_read")} == {
        "instances": 2,
        "indexed": 2,
        "external": 1,
        "rows_read": 0,
    }


def test_lists_are_waited_for_before_rows_make_place_for_older_ones(
    run: Run, cell_uuids: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    paused: list[float] = []
    monkeypatch.setattr("time.sleep", paused.append)
    uuid = instance_of(cell_uuids[0])
    with closing(open_writer(load_settings(None, None).index)) as writer:
        writer.prepare()
        writer.write([to_document(cell_uuids[0], 7, writer.read([uuid])[uuid].record)])
        writer.make_searchable()
    assert run("index", "verify", "--repair", "--cell", "cell1").exit_code == 0
    assert LISTS_DELAY_S in paused


def test_cell_that_is_away_is_unknown_and_the_others_are_verified(
    run: Run, cell_uuids: list[str], empty_place: Path
) -> None:
    for path in (empty_place / "fleetlight-data").glob("**/cell1*.db*"):
        path.unlink()
    result = run("index", "verify")
    assert result.exit_code == 1
    assert [line.split()[:2] for line in result.stdout.splitlines()[2:4]] == [["cell1", "unknown"], ["cell2", "yes"]]
    assert "cell 'cell1' cannot be reached" in result.stderr
    code, cells = verified(run)
    assert code == 1
    assert "cannot be reached" in cells["cell1"]["problem"]


def test_many_differences_are_counted_rather_than_shown_and_unrepaired_ones_come_first(
    run: Run, cell_uuids: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    reconciled = [Difference(make_uuid(number), DifferenceKind.OLDER, 2, 1, True) for number in range(30)]
    left = Difference("the-one-left", DifferenceKind.MISSING, 1, None, False, "it is too long")
    outcome = Verification(31, 30, 0, (*reconciled, left), 90, True)
    monkeypatch.setattr(verification, "verify", lambda *_, **__: outcome)
    result = run("index", "verify", "--repair", "--cell", "cell1")
    assert result.exit_code == 1
    lines = result.stdout.splitlines()
    assert "the-one-left missing in the index" in lines[3]
    assert lines[3].endswith("not repaired: it is too long")
    assert lines[-1] == "cell1: and 11 more (--output json lists them all)"


def mappings_of(run: Run, cell: str, *arguments: str) -> tuple[int, dict[str, Any]]:
    exit_code, cells = verified(run, *arguments)
    return exit_code, cells[cell]["mappings"]


def test_mapping_that_the_fleet_database_has_lost_is_named_and_repaired(run: Run, cell_uuids: list[str]) -> None:
    lost = instance_of(cell_uuids[0])
    with open_fleet(load_settings(None, None).fleet) as fleet, fleet.database.writing() as connection:
        connection.execute(delete(instance_mappings).where(instance_mappings.c.instance_uuid == lost))
    nothing: dict[str, Any] = {"missing": [], "changed": [], "gone": [], "elsewhere": {}}
    assert mappings_of(run, "cell1") == (1, {**nothing, "missing": [lost]})
    result = run("index", "verify", "--repair")
    assert result.exit_code == 0
    assert f"cell1: instance {lost} is not mapped in the fleet database; repaired" in result.stdout
    assert mappings_of(run, "cell1") == (0, nothing)


def test_status_says_what_was_repaired_and_what_cannot_be(run: Run, cell_uuids: list[str]) -> None:
    moment = system_clock()
    with open_fleet(load_settings(None, None).fleet) as fleet:
        fleet.compared_mappings.record(cell_uuids[0], compared_at=moment, repaired=104, elsewhere=0)
        fleet.compared_mappings.record(cell_uuids[1], compared_at=moment - 3600 * 1_000_000, repaired=0, elsewhere=2)
    result = run("index", "status")
    said = " ".join(result.stderr.split())
    assert "cell1: 104 mappings differed from its rows until now, and were repaired" in said
    assert "cell2: the mappings of its instances were compared with its rows 60 minutes ago" in said
    assert "cell2: 2 of its instances have a mapping that names another cell" in said
    shown = {each["cell"]: each["mappings"] for each in json.loads(run("index", "status", "--output", "json").stdout)}
    assert shown["cell1"] == {"compared_at": moment, "repaired": 104, "repaired_at": moment, "elsewhere": 0}


def test_status_has_exit_code_1_for_mappings_that_name_another_cell() -> None:
    cell = Cell("c0", "c0", CellKind.NATIVE, "", "")
    now = 100 * 24 * 3600 * 1_000_000
    assert report_mappings([cell], {}, now)
    assert report_mappings([cell], {"c0": ComparedMappings(now, 5, now, 0)}, now)
    assert not report_mappings([cell], {"c0": ComparedMappings(now, 0, None, 1)}, now)
    assert not report_mappings([cell], {"c0": ComparedMappings(now - 1801 * 1_000_000, 0, None, 0)}, now)


@pytest.mark.parametrize(
    ("kind", "documents", "word"),
    [
        (CellKind.NOVA_DB, 7, "has archived or forgotten stay in the index"),
        (CellKind.NOVA_DB, 3, "copies of instances that moved"),
        (CellKind.NATIVE, 7, "while the two were counted"),
        (CellKind.NOVA_DB, 5, ""),
    ],
)
def test_verify_says_why_the_numbers_of_a_cell_that_agrees_differ(
    capsys: pytest.CaptureFixture[str], kind: CellKind, documents: int, word: str
) -> None:
    found = Verification(5, documents, 0, (), rows_read=0, has_caught_up=True)
    verification.print_problems([verification.Verified(Cell("c0", "c0", kind, "", ""), found)])
    said = " ".join(capsys.readouterr().err.split())
    assert word in said
    assert bool(said) == bool(word)
