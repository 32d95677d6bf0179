"""Fields of newer producers survive whatever writes rows as their cell has them."""

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from fleetlight.indexer.backends.base import CellProgress, Document
from fleetlight.indexer.extra_fields import Extra
from fleetlight.indexer.reconcile.rebuild import rebuild_index
from fleetlight.indexer.writing.kept_extras import ExtraFieldKeeper
from tests.support.fleets.documents import make_document
from tests.support.fleets.rebuilding import Silent
from tests.support.memory.memory_cell import CELL_UUID, MemoryCell
from tests.support.memory.memory_generations import MemoryGenerations
from tests.support.memory.memory_index import MemoryIndex
from tests.support.memory.stage import NativeStage

EXTRA = Extra("fleetlight/InstancePayload-1.9", {"rack": "r7"}, {"rack": "text"})


class Stage(NativeStage[MemoryCell]):
    """A cell of two instances. The index has an extra field of each, and lacks the newest change of the first one."""

    def __init__(self) -> None:
        super().__init__(MemoryCell(instances=2))
        self.write_rows(EXTRA)
        self.changed = next(iter(self.cell.rows))
        self.cell.update(self.changed, display_name="changed")
        self.index.saved[CELL_UUID] = CellProgress(CELL_UUID, self.cell.last_sequence, 0, is_complete=True)

    def make_right(self) -> None:
        assert self.verify(repair=True, catch_up_timeout_s=0).differences

    def rebuild(self) -> None:
        # So that the change cannot come with its message.
        self.cell.prune(self.cell.last_sequence)
        rebuild_index(self.rebuild_parts(MemoryGenerations(self.index)), Silent(), back=False)


@pytest.mark.parametrize("write_rows", [Stage.sync, Stage.make_right, Stage.rebuild])
def test_extra_fields_are_kept_by(write_rows: Callable[[Stage], None]) -> None:
    stage = Stage()
    write_rows(stage)
    changed = stage.index.documents[stage.changed]
    assert changed.record["display_name"] == "changed"
    assert [document.extra for document in stage.index.documents.values()] == [EXTRA, EXTRA]


def test_extra_fields_of_another_cell_or_older_than_what_came_now_are_not_taken_over() -> None:
    known, target = MemoryIndex(), MemoryIndex()
    known.write([replace(make_document(1, cell_uuid="elsewhere"), extra=EXTRA), replace(make_document(2), extra=EXTRA)])
    newer = Extra("fleetlight/InstancePayload-1.9", {"rack": "r8"}, {})
    documents: list[Document] = [make_document(1, version=2), replace(make_document(2, version=2), extra=newer)]
    ExtraFieldKeeper(target, known).write(documents)
    assert [document.extra for document in target.documents.values()] == [None, newer]
