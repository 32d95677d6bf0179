"""The board of cells for commands to show: the answer to `GET /fleetlight/cells` within this process."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from fleetlight.cli.output import counted
from fleetlight.listing.answer import Route
from fleetlight.listing.cell_board import CellHealth

if TYPE_CHECKING:
    from fleetlight.cli.in_process import ApiInProcess


@dataclass(frozen=True, slots=True)
class CellLine:
    """One cell, with the fields of docs/reference/operations-api.md. None means unknown."""

    name: str
    health: CellHealth
    reason: str | None
    route: Route
    lag: int | None
    age_s: float | None
    log_problem: str | None
    instances: int | None
    nodes: int | None
    dead_letters: int | None
    jobs_waiting: int | None
    jobs_running: int | None


@dataclass(frozen=True, slots=True)
class _Answer:
    cells: Sequence[CellLine]


async def read_board(api: "ApiInProcess") -> Sequence[CellLine]:
    """All cells, by name. Raises CommandError, CellError."""
    from fleetlight.cli.in_process import document_of  # noqa: PLC0415 -- other commands would start a quarter later

    return msgspec.convert(document_of(await api.call("GET", "/fleetlight/cells")), _Answer).cells


def total(cells: Sequence[CellLine], number: Callable[[CellLine], int | None]) -> int | None:
    """Sum `number` over the cells for which it is known. Returns None if it is known for no cell."""
    known = [each for each in map(number, cells) if each is not None]
    return sum(known) if known else None


def summary_of_board(board: Sequence[CellLine]) -> Sequence[tuple[str, str]]:
    """Summarize the state of the fleet in a few lines, each a title and a text."""
    waiting, running = total(board, lambda cell: cell.jobs_waiting), total(board, lambda cell: cell.jobs_running)
    return [
        ("cells", _cells(board)),
        ("instances", f"{_number(total(board, lambda cell: cell.instances))} in the index"),
        ("nodes", f"{_number(total(board, lambda cell: cell.nodes))} of native cells"),
        ("lists", _lists(board)),
        ("jobs", f"{_number(waiting)} waiting, {_number(running)} running"),
        ("messages", f"{_number(total(board, lambda cell: cell.dead_letters))} could not be indexed"),
    ]


def _cells(board: Sequence[CellLine]) -> str:
    healths = Counter(cell.health for cell in board)
    others = [f"{healths[health]} {health}" for health in CellHealth if health is not CellHealth.OK and healths[health]]
    well = f"{healths[CellHealth.OK]} of {len(board)} well"
    return f"{well}: {', '.join(others)}" if others else well


def _lists(board: Sequence[CellLine]) -> str:
    routes = Counter(cell.route for cell in board if cell.health is not CellHealth.DISABLED)
    age = oldest_age_s(board)
    said = [
        f"{counted(routes[Route.INDEX], 'cell')} from the index"
        + ("" if age is None else f", at most {age:.1f} s old"),
        *([f"{routes[Route.LIVE]} asked itself"] if routes[Route.LIVE] else []),
        *([f"{routes[Route.SKIPPED]} left out"] if routes[Route.SKIPPED] else []),
    ]
    return "; ".join(said)


def oldest_age_s(board: Sequence[CellLine]) -> float | None:
    """Age of the index, in seconds, for the cell furthest behind among those that lists take from the index."""
    return max((cell.age_s for cell in board if cell.route is Route.INDEX and cell.age_s is not None), default=None)


def _number(number: int | None) -> str:
    return "not known how many" if number is None else f"{number:,}"
