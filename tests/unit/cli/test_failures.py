"""`fleetlight index failures`: what it shows, what it solves and what it drops."""

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from fleetlight.bus.bus import Message
from fleetlight.bus.topology import RESOURCE_HEADER
from fleetlight.cells.fleet.fleet import Fleet
from fleetlight.cells.kinds.opening import open_changelog_adapter
from fleetlight.cells.model import Cell
from fleetlight.cli.data_folder import DataFolder
from fleetlight.cli.settings import load_settings
from fleetlight.indexer.backends.opening import open_writer
from fleetlight.indexer.errors import DeadLetterReason
from fleetlight.indexer.writing.dead_letters import DeadLetter, to_failure
from fleetlight.manager.commands.embedded import set_up_cells, set_up_fleet
from tests.support.fleets.instance_operations import InstanceOperations
from tests.support.memory.memory_cell import NOW, ROUTING_KEY
from tests.unit.cli.conftest import Run


@pytest.fixture
def fleet(empty_place: Path) -> Iterator[Fleet]:
    """Two cells with an instance each, of which the index knows nothing."""
    folder = DataFolder(empty_place / "fleetlight-data")
    folder.create()
    fleet = set_up_fleet(folder)
    for embedded in set_up_cells(folder, fleet, 2):
        InstanceOperations(embedded.engine, fleet, embedded.cell).create({})
        embedded.engine.dispose()
    yield fleet
    fleet.close()


def instance_of(cell: Cell) -> str:
    with closing(open_changelog_adapter(cell)) as adapter:
        [uuid] = adapter.revisions([""])
        return uuid


def fail(fleet: Fleet, cell_name: str, body: bytes, **headers: int | str) -> str:
    letter = DeadLetter(Message(body, ROUTING_KEY, dict(headers)), DeadLetterReason.MALFORMED, "message: is not JSON")
    failure = to_failure(fleet.cell(cell_name).uuid, letter, NOW)
    fleet.failures.add([failure])
    return failure.id


def listed(run: Run, *arguments: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(run("index", "failures", "list", "--output", "json", *arguments).stdout)
    return found


def indexed(uuid: str) -> bool:
    with closing(open_writer(load_settings(None, None).index)) as writer:
        writer.prepare()
        return uuid in writer.read([uuid])


def test_list_shows_every_failure_with_an_id_to_paste(run: Run, fleet: Fleet) -> None:
    ids = {fail(fleet, "cell1", b"{"), fail(fleet, "cell2", b"{")}
    result = run("index", "failures", "list")
    assert result.exit_code == 0
    assert all(each in result.stdout for each in ids)
    assert "message: is not JSON" in result.stdout
    assert {each["id"] for each in listed(run)} == ids
    [of_one_cell] = listed(run, "--cell", "cell2")
    assert of_one_cell["cell"] == "cell2"
    assert of_one_cell["first_at"].endswith("+00:00")


def test_no_failures_is_said_beside_the_result(run: Run, fleet: Fleet) -> None:
    result = run("index", "failures", "list")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "there are no failures" in result.stderr
    assert listed(run) == []


def test_show_gives_the_whole_message(run: Run, fleet: Fleet) -> None:
    failure = fail(fleet, "cell1", b'{"a":\xff', **{RESOURCE_HEADER: "7a1d5a0a-90b1-4f36-8f6e-000000000001"})
    shown = json.loads(run("index", "failures", "show", failure, "--output", "json").stdout)
    assert shown["body"] == '{"a":\\xff'
    assert shown["headers"] == {RESOURCE_HEADER: "7a1d5a0a-90b1-4f36-8f6e-000000000001"}
    assert shown["cell"] == "cell1"
    assert 'body: {"a":\\xff' in run("index", "failures", "show", failure).stdout


def test_retry_indexes_what_the_cell_has_and_takes_the_failure_off_the_list(run: Run, fleet: Fleet) -> None:
    uuid = instance_of(fleet.cell("cell1"))
    failure = fail(fleet, "cell1", b"{", **{RESOURCE_HEADER: uuid})
    result = run("index", "failures", "retry", failure)
    assert result.exit_code == 0
    assert f"{failure}: solved: instance {uuid} is in the index as its cell has it" in result.stdout
    assert indexed(uuid)
    assert listed(run) == []


def test_retry_of_what_cannot_be_solved_says_why_and_has_exit_code_1(run: Run, fleet: Fleet) -> None:
    hopeless = fail(fleet, "cell1", b"{")
    solvable = fail(fleet, "cell2", b"{", **{RESOURCE_HEADER: instance_of(fleet.cell("cell2"))})
    result = run("index", "failures", "retry", "--all")
    assert result.exit_code == 1
    assert f"{hopeless}: not solved: message: is not JSON" in result.stdout
    assert f"{solvable}: solved" in result.stdout
    assert "1 solved, 1 not solved" in result.stderr
    assert [(each["id"], each["times"]) for each in listed(run)] == [(hopeless, 2)]


def test_retry_of_one_cell_leaves_the_others(run: Run, fleet: Fleet) -> None:
    for cell in ("cell1", "cell2"):
        fail(fleet, cell, b"{", **{RESOURCE_HEADER: instance_of(fleet.cell(cell))})
    assert run("index", "failures", "retry", "--all", "--cell", "cell1").exit_code == 0
    assert [each["cell"] for each in listed(run)] == ["cell2"]


def test_failures_of_a_cell_that_cannot_be_reached_stay(run: Run, fleet: Fleet, empty_place: Path) -> None:
    failure = fail(fleet, "cell1", b"{", **{RESOURCE_HEADER: instance_of(fleet.cell("cell1"))})
    database = empty_place / "fleetlight-data" / "cells" / "cell1.db"
    database.rename(database.with_suffix(".away"))
    result = run("index", "failures", "retry", failure)
    assert result.exit_code == 1
    assert "cell 'cell1' cannot be reached" in result.stdout
    assert [(each["id"], each["times"]) for each in listed(run)] == [(failure, 1)]


def test_drop_forgets_the_failures_that_are_named(run: Run, fleet: Fleet) -> None:
    dropped, kept = fail(fleet, "cell1", b"{"), fail(fleet, "cell1", b"[")
    assert run("index", "failures", "drop", dropped).stdout == "1 dropped\n"
    assert [each["id"] for each in listed(run)] == [kept]


def test_all_are_dropped_only_after_a_question(run: Run, fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    fail(fleet, "cell1", b"{")
    refused = run("index", "failures", "drop", "--all")
    assert refused.exit_code == 2
    assert "--yes" in refused.stderr
    assert len(listed(run)) == 1
    assert run("index", "failures", "drop", "--all", "--yes").stdout == "1 dropped\n"
    assert listed(run) == []


@pytest.mark.parametrize("command", ["show", "retry", "drop"])
def test_unknown_id_is_named(run: Run, fleet: Fleet, command: str) -> None:
    result = run("index", "failures", command, "no-such-failure")
    assert result.exit_code == 2
    assert "there is no failure no-such-failure" in result.stderr


@pytest.mark.parametrize("command", ["retry", "drop"])
@pytest.mark.parametrize("arguments", [[], ["an-id", "--all"], ["an-id", "--cell", "cell1"]])
def test_what_is_meant_has_to_be_clear(run: Run, fleet: Fleet, command: str, arguments: list[str]) -> None:
    result = run("index", "failures", command, *arguments)
    assert result.exit_code == 2
    assert "--all" in result.stderr


def test_status_counts_failures_until_they_are_solved(run: Run, fleet: Fleet) -> None:
    assert run("index", "sync", "--type", "OS::Nova::Server").exit_code == 0
    failure = fail(fleet, "cell1", b"{")
    status = json.loads(run("index", "status", "--output", "json").stdout)
    assert [cell["dead_letters"] for cell in status] == [1, 0]
    run("index", "failures", "drop", failure)
    status = json.loads(run("index", "status", "--output", "json").stdout)
    assert [cell["dead_letters"] for cell in status] == [0, 0]
