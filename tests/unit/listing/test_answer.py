"""For which cells the index answers, and what is said of what each cell contributed."""

from collections.abc import Collection
from dataclasses import dataclass

import pytest

from fleetlight.cells.capabilities import CellKind
from fleetlight.cells.errors import CellUnreachableError
from fleetlight.cells.model import Cell
from fleetlight.indexer.backends.base import CellProgress
from fleetlight.listing.answer import (
    CellAnswer,
    Consistency,
    Freshness,
    IndexedCells,
    Route,
    answer_of,
    choose_indexed,
)
from fleetlight.listing.sources import CellFailure
from fleetlight.query.filters import EVERYTHING, Eq, Filter

NOW = 1_790_000_000_000_000
HORIZON = NOW - 1_000_000_000
FRESH = Freshness(NOW, 5)
CELL, OLD, STALE, UNKNOWN = (Cell(name, name, CellKind.NATIVE, "", "") for name in ("c0", "c1", "c2", "c3"))
LIVE_ONES = Eq("deleted", False)


def progress(cell: Cell, behind_s: float = 1, horizon: int = 0) -> CellProgress:
    return CellProgress(cell.uuid, 7, NOW - round(behind_s * 1e6), is_complete=True, horizon=horizon)


PROGRESS = {"c0": progress(CELL), "c1": progress(OLD, horizon=HORIZON), "c2": progress(STALE, 6)}


@pytest.mark.parametrize(
    ("wanted", "consistency", "ask_live", "indexed", "too_short"),
    [
        (LIVE_ONES, Consistency.BOUNDED, (), {"c0", "c1"}, []),
        (LIVE_ONES, Consistency.ANY, (), {"c0", "c1", "c2"}, []),
        (LIVE_ONES, Consistency.ANY, ("c0", "c3"), {"c1", "c2"}, []),
        (LIVE_ONES, Consistency.STRONG, (), set(), []),
        (EVERYTHING, Consistency.BOUNDED, (), {"c0"}, [HORIZON]),
        (EVERYTHING, Consistency.ANY, (), {"c0", "c2"}, [HORIZON]),
    ],
)
def test_index_answers_for_cells_that_it_follows_well_enough_for_the_question(
    wanted: Filter, consistency: Consistency, ask_live: Collection[str], indexed: set[str], too_short: list[int]
) -> None:
    cells = (CELL, OLD, STALE, UNKNOWN)
    chosen = choose_indexed(wanted, cells, PROGRESS, FRESH, consistency=consistency, ask_live=ask_live)
    assert chosen == IndexedCells(indexed, too_short, set())


def test_cells_of_a_nova_are_asked_where_the_servers_that_wait_for_one_are() -> None:
    """A server may have left them just now, and the index of its cell lack it yet."""
    waiting, nova, other = (
        Cell(name, name, CellKind.NOVA_DB, url, "", api_database_url=api)
        for name, url, api in (("c2", "sqlite:///api", "sqlite:///api"), ("c0", "", "sqlite:///api"), ("c1", "", "x"))
    )
    chosen = choose_indexed(
        LIVE_ONES, (waiting, nova, other), PROGRESS, FRESH, consistency=Consistency.BOUNDED, ask_live=()
    )
    assert chosen == IndexedCells({"c1"}, [], {"c0"})
    fresh = {**PROGRESS, "c2": progress(waiting)}
    chosen = choose_indexed(
        LIVE_ONES, (waiting, nova, other), fresh, FRESH, consistency=Consistency.BOUNDED, ask_live=()
    )
    assert chosen == IndexedCells({"c0", "c1", "c2"}, [], set())


@dataclass
class Live:
    failure: CellFailure | None = None
    has_substitute: bool = False
    damaged: int = 0
    left_out: int = 0
    lacks: str | None = None


AWAY = CellUnreachableError("c0", "away")
SAYS = str(AWAY)


@pytest.mark.parametrize(
    ("live", "followed", "answer"),
    [
        (None, progress(CELL), CellAnswer(CELL, Route.INDEX, True, 7, 1.0)),
        (None, progress(CELL, 6), CellAnswer(CELL, Route.INDEX, False, 7, 6.0)),
        (None, None, CellAnswer(CELL, Route.SKIPPED, False)),
        (Live(), progress(CELL), CellAnswer(CELL, Route.LIVE, True)),
        (Live(damaged=2, left_out=1), None, CellAnswer(CELL, Route.LIVE, False, left_out=1)),
        (Live(lacks="more"), None, CellAnswer(CELL, Route.LIVE, False, failure="more")),
        (Live(AWAY), None, CellAnswer(CELL, Route.SKIPPED, False, failure=SAYS)),
        (Live(AWAY), progress(CELL), CellAnswer(CELL, Route.SKIPPED, False, failure=SAYS)),
        (Live(AWAY, True), None, CellAnswer(CELL, Route.SKIPPED, False, failure=SAYS)),
        (Live(AWAY, True), progress(CELL, 3), CellAnswer(CELL, Route.INDEX_WHILE_DOWN, False, 7, 3.0, SAYS)),
    ],
)
def test_only_a_fresh_index_and_a_cell_without_damage_contribute_everything(
    live: Live | None, followed: CellProgress | None, answer: CellAnswer
) -> None:
    assert answer_of(CELL, live, followed, FRESH, {"host"}) == answer
    assert answer.is_down == (answer.failure == SAYS)


@pytest.mark.parametrize(
    ("cell", "untold"),
    [
        (Cell("c0", "c0", CellKind.NOVA_API, "", ""), "flavor_id"),
        (Cell("c0", "c0", CellKind.NOVA_DB, "", ""), "pinned_availability_zone"),
        (Cell("c0", "c0", CellKind.NOVA_DB, "", "", api_database_url="sqlite://"), None),
        (CELL, None),
    ],
)
@pytest.mark.parametrize("live", [Live(), None])
def test_by_what_a_cell_does_not_tell_no_route_is_complete(cell: Cell, live: Live | None, untold: str | None) -> None:
    fields = {"display_name", "flavor_id", "pinned_availability_zone"}
    answer = answer_of(cell, live, progress(cell), FRESH, fields)
    assert (answer.is_complete, answer.is_down) == (untold is None, False)
    assert untold is None or f"do not tell the field '{untold}'" in str(answer.failure)
    assert answer_of(cell, live, progress(cell), FRESH, {"display_name"}).is_complete
