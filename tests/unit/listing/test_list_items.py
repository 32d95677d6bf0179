"""Lists of what cells have beside instances."""

import asyncio
from collections.abc import Callable, Collection, Mapping
from typing import Any

import pytest

from fleetlight.cells.capabilities import CellKind
from fleetlight.cells.errors import CellUnreachableError, UnknownCellError
from fleetlight.cells.model import Cell, CellAdapter
from fleetlight.listing.answer import Route
from fleetlight.listing.list_items import ItemLister
from fleetlight.listing.sources import CellReader
from tests.support.played.played_listing import PlayedReader

NATIVE, NOVA, DOWN, UNKNOWN = (
    Cell(f"7a1d5a0a-90b1-4f36-8f6e-00000000000{number}", name, kind, "", "")
    for number, (name, kind) in enumerate(
        (
            ("native", CellKind.NATIVE),
            ("nova", CellKind.NOVA_DB),
            ("down", CellKind.NATIVE),
            ("unknown", CellKind.NATIVE),
        )
    )
)


class _WithItems:
    """An adapter that tells what it was asked for."""

    cell = NATIVE

    def read_page(self, request: Any) -> Any: ...

    def find(self, uuid: str) -> Any: ...

    def close(self) -> None: ...

    def describe_items(self, item_type: str, fields: Collection[str], keys: Collection[Any] | None) -> Any:
        return {"sql": (item_type, fields, keys)}

    def read_items(self, item_type: str, fields: Collection[str], keys: Collection[Any] | None = None) -> Any:
        return [{"asked": (item_type, sorted(fields), keys)}]


class _Reader(PlayedReader):
    def __init__(self, adapters: Mapping[str, Any]) -> None:
        self._adapters = adapters

    async def cells(self) -> tuple[Cell, ...]:
        return NATIVE, NOVA, DOWN

    async def ask(self, cell_uuid: str, question: Callable[[CellAdapter], Any], _timeout_s: float) -> Any:
        if cell_uuid == DOWN.uuid:
            raise CellUnreachableError("down", "it is away")
        if cell_uuid == UNKNOWN.uuid:
            raise UnknownCellError(cell_uuid, ())
        return question(self._adapters[cell_uuid])


def lister() -> ItemLister:
    reader: Any = _Reader({NATIVE.uuid: _WithItems(), NOVA.uuid: object()})
    typed: CellReader = reader
    return ItemLister(typed)


def test_each_cell_says_what_it_has_or_why_it_does_not() -> None:
    items = asyncio.run(lister().list_items("node", {"name", "cell"}, cell_timeout_s=1, keys={"a"}))
    native, nova, down = items.by_cell
    assert native.records == [{"asked": ("node", ["cell", "name"], {"a"})}]
    assert (native.answer.route, native.answer.is_complete) == (Route.LIVE, True)
    assert [each.answer.cell for each in items.by_cell] == [NATIVE, NOVA, DOWN]
    assert all(0 < each.duration_s < 10 for each in items.by_cell)
    for skipped, reason in ((nova, "cells of kind 'nova-db' do not report"), (down, "it is away")):
        assert (skipped.answer.route, skipped.answer.is_complete, skipped.records) == (Route.SKIPPED, False, [])
        assert reason in str(skipped.answer.failure)


@pytest.mark.parametrize(
    ("cell", "told"), [(NATIVE, {"sql": ("node", ("name",), None)}), (NOVA, None), (DOWN, None), (UNKNOWN, None)]
)
def test_what_a_cell_would_be_asked_is_told_by_those_that_can(cell: Cell, told: object) -> None:
    assert asyncio.run(lister().describe(cell.uuid, "node", ("name",), None, 1)) == told


def test_only_the_cells_that_are_meant_are_asked() -> None:
    items = asyncio.run(lister().list_items("node", (), cell_timeout_s=1, only={NATIVE.uuid}))
    assert [each.answer.cell for each in items.by_cell] == [NATIVE]
