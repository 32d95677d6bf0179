"""The screen of `fleetlight top`, made with Textual: totals, cells, and changes as they arrive."""

import asyncio
from collections.abc import Sequence
from typing import ClassVar, Protocol

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import BindingType
from textual.widgets import DataTable, Footer, RichLog, Static

from fleetlight.cells.errors import CellError
from fleetlight.cli.board import CellLine, summary_of_board
from fleetlight.cli.errors import CommandError
from fleetlight.cli.output import one_line
from fleetlight.cli.watched_fleet import ShownChange
from fleetlight.listing.cell_board import CellHealth

_COLUMNS = ("CELL", "HEALTH", "ROUTE", "LAG", "AGE S", "INSTANCES", "JOBS", "FAILED")
_INTERVAL_S = 2.0
_MOST_CHANGES = 500
_WORST_FIRST = list(CellHealth)[1:]  # without disabled cells, which are as an operator wants them
_COLOURS = {CellHealth.OK: "green", CellHealth.DISABLED: "dim", CellHealth.BEHIND: "yellow"}


class Watched(Protocol):
    """What fleetlight.cli.watched_fleet.WatchedFleet offers."""

    async def board(self) -> Sequence[CellLine]: ...

    async def changes(self) -> Sequence[ShownChange]: ...


class LiveView(App[None]):
    """Ends with q or Ctrl-C. interval_s: how often the cells are read."""

    CSS = """
    #totals { height: auto; }
    #cells { height: 1fr; }
    #reason { height: 2; color: $text-muted; }
    #changes { height: 7; border-top: solid $primary; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        ("q", "quit", "Quit"),
        ("ctrl+c", "quit", "Quit"),
        ("tab", "app.focus_next", "Cells or changes"),
    ]
    ENABLE_COMMAND_PALETTE = False

    def __init__(self, watched: Watched, interval_s: float = _INTERVAL_S) -> None:
        super().__init__()
        self._watched = watched
        self._interval_s = interval_s
        self._cells: Sequence[CellLine] = ()
        # Kept as attributes, since the workers use them for a moment after the screen is gone.
        self._totals = Static("Looking at the cells …", id="totals")
        self._table = DataTable[Text](id="cells", cursor_type="row")
        self._reason = Static(id="reason")
        self._changes = RichLog(id="changes", max_lines=_MOST_CHANGES)

    def compose(self) -> ComposeResult:
        yield from (self._totals, self._table, self._reason, self._changes, Footer())

    def on_mount(self) -> None:
        self._table.add_columns(*_COLUMNS)
        self.run_worker(self._follow_cells())
        self.run_worker(self._follow_changes())

    def on_data_table_row_highlighted(self, event: DataTable.RowHighlighted) -> None:
        self._show_reason(event.cursor_row)

    async def _follow_cells(self) -> None:
        while True:
            try:
                self._show_cells(await self._watched.board())
            except (CellError, CommandError) as error:
                self._totals.update(Text(one_line(f"Not as of now: {error}"), "bold red"))
            await asyncio.sleep(self._interval_s)

    async def _follow_changes(self) -> None:
        while True:
            try:
                for change in await self._watched.changes():
                    line = f"{change.at} {change.cell} {change.kind:<6} {change.name} {change.status}"
                    self._changes.write(Text(one_line(line)))
            except (CellError, CommandError) as error:
                self._changes.write(Text(one_line(f"Changes are missing: {error}"), "bold red"))
                await asyncio.sleep(self._interval_s)

    def _show_cells(self, board: Sequence[CellLine]) -> None:
        """Refresh the table; the cursor stays at the same row number, as in `top`."""
        self._cells = sorted(board, key=_rank)
        lines = [f"{name:<12}{text}" for name, text in summary_of_board(board)]
        self._totals.update(Text("\n".join(lines)))
        table, row, scrolled = self._table, self._table.cursor_row, self._table.scroll_y
        table.clear()
        for cell in self._cells:
            table.add_row(*_values(cell))
        table.move_cursor(row=row)
        table.scroll_to(y=scrolled, animate=False)
        self._show_reason(table.cursor_row)

    def _show_reason(self, row: int) -> None:
        cell = self._cells[row] if row < len(self._cells) else None
        said = "" if cell is None or cell.reason is None else one_line(f"{cell.name}: {cell.reason}")
        self._reason.update(Text(said))


def _rank(cell: CellLine) -> int:
    return _WORST_FIRST.index(cell.health) if cell.health in _WORST_FIRST else len(_WORST_FIRST)


def _values(cell: CellLine) -> Sequence[Text]:
    jobs = None if cell.jobs_waiting is None else cell.jobs_waiting + (cell.jobs_running or 0)
    numbers = (cell.lag, None if cell.age_s is None else f"{cell.age_s:.1f}", cell.instances, jobs, cell.dead_letters)
    return [
        Text(one_line(cell.name)),
        Text(cell.health, _COLOURS.get(cell.health, "bold red")),
        Text(cell.route),
        *(Text("-" if number is None else str(number), justify="right") for number in numbers),
    ]
