"""What only notifications from outside tell of is in the index and in the journal of its cell, in its newest state."""

from collections.abc import Collection, Mapping

import pytest

from fleetlight.cells.model import InstanceRow
from fleetlight.indexer.backends.base import OLDEST_TIME_VERSION, Document
from fleetlight.indexer.extra_fields import Extra
from fleetlight.indexer.reconcile.announced import reconcile_announced
from fleetlight.indexer.transform.documents import to_document
from fleetlight.indexer.writing.announced import AnnouncedKeeper, to_announced
from tests.support.fleets.documents import make_record, make_uuid
from tests.support.memory.memory_fleet import MemoryAnnounced
from tests.support.memory.memory_index import MemoryIndex

CELL = "c0"
EXTRA = Extra("Newer 1.9", {"rack": "r7"}, {"rack": "text"})


def announced(number: int, age: int = 1, extra: Extra | None = None, *, cell_uuid: str = CELL) -> Document:
    return to_document(cell_uuid, OLDEST_TIME_VERSION + age, make_record(number, display_name=f"at {age}"), extra)


def row(number: int) -> Document:
    return to_document(CELL, 3, make_record(number))


def reconciled(index: MemoryIndex, store: MemoryAnnounced, rows: Collection[str] = ()) -> int:
    def read_rows(uuids: Collection[str]) -> Mapping[str, InstanceRow]:
        return {uuid: InstanceRow(CELL, 3, {"uuid": uuid}) for uuid in uuids if uuid in rows}

    index.make_searchable()
    restored = reconcile_announced(CELL, index, index, store, read_rows, horizon=0, on_step=lambda: None)
    index.make_searchable()
    return restored


def test_only_what_was_announced_is_kept_and_before_it_is_written() -> None:
    index, store = MemoryIndex(), MemoryAnnounced()
    keeper = AnnouncedKeeper(index, CELL, store)
    keeper.needs_comparison = False
    kept_first: list[bool] = []
    index.before_write = lambda: kept_first.append(make_uuid(1) in store.kept)
    keeper.write([announced(1), row(2)])
    assert (kept_first, set(store.kept), set(index.documents)) == ([True], {make_uuid(1)}, {make_uuid(1), make_uuid(2)})


def test_index_is_written_while_the_journal_is_away_and_the_journal_gets_it_later() -> None:
    index, store = MemoryIndex(), MemoryAnnounced(is_away=True)
    keeper = AnnouncedKeeper(index, CELL, store)
    keeper.needs_comparison = False
    keeper.write([announced(1, extra=EXTRA)])
    assert keeper.needs_comparison
    store.is_away = False
    assert reconciled(index, store) == 0
    assert store.kept == {make_uuid(1): to_announced(announced(1, extra=EXTRA))}


def test_nothing_is_kept_of_a_lost_index_before_it_got_back_what_is_kept() -> None:
    index, store = MemoryIndex(), MemoryAnnounced()
    keeper = AnnouncedKeeper(index, CELL, store)
    keeper.write([announced(1)])
    assert store.kept == {}


def test_lost_index_gets_back_the_newest_state_with_what_newer_producers_said() -> None:
    index, store = MemoryIndex(), MemoryAnnounced()
    store.keep(CELL, [to_announced(announced(number, number, EXTRA)) for number in (1, 2)])
    index.write([announced(1, 9)])
    assert reconciled(index, store) == 1
    assert index.documents[make_uuid(2)] == announced(2, 2, EXTRA)
    assert {each.version - OLDEST_TIME_VERSION for each in store.kept.values()} == {9, 2}
    assert reconciled(index, store) == 0


@pytest.mark.parametrize("there", [row(1), announced(1, 0, cell_uuid="c1"), None])
def test_instance_that_has_a_row_or_is_another_cells_is_forgotten(there: Document | None) -> None:
    index, store = MemoryIndex(), MemoryAnnounced()
    store.keep(CELL, [to_announced(announced(1, 5))])
    if there is not None:
        index.write([there])
    assert reconciled(index, store, rows=() if there is not None else [make_uuid(1)]) == 0
    assert store.kept == {}
    assert list(index.documents.values()) == ([] if there is None else [there])
