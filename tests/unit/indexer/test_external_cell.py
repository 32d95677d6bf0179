"""Whether the index has what a cell of Nova has, which counts no revisions."""

from collections.abc import Mapping
from typing import Any

import pytest
from msgspec import structs

from fleetlight.cells.capabilities import CAPABILITIES, CellKind
from fleetlight.cells.model import InstanceRow
from fleetlight.indexer.backends.base import OLDEST_TIME_VERSION
from fleetlight.indexer.reconcile.differences import DifferenceKind, Verification
from fleetlight.indexer.reconcile.external_cell import ExternalComparison, compare_cell
from fleetlight.indexer.reconcile.reconcile import verify
from fleetlight.indexer.transform.documents import to_document
from fleetlight.indexer.transform.external_rows import settle
from fleetlight.indexer.writing.journaling import CellJournal
from tests.support.fleets.documents import make_record, make_uuid
from tests.support.memory.stage import NovaStage, kinds
from tests.support.played.nova_cell import MemoryNovaCell


class Stage(NovaStage):
    """A cell of three instances, and an index that has them."""

    def __init__(self) -> None:
        super().__init__(MemoryNovaCell())
        for number in (1, 2, 3):
            self.cell.create(number)
        compare_cell(self.cell, self.index, batch_size=2, clock=lambda: self.cell.now)

    def differ(self) -> None:
        """Each kind of difference once."""
        self.index.remove({make_uuid(1): self.version(1)})
        self.cell.save(make_uuid(2), display_name="another")
        del self.cell.rows[make_uuid(3)]

    def version(self, number: int) -> int:
        return self.index.read([make_uuid(number)])[make_uuid(number)].version

    def verify(self, *, repair: bool = False, timeout_s: float = 0) -> Verification:
        comparison = ExternalComparison(
            self.cell,
            self.index,
            batch_size=2,
            owners=self.owners,
            journal=CellJournal(self.cell.cell.uuid, self.journals, self.index),
            confirm_timeout_s=None if repair else timeout_s,
        )
        return verify(comparison, repair=repair)


@pytest.fixture
def stage() -> Stage:
    return Stage()


DIFFERENT = {
    make_uuid(1): DifferenceKind.MISSING,
    make_uuid(2): DifferenceKind.CHANGED,
    make_uuid(3): DifferenceKind.ONLY_IN_INDEX,
}


def test_index_that_has_all_rows_agrees(stage: Stage) -> None:
    verification = stage.verify()
    assert (verification.rows, verification.documents, verification.differences) == (3, 3, ())


def test_differences_are_told_and_left_alone(stage: Stage) -> None:
    stage.differ()
    for _ in range(2):
        assert kinds(stage.verify()) == DIFFERENT


def test_differences_are_repaired_and_then_they_agree(stage: Stage) -> None:
    stage.differ()
    repaired = stage.verify(repair=True)
    assert kinds(repaired) == DIFFERENT
    assert repaired.remaining == ()
    assert stage.index.searchable == stage.index.documents
    assert stage.verify().differences == ()


def test_what_is_only_on_its_way_is_no_difference(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.differ()
    looked_at_again: list[Any] = []
    read = stage.index.read

    def indexed_meanwhile(ids: Any) -> Any:
        looked_at_again.append(ids)
        if len(looked_at_again) == 5:
            compare_cell(stage.cell, stage.index, batch_size=2, clock=lambda: stage.cell.now)
        return read(ids)

    monkeypatch.setattr(stage.index, "read", indexed_meanwhile)
    assert stage.verify(timeout_s=60).differences == ()


def test_deleted_row_that_nova_has_archived_is_no_difference(stage: Stage) -> None:
    stage.cell.destroy(make_uuid(1))
    stage.verify(repair=True)
    del stage.cell.rows[make_uuid(1)]
    verification = stage.verify()
    assert (verification.rows, verification.documents, verification.differences) == (2, 3, ())


def test_hidden_row_is_no_row_and_its_document_is_removed(stage: Stage) -> None:
    stage.cell.save(make_uuid(1), hidden=True)
    assert kinds(stage.verify()) == {make_uuid(1): DifferenceKind.ONLY_IN_INDEX}
    assert stage.verify(repair=True).remaining == ()
    verification = stage.verify(repair=True)
    assert (verification.rows, verification.documents, verification.differences) == (2, 2, ())


def test_document_that_was_written_after_its_row_was_seen_hidden_is_not_removed(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.cell.save(make_uuid(1), hidden=True)
    remove = stage.index.remove

    def shown_before_it_is_removed(versions: Mapping[str, int]) -> None:
        document = stage.index.documents[make_uuid(1)]
        stage.index.write([structs.replace(document, version=document.version + 1)])
        remove(versions)

    monkeypatch.setattr(stage.index, "remove", shown_before_it_is_removed)
    stage.verify(repair=True)
    assert make_uuid(1) in stage.index.documents


def test_server_that_a_compute_api_shows_is_not_hidden_whatever_was_there_before() -> None:
    hidden = to_document("another-cell", OLDEST_TIME_VERSION, make_record(1, hidden=True, os_type="linux"))
    row = InstanceRow("here", OLDEST_TIME_VERSION + 1, make_record(1))
    document = settle("here", hidden, row, kept=CAPABILITIES[CellKind.NOVA_API].unknown_fields)
    assert document is not None
    assert (document.record["hidden"], document.record["os_type"]) == (False, "linux")
