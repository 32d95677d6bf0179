"""What a rebuild does with every kind of cell, and when it leaves the index as it is; in memory."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest

from fleetlight.cells.capabilities import CellKind
from fleetlight.cells.errors import CellUnreachableError
from fleetlight.cells.model import Cell, InstanceRow
from fleetlight.indexer.backends.base import OLDEST_TIME_VERSION, BareDocument, CellProgress, Document
from fleetlight.indexer.errors import LeaseHeldError, RebuildError, RebuildRunningError
from fleetlight.indexer.reconcile.rebuild import (
    RebuildParts,
    RebuildPhase,
    abandon_rebuild,
    drop_previous,
    rebuild_index,
)
from fleetlight.indexer.transform.documents import to_document
from tests.support.fleets.documents import make_document, make_uuid
from tests.support.memory.memory_cell import CELL_UUID, MemoryCell
from tests.support.memory.memory_fleet import MemoryLeases
from tests.support.memory.memory_generations import MemoryGenerations
from tests.support.memory.memory_index import MemoryIndex, versions
from tests.support.memory.stage import NativeStage

NOVA = Cell("5a1c6f0e-8c8e-4d6f-9a52-0a3a1d2f7b33", "nova", CellKind.NOVA_API, "", "")


class StoppedError(Exception):
    """Somebody presses Ctrl-C."""


@dataclass
class Watcher:
    """stop_in: the phase in which somebody stops the rebuild. on: what happens when a phase begins."""

    stop_in: RebuildPhase | None = None
    on: dict[RebuildPhase, Callable[[], object]] = field(default_factory=dict)
    phases: list[RebuildPhase] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)

    def on_step(self) -> None:
        if self.stop_in is self.phases[-1]:
            raise StoppedError

    def on_phase(self, phase: RebuildPhase) -> None:
        self.phases.append(phase)
        self.on.pop(phase, lambda: None)()

    def on_rows(self, cell: Cell, rows: int) -> None:
        """Not looked at."""

    def on_notice(self, text: str) -> None:
        self.notices.append(text)


class Stage(NativeStage[MemoryCell]):
    """A native cell with some rows, and an index that has them all."""

    def __init__(self, cell: MemoryCell | None = None) -> None:
        super().__init__(cell or MemoryCell(instances=10))
        self.follow()
        self.generations = MemoryGenerations(self.index)
        self.fleet = [self.cell.cell]
        self.others: dict[str, MemoryCell] = {}

    @property
    def parts(self) -> RebuildParts:
        return replace(self.rebuild_parts(self.generations), cells=lambda: list(self.fleet))

    def rebuild(self, watcher: Watcher | None = None, *, back: bool = False) -> Watcher:
        watcher = watcher or Watcher()
        rebuild_index(self.parts, watcher, back=back)
        return watcher

    def open_cell(self, cell: Cell) -> MemoryCell:
        return self.others.get(cell.uuid) or super().open_cell(cell)


def of_nova(number: int, version: int = OLDEST_TIME_VERSION) -> Document:
    return make_document(number, version=version, cell_uuid=NOVA.uuid)


def test_new_index_has_what_the_cell_has_and_the_old_one_is_kept() -> None:
    stage = Stage()
    stray = make_document(1, cell_uuid=CELL_UUID)
    stage.index.write([stray])
    watcher = stage.rebuild()
    assert versions(stage.index) == stage.cell.versions()
    assert stage.index.searchable == stage.index.documents
    assert watcher.phases == [RebuildPhase.FILLING, RebuildPhase.VERIFYING, RebuildPhase.SWITCHING]
    assert stage.generations.previous is not None
    assert stray.id in stage.generations.previous.documents
    assert stage.leases.held == set()


def test_documents_that_no_cell_can_be_asked_for_are_copied() -> None:
    stage = Stage()
    stage.fleet.append(NOVA)
    announced = make_document(7, version=OLDEST_TIME_VERSION + 1, cell_uuid=CELL_UUID)
    documents = [of_nova(1), of_nova(2, version=5), announced]
    stage.index.write(documents)
    stage.rebuild()
    assert [stage.index.documents[document.id] for document in documents] == documents
    assert len(stage.index.documents) == 13


def test_documents_of_cells_that_have_left_the_fleet_do_not_come_along() -> None:
    stage = Stage()
    stage.index.write([of_nova(1)])
    stage.rebuild()
    assert versions(stage.index) == stage.cell.versions()


def test_row_that_a_notification_from_outside_has_taken_the_place_of_comes_from_the_cell() -> None:
    stage = Stage()
    uuid, row = next(iter(stage.cell.rows.items()))
    stage.index.write([to_document(CELL_UUID, OLDEST_TIME_VERSION, {**row.record, "host": "elsewhere"})])
    stage.rebuild()
    assert stage.index.documents[uuid].version == row.revision


def test_changes_that_arrive_meanwhile_are_in_the_new_index() -> None:
    stage = Stage()
    stage.fleet.append(NOVA)
    late = of_nova(3)

    def change() -> None:
        for uuid in list(stage.cell.rows)[:3]:
            stage.cell.update(uuid, host="newer")
        stage.cell.create()
        stage.cell.delete(next(iter(stage.cell.rows)))
        stage.write_rows()
        stage.index.write([late])

    for phase in (RebuildPhase.VERIFYING, RebuildPhase.SWITCHING):
        stage.rebuild(Watcher(on={phase: change}))
        assert {**stage.cell.versions(), late.id: late.version} == versions(stage.index)


def test_change_that_nobody_can_read_is_read_from_its_row() -> None:
    stage = Stage()

    def change() -> None:
        stage.cell.create(host="unreadable")
        stage.cell.damage(stage.cell.last_sequence)
        stage.write_rows()

    stage.rebuild(Watcher(on={RebuildPhase.SWITCHING: change}))
    assert versions(stage.index) == stage.cell.versions()


@pytest.mark.parametrize("phase", [RebuildPhase.FILLING, RebuildPhase.VERIFYING])
def test_rebuild_that_was_stopped_goes_on_where_it_was(phase: RebuildPhase) -> None:
    stage = Stage(MemoryCell(instances=61))
    with pytest.raises(StoppedError):
        stage.rebuild(Watcher(stop_in=phase))
    assert versions(stage.index) == stage.cell.versions()
    assert stage.generations.next is not None
    assert stage.generations.next.documents
    begun = stage.generations.next
    stage.cell.pages_read = 0
    stage.rebuild()
    assert stage.cell.pages_read < 21, "what was read before is not read again"
    assert stage.index.documents is begun.documents
    assert versions(stage.index) == stage.cell.versions()


def test_way_back_leads_to_the_old_index_with_all_that_has_happened_since() -> None:
    stage = Stage()
    stage.rebuild()
    old = stage.generations.previous
    assert old is not None
    stage.cell.update(next(iter(stage.cell.rows)), host="newer")
    stage.cell.create()
    announced = make_document(7, version=OLDEST_TIME_VERSION, cell_uuid=CELL_UUID)
    stage.write_rows()
    stage.index.write([announced])
    stage.rebuild(back=True)
    assert stage.index.documents is old.documents
    assert versions(stage.index) == {**stage.cell.versions(), announced.id: announced.version}
    assert stage.generations.has_previous()


def test_there_is_no_way_back_before_the_first_rebuild_and_none_after_the_old_index_was_dropped() -> None:
    stage = Stage()
    with pytest.raises(RebuildError, match="no previous index"):
        stage.rebuild(back=True)
    stage.rebuild()
    assert drop_previous(stage.parts)
    assert not drop_previous(stage.parts)
    with pytest.raises(RebuildError, match="no previous index"):
        stage.rebuild(back=True)


def test_rebuild_that_was_begun_is_finished_or_abandoned_before_there_is_a_way_back() -> None:
    stage = Stage(MemoryCell(instances=20))
    stage.rebuild()
    with pytest.raises(StoppedError):
        stage.rebuild(Watcher(stop_in=RebuildPhase.VERIFYING))
    with pytest.raises(RebuildError, match="abandon"):
        stage.rebuild(back=True)
    assert abandon_rebuild(stage.parts)
    assert not abandon_rebuild(stage.parts)
    stage.rebuild(back=True)
    assert versions(stage.index) == stage.cell.versions()


def test_index_that_takes_less_than_the_current_one_does_not_take_its_place() -> None:
    stage = Stage()
    uuid = min(stage.cell.rows)
    stage.generations.refused = {uuid: "too long"}
    with pytest.raises(RebuildError, match=f"{uuid}: too long"):
        stage.rebuild()
    assert versions(stage.index) == stage.cell.versions()
    stage.generations.refused.clear()
    stage.rebuild()
    assert versions(stage.index) == stage.cell.versions()


def test_index_that_takes_no_less_than_an_incomplete_one_takes_its_place() -> None:
    stage = Stage()
    stage.index.saved[CELL_UUID] = replace(stage.index.saved[CELL_UUID], is_complete=False)
    stage.generations.refused = {min(stage.cell.rows): "too long"}
    stage.rebuild()
    assert len(stage.index.documents) == 9


def test_instance_that_has_moved_stays_with_its_cell_although_the_one_before_still_has_a_row_of_it() -> None:
    """As after that one was restored from a backup."""
    stage = Stage()
    uuid, before = min(stage.cell.rows.items())
    there = MemoryCell("7d1a3c52-0000-4000-8000-00000000000b", "there")
    there.rows[uuid] = InstanceRow(there.cell.uuid, before.revision + 1, before.record)
    stage.others[there.cell.uuid] = there
    stage.fleet = [there.cell, stage.cell.cell]
    stage.owners.cells[uuid] = there.cell.uuid
    stage.index.saved[there.cell.uuid] = CellProgress(there.cell.uuid, 0, 0, is_complete=True)
    stage.index.saved[CELL_UUID] = replace(stage.index.saved[CELL_UUID], is_complete=False)
    stage.rebuild()
    assert stage.index.documents[uuid].cell_uuid == there.cell.uuid
    assert not stage.index.saved[CELL_UUID].is_complete
    assert stage.index.saved[there.cell.uuid].is_complete


def test_what_the_index_has_of_a_cell_that_is_away_is_kept() -> None:
    stage = Stage()
    stage.cell.is_away = True
    watcher = stage.rebuild()
    assert versions(stage.index) == stage.cell.versions()
    assert watcher.notices == ["cell 'one' cannot be reached: it is away; what the index has of it is kept as it is"]


def test_of_an_outdated_index_only_what_no_cell_has_is_copied() -> None:
    stage = Stage()
    stage.fleet.append(NOVA)
    announced = of_nova(1)
    record = {**announced.record, "cell_uuid": NOVA.uuid, "a field of then": 1}
    stage.generations.outdated = [BareDocument(announced.version, record)]
    stage.index.documents.clear()
    stage.rebuild()
    assert versions(stage.index) == stage.cell.versions() | {announced.id: announced.version}
    assert stage.index.documents[announced.id] == announced


def test_outdated_index_is_not_replaced_while_a_cell_is_away_whose_rows_it_has() -> None:
    stage = Stage()
    stage.generations.outdated = []
    stage.cell.is_away = True
    with pytest.raises(CellUnreachableError):
        stage.rebuild()


def test_cell_that_joins_at_the_last_moment_comes_along() -> None:
    stage = Stage()

    def join() -> None:
        stage.fleet.append(NOVA)
        stage.index.write([of_nova(1)])

    watcher = stage.rebuild(Watcher(on={RebuildPhase.SWITCHING: join}))
    assert make_uuid(1) in stage.index.documents
    assert watcher.phases.count(RebuildPhase.SWITCHING) == 2


def test_indexes_are_made_searchable_once_for_all_cells_while_nobody_can_write(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counts: list[int] = []
    make_searchable = MemoryIndex.make_searchable

    def counted(index: MemoryIndex) -> None:
        counts[-1] += 1
        make_searchable(index)

    monkeypatch.setattr(MemoryIndex, "make_searchable", counted)
    for others in (0, 6):
        counts.append(0)
        stage = Stage()
        stage.fleet += [replace(NOVA, uuid=make_uuid(number)) for number in range(others)]
        stage.rebuild(Watcher(on={RebuildPhase.SWITCHING: lambda: counts.append(0)}))
    assert counts[1] == counts[3], "whatever the number of cells"


def test_changes_that_the_cell_forgot_before_they_were_read_are_found_by_comparing() -> None:
    stage = Stage()

    def forget() -> None:
        for uuid in stage.cell.rows:
            stage.cell.update(uuid, host="newer")
        stage.cell.prune(stage.cell.last_sequence)
        stage.write_rows()

    stage.rebuild(Watcher(on={RebuildPhase.VERIFYING: forget}))
    assert versions(stage.index) == stage.cell.versions()


@pytest.mark.parametrize(
    ("name", "error"), [("index-rebuild", RebuildRunningError), (f"index-bulk-{CELL_UUID}", LeaseHeldError)]
)
def test_nobody_rebuilds_what_somebody_else_works_on(
    name: str, error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fleetlight.indexer.reconcile.rebuild._LEASE_TIMEOUT_S", 0)
    stage = Stage()
    stage.leases.taken[name] = "fleetlight index verify (process 7 on here)"
    with pytest.raises(error, match="process 7 on here"):
        stage.rebuild()
    assert not stage.generations.has_previous()


class BrieflyTakenLeases(MemoryLeases):
    """Whoever has a lease gives it back after somebody has asked for it."""

    def holder(self, name: str) -> str:
        return self.taken.pop(name)


@pytest.mark.parametrize("name", ["index-rebuild", f"index-bulk-{CELL_UUID}"])
def test_rebuild_waits_for_what_an_indexer_does_for_a_moment(name: str) -> None:
    stage = Stage()
    stage.leases = BrieflyTakenLeases({name: "fleetlight indexer (process 7 on here)"})
    stage.rebuild()
    assert stage.generations.has_previous()
