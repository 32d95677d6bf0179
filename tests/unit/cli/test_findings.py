"""`fleetlight findings`."""

import json
from pathlib import Path
from typing import NoReturn

import pytest

from fleetlight.cells.database.engines import create_database_engine
from fleetlight.cells.errors import CellUnreachableError
from fleetlight.cells.fleet.audit_rounds import AuditRound
from fleetlight.cells.fleet.fleet import Fleet
from fleetlight.cells.kinds.native.adapter import NativeAdapter
from fleetlight.resources.clock import system_clock
from tests.unit.cli.conftest import Run
from tests.unit.cli.test_balance import crowded_cell

__all__ = ["crowded_cell"]
pytestmark = pytest.mark.usefixtures("crowded_cell")


@pytest.fixture
def audited(empty_place: Path, crowded_cell: None) -> None:
    """Two days ago the audit has found two documents that differ, and repaired one."""
    fleet = Fleet(create_database_engine(f"sqlite:///{empty_place}/fleet.db"))
    at = system_clock() - 50 * 3600 * 1_000_000
    fleet.audit_rounds.record(fleet.cell("one").uuid, AuditRound(at, 4, 2, 1))
    fleet.close()


def test_fleet_in_which_nothing_is_wrong_has_no_finding(run: Run) -> None:
    shown = run("findings")
    assert (shown.exit_code, shown.stdout) == (0, ""), shown.stderr
    document = json.loads(run("findings", "--output", "json").stdout)
    assert (document["findings"], document["complete"]) == ([], True)


@pytest.mark.usefixtures("audited")
def test_findings_are_shown_with_their_age_and_what_to_do(run: Run) -> None:
    shown = run("findings", "--cell", "one")
    assert shown.exit_code == 1
    head, _, line = shown.stdout.splitlines()
    assert head.split() == ["KIND", "CELL", "SUBJECT", "AGE", "EVIDENCE", "WHAT", "TO", "DO"]
    assert line.split()[:6] == ["document-repaired", "one", "one", "2", "d", "2"]
    assert line.endswith("`fleetlight index verify --cell one --repair`")
    assert run("findings", "--kind", "wrong-host").exit_code == 0
    document = json.loads(run("findings", "--longer-than", "60", "--output", "json").stdout)
    assert document["counts"]["document-repaired"] == 1


def test_cell_that_does_not_answer_is_named(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_adapter: NativeAdapter, _limit: int) -> NoReturn:
        raise CellUnreachableError("one", "it is away")

    monkeypatch.setattr(NativeAdapter, "findings", fails)
    shown = run("findings")
    assert (shown.exit_code, shown.stdout) == (1, "")
    assert "Not complete: cell one: cell: " in shown.stderr
    assert "it is away" in shown.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [(("--kind", "wrong"), "wrong-host"), (("--longer-than", "0"), "greater than"), (("--cell", "x"), "x")],
)
def test_wrong_arguments_are_named(run: Run, arguments: tuple[str, ...], said: str) -> None:
    shown = run("findings", *arguments)
    assert (shown.exit_code, said in shown.stderr) == (2, True), shown.stderr
