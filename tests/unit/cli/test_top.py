"""`fleetlight top`: what its screen shows, what it shows when something fails, and that it ends."""

import asyncio
import os
import pty
import select
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace

import pytest
from rich.text import Text
from textual.pilot import Pilot
from textual.widgets import DataTable, RichLog, Static

from fleetlight.cells.kinds.native.relay import Relay
from fleetlight.cells.kinds.opening import open_changelog_adapter
from fleetlight.cells.model import Cell
from fleetlight.cells.settings import RelaySettings
from fleetlight.cli.board import CellLine
from fleetlight.cli.errors import CommandError
from fleetlight.cli.fleet import open_fleet
from fleetlight.cli.in_process import opened_api
from fleetlight.cli.live_view import LiveView
from fleetlight.cli.settings import load_settings
from fleetlight.cli.watched_fleet import ShownChange, WatchedFleet
from fleetlight.listing.cell_board import CellHealth
from tests.contract.compute_fleet import Nobody
from tests.support.fleets.instance_operations import InstanceOperations
from tests.unit.cli.conftest import Run
from tests.unit.cli.test_doctor import cell
from tests.unit.cli.test_list_items import FLAVOR
from tests.unit.cli.test_status import LINE

__all__ = ["cell"]

DEADLINE_S = 60.0


class PlayedFleet:
    """Shows `cells`, or fails with `failure`; gives each change once."""

    def __init__(self, *cells: CellLine) -> None:
        self.cells: Sequence[CellLine] = cells
        self.failure: CommandError | None = None
        self.new: asyncio.Queue[ShownChange] = asyncio.Queue()

    async def board(self) -> Sequence[CellLine]:
        if self.failure is not None:
            raise self.failure
        return self.cells

    async def changes(self) -> Sequence[ShownChange]:
        return [await self.new.get()]


def on_screen(fleet: PlayedFleet, look: Callable[[LiveView, Pilot[None]], Awaitable[None]]) -> LiveView:
    """Shows the fleet on a terminal of 80 columns and 24 lines."""
    view = LiveView(fleet, interval_s=0.01)

    async def run() -> None:
        async with view.run_test(size=(80, 24)) as pilot:
            await look(view, pilot)

    asyncio.run(run())
    return view


async def until(pilot: Pilot[None], is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not is_so():
        assert time.monotonic() < deadline
        await pilot.pause(0.01)


def rows(view: LiveView) -> list[list[str]]:
    table: DataTable[Text] = view.query_one(DataTable)
    return [[value.plain for value in table.get_row_at(number)] for number in range(table.row_count)]


def said(view: LiveView, name: str) -> str:
    return str(view.query_one(f"#{name}", Static).render())


def test_cells_that_are_not_well_come_first_with_their_reason() -> None:
    down = replace(LINE, name="cell2", health=CellHealth.DOWN, reason="it does not answer", lag=None, age_s=None)

    async def look(view: LiveView, pilot: Pilot[None]) -> None:
        await until(pilot, lambda: len(rows(view)) == 2)
        assert rows(view) == [
            ["cell2", "down", "index", "-", "-", "1000", "3", "0"],
            ["cell1", "ok", "index", "0", "0.5", "1000", "3", "0"],
        ]
        assert "cells       1 of 2 well: 1 down" in said(view, "totals")
        await until(pilot, lambda: said(view, "reason") == "cell2: it does not answer")
        await pilot.press("down")
        await until(pilot, lambda: said(view, "reason") == "")

    on_screen(PlayedFleet(LINE, down), look)


def test_changes_are_shown_as_they_come() -> None:
    fleet = PlayedFleet(LINE)

    async def look(view: LiveView, pilot: Pilot[None]) -> None:
        log = view.query_one(RichLog)
        fleet.new.put_nowait(ShownChange("01:15:40", "cell1", "enter", "web1\x1b[31m", "running"))
        await until(pilot, lambda: len(log.lines) == 1)
        assert log.lines[0].text.rstrip() == r"01:15:40 cell1 enter  web1\u001b[31m running"

    on_screen(fleet, look)


def test_what_fails_is_said_and_tried_again() -> None:
    fleet = PlayedFleet(LINE)
    fleet.failure = CommandError("the fleet database cannot be used")

    async def look(view: LiveView, pilot: Pilot[None]) -> None:
        await until(pilot, lambda: said(view, "totals") == "Not as of now: the fleet database cannot be used")
        fleet.failure = None
        await until(pilot, lambda: len(rows(view)) == 1)

    on_screen(fleet, look)


@pytest.mark.parametrize("key", ["q", "ctrl+c"])
def test_it_ends_with_a_key(key: str) -> None:
    async def look(view: LiveView, pilot: Pilot[None]) -> None:
        await pilot.press(key)
        await until(pilot, lambda: not view.is_running)

    assert on_screen(PlayedFleet(LINE), look).return_code == 0


def test_cursor_stays_while_the_cells_are_looked_at_again() -> None:
    async def look(view: LiveView, pilot: Pilot[None]) -> None:
        await until(pilot, lambda: len(rows(view)) == 1000)
        await pilot.press("ctrl+end", "up")
        table: DataTable[Text] = view.query_one(DataTable)
        assert table.cursor_row == 998
        fleet.cells = [replace(each, instances=7) for each in fleet.cells]
        await until(pilot, lambda: rows(view)[0][5] == "7")
        assert table.cursor_row == 998

    fleet = PlayedFleet(*(replace(LINE, name=f"cell{number}") for number in range(1000)))
    on_screen(fleet, look)


def test_changes_are_those_since_it_began(cell: Cell) -> None:
    settings = load_settings(None, None)

    async def follow() -> Sequence[ShownChange]:
        with open_fleet(settings.fleet) as fleet, closing(open_changelog_adapter(cell)) as adapter:
            async with opened_api(settings, fleet) as api:
                watched = WatchedFleet(api)
                assert await watched.changes() == []
                operations = InstanceOperations(adapter.engine, fleet, cell)
                operations.create(
                    {"display_name": "web1", "project_id": "a", "user_id": "ada", "flavor": FLAVOR, "image_ref": ""}
                )
                with closing(Relay(adapter.engine, cell, Nobody(), RelaySettings())) as relay:
                    relay.run_once()
                while not (found := await watched.changes()):
                    pass
                return found

    [change] = asyncio.run(asyncio.wait_for(follow(), DEADLINE_S))
    assert (change.cell, change.kind, change.name) == ("cell1", "enter", "web1")


def test_without_a_terminal_it_is_refused(run: Run, cell: Cell) -> None:
    refused = run("top")
    assert (refused.exit_code, "`fleetlight status`" in refused.stderr) == (2, True)


@pytest.fixture
def terminal() -> Iterator[tuple[int, int]]:
    """The ends of a terminal of 80 columns and 24 lines: that of a person, and that of the program."""
    person, program = pty.openpty()
    subprocess.run(["stty", "rows", "24", "cols", "80"], stdin=program, check=True)
    yield person, program
    os.close(person)
    os.close(program)


@pytest.mark.parametrize("key", [b"q", b"\x03"], ids=["q", "ctrl-c"])
def test_terminal_shows_the_cells_and_ends_cleanly(cell: Cell, terminal: tuple[int, int], key: bytes) -> None:
    person, program = terminal
    command = [sys.executable, "-m", "fleetlight.cli", "top"]
    environment = os.environ | {"TERM": "xterm-256color"}
    with subprocess.Popen(command, stdin=program, stdout=program, stderr=program, env=environment) as process:
        wait_for_output(person, b"cell1")
        os.write(person, key)
        deadline = time.monotonic() + DEADLINE_S
        while process.poll() is None and time.monotonic() < deadline:
            read_some(person)
        assert process.poll() == 0


def wait_for_output(person: int, text: bytes) -> None:
    seen, deadline = b"", time.monotonic() + DEADLINE_S
    while text not in seen:
        assert time.monotonic() < deadline, seen
        seen += read_some(person)


def read_some(person: int) -> bytes:
    readable, _, _ = select.select([person], [], [], 0.1)
    return os.read(person, 65536) if readable else b""
