"""What an answer says of where it came from fits into the headers that proxies take, however many cells there are."""

from uuid import UUID

import pytest

from fleetlight.api.caller import Caller
from fleetlight.api.shared.proof import proof_headers
from fleetlight.cells.capabilities import CellKind
from fleetlight.cells.model import Cell
from fleetlight.listing.answer import CellAnswer, Page, Route

ADMIN = Caller("ada", "demo", frozenset({"admin"}))
MEMBER = Caller("ben", "demo", frozenset({"member"}))


def answer(number: int, route: Route = Route.INDEX) -> CellAnswer:
    cell = Cell(str(UUID(int=number)), f"cell{number}", CellKind.NATIVE, "sqlite:///x", "memory://")
    is_indexed = route is Route.INDEX
    return CellAnswer(
        cell, route, True, 1_000_000 + number if is_indexed else None, number / 1000 if is_indexed else None
    )


def route_of(answers: list[CellAnswer], caller: Caller = ADMIN) -> str:
    return proof_headers(Page(b"", 0, None, answers), caller)["Fleetlight-Route"]


def test_each_cell_is_told_of_while_they_are_few() -> None:
    assert route_of([answer(1), answer(2, Route.LIVE)]) == "cell1=index;watermark=1000001;age=0.0, cell2=live"


@pytest.mark.parametrize("cells", [200, 1000, 10_000])
def test_cells_that_are_many_are_summed_up_by_route(cells: int) -> None:
    answers = [answer(number) for number in range(cells - 2)] + [
        answer(cells, Route.SKIPPED),
        answer(cells + 1, Route.LIVE),
    ]
    assert route_of(answers) == f"*index={cells - 2};age={(cells - 3) / 1000:.1f}, *live=1, *skipped=1"


def test_header_never_takes_more_than_proxies_do() -> None:
    lengths = [len(route_of([answer(number) for number in range(cells)])) for cells in range(1, 200)]
    assert max(lengths) <= 3000
    assert max(lengths) > 2900


def test_others_than_administrators_learn_no_numbers() -> None:
    assert route_of([answer(number) for number in range(200)], MEMBER) == "index"
