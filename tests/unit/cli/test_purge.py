"""`fleetlight index purge`, and the setting that says what it removes."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from fleetlight.cells.fleet.fleet import Fleet
from fleetlight.cli.data_folder import DataFolder
from fleetlight.cli.settings import load_settings
from fleetlight.indexer.backends.opening import open_writer
from fleetlight.indexer.writing.leases import CellLeases
from fleetlight.manager.commands.embedded import set_up_cells, set_up_fleet
from fleetlight.resources.clock import system_clock
from tests.support.fleets.documents import make_document, make_uuid
from tests.unit.cli.conftest import Run

DAY = 86_400_000_000


@pytest.fixture
def fleet(empty_place: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Fleet]:
    """A cell of which the index has two instances, deleted 10 and 40 days ago."""
    monkeypatch.setattr("fleetlight.cli.index.purge.removal_delay_s", lambda _: 0.0)
    folder = DataFolder(empty_place / "fleetlight-data")
    folder.create()
    fleet = set_up_fleet(folder)
    [embedded] = set_up_cells(folder, fleet, 1)
    embedded.engine.dispose()
    with closing(open_writer(load_settings(None, None).index)) as writer:
        writer.prepare()
        now, cell_uuid = system_clock(), embedded.cell.uuid
        writer.write(
            [make_document(days, cell_uuid=cell_uuid, deleted=True, deleted_at=now - days * DAY) for days in (10, 40)]
        )
    yield fleet
    fleet.close()


def indexed() -> set[str]:
    with closing(open_writer(load_settings(None, None).index)) as writer:
        writer.prepare()
        return set(writer.read([make_uuid(10), make_uuid(40)]))


def test_what_was_deleted_longer_ago_than_the_retention_is_removed(run: Run, fleet: Fleet) -> None:
    result = run("index", "purge")
    assert (result.exit_code, result.stdout) == (0, "cell1: 1 deleted instances removed from the index\n")
    assert indexed() == {make_uuid(10)}


def test_retention_is_a_setting(run: Run, fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    for retention, removed in (("999999d", 0), ("60d", 0), ("36h", 2)):
        monkeypatch.setenv("FLEETLIGHT_INDEX_DELETED_RETENTION", retention)
        assert f"cell1: {removed} deleted" in run("index", "purge").stdout
    assert indexed() == set()


def test_nothing_is_waited_for_when_nothing_is_to_be_removed(
    run: Run, fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "waiting 0 s" in run("index", "purge").stderr
    monkeypatch.setattr("fleetlight.cli.index.purge.removal_delay_s", lambda _: pytest.fail("why wait?"))
    result = run("index", "purge")
    assert (result.exit_code, result.stdout) == (0, "cell1: 0 deleted instances removed from the index\n")
    assert indexed() == {make_uuid(10)}


@pytest.mark.parametrize("wrong", ["30", "30 days", "0d", "-1d", "1w", "", "9999999d"])
def test_retention_that_makes_no_sense_is_refused(
    run: Run, fleet: Fleet, monkeypatch: pytest.MonkeyPatch, wrong: str
) -> None:
    monkeypatch.setenv("FLEETLIGHT_INDEX_DELETED_RETENTION", wrong)
    result = run("index", "purge")
    assert result.exit_code == 2
    assert "index.deleted_retention (FLEETLIGHT_INDEX_DELETED_RETENTION)" in result.stderr
    assert 'as in "30d"' in result.stderr


def test_cell_that_somebody_works_on_is_left_alone(run: Run, fleet: Fleet) -> None:
    cell = fleet.cell("cell1")
    with closing(CellLeases(fleet.open_leases("index verify"))) as leases, leases.bulk(cell):
        result = run("index", "purge")
    assert result.exit_code == 1
    assert "index verify" in result.stderr
    assert len(indexed()) == 2
