"""`fleetlight accounts cell-keys`: the keys that relays sign messages with."""

from contextlib import closing
from pathlib import Path

import pytest

from fleetlight.cells.database.engines import create_database_engine
from fleetlight.cells.fleet.fleet import Fleet
from tests.unit.cli.conftest import Run, fleet_of_commands


@pytest.fixture(autouse=True)
def fleet(empty_place: Path) -> str:
    return fleet_of_commands(empty_place)


def counts(url: str) -> dict[str, int]:
    with closing(Fleet(create_database_engine(url))) as opened:
        keys = opened.cell_keys.of_cells()
        return {cell.name: len(keys[cell.uuid]) for cell in opened.cells()}


def test_each_native_cell_gets_a_new_key_and_no_secret_is_shown(fleet: str, run: Run) -> None:
    result = run("accounts", "cell-keys")
    assert result.exit_code == 0, result.stderr
    one, two = result.stdout.splitlines()
    assert one.startswith("one: key ")
    assert one.endswith("; keys before it are accepted for 24 hours")
    assert two.startswith("two: key ")
    assert counts(fleet) == {"one": 2, "two": 2}
    with closing(Fleet(create_database_engine(fleet))) as opened:
        secrets = [each.key.secret.hex() for keys in opened.cell_keys.of_cells().values() for each in keys]
    assert not [secret for secret in secrets if secret in result.stdout]


def test_one_cell_alone_gets_one_and_keys_that_count_no_more_are_forgotten(fleet: str, run: Run) -> None:
    for _ in range(3):
        assert run("accounts", "cell-keys", "--cell", "two", "--accept-old-for-h", "0").exit_code == 0
    assert counts(fleet) == {"one": 1, "two": 2}


def test_unknown_cell_is_said_to_be_one(run: Run) -> None:
    result = run("accounts", "cell-keys", "--cell", "three")
    assert result.exit_code
    assert "three" in result.stderr
