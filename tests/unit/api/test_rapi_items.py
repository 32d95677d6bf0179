"""Lists of the remote API that are sent while they are read."""

import asyncio
from collections.abc import AsyncIterator, Collection, Sequence
from typing import Any

import msgspec
import pytest
from starlette.responses import StreamingResponse

from fleetlight.api.caller import Caller
from fleetlight.api.http.query_string import QueryString
from fleetlight.api.query.engine import QueryEngine
from fleetlight.api.query.results import QueryResult
from fleetlight.api.query.whole_results import WholeResults
from fleetlight.api.rapi.endpoint import RapiRequest
from fleetlight.api.rapi.items import CutOffError, RapiItems, as_object
from fleetlight.cells.capabilities import CellKind
from fleetlight.cells.model import Cell
from fleetlight.listing.answer import CellAnswer, Consistency, Page, ReadOptions, Route

CELLS = [Cell(f"7a1d5a0a-90b1-4f36-8f6e-00000000000{n}", f"cell{n}", CellKind.NATIVE, "", "") for n in (1, 2)]
REQUEST = RapiRequest(
    Caller("ada", None, frozenset({"admin"})),
    ReadOptions(Consistency.BOUNDED, (), 1),
    query=QueryString(()),
    names={},
    body=None,
    has_body=False,
)


class _QueryEngine:
    def __init__(self, batches: Sequence[QueryResult]) -> None:
        self._batches = batches

    async def all_rows(self, *_arguments: Any) -> AsyncIterator[QueryResult]:
        for batch in self._batches:
            yield batch


def batch(*names: str, is_last: bool = False, lost: Collection[int] = (), has_all_cells: bool = True) -> QueryResult:
    """lost: which of the cells are not complete."""
    rows = [([name], msgspec.Raw(msgspec.json.encode([[0, name]]))) for name in names]
    answered = [CellAnswer(cell, Route.LIVE, is_complete=number not in lost) for number, cell in enumerate(CELLS)]
    return QueryResult(rows, None if is_last else [names], Page(b"", len(rows), None, answered, has_all_cells))


def sent(batches: Sequence[QueryResult]) -> tuple[StreamingResponse, list[bytes]]:
    """The answer, and the parts of its body until it ends or fails."""
    parts: list[bytes] = []

    async def send() -> StreamingResponse:
        query_engine: Any = _QueryEngine(batches)
        typed: QueryEngine = query_engine
        response = await RapiItems(WholeResults(typed)).streamed(REQUEST, "node", ["name"], None, as_object(["name"]))
        assert isinstance(response, StreamingResponse)
        async for part in response.body_iterator:
            parts.append(bytes(part))  # type: ignore[arg-type]  # ours are bytes
        return response

    try:
        return asyncio.run(send()), parts
    except CutOffError as error:
        error.add_note(repr(parts))
        raise


def test_items_are_sent_batch_by_batch() -> None:
    response, parts = sent([batch("a", "b"), batch(), batch("c", is_last=True)])
    assert parts == [b"[", b'{"name":"a"},{"name":"b"}', b',{"name":"c"}', b"]\n"]
    assert response.headers["fleetlight-complete"] == "true"


@pytest.mark.parametrize(
    ("before", "behind"),
    [
        ({}, {"lost": [0]}),
        # What a cell that is lost from the beginning does not excuse.
        ({"lost": [0]}, {"lost": [0, 1]}),
        ({"lost": [0]}, {"lost": [1]}),
        ({}, {"has_all_cells": False}),
    ],
)
def test_answer_does_not_end_when_a_cell_is_lost_that_its_headers_promise(
    before: dict[str, Any], behind: dict[str, Any]
) -> None:
    with pytest.raises(CutOffError) as caught:
        sent([batch("a", **before), batch("b", **behind, is_last=True)])
    assert caught.value.__notes__ == [repr([b"[", b'{"name":"a"}'])]


@pytest.mark.parametrize("lacking", [{"lost": [0]}, {"has_all_cells": False}])
def test_answer_that_began_as_incomplete_goes_on(lacking: dict[str, Any]) -> None:
    response, parts = sent([batch("a", **lacking), batch("b", **lacking, is_last=True)])
    assert parts[-1] == b"]\n"
    assert response.headers["fleetlight-complete"] == "false"
