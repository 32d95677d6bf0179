"""What verify makes of a cell and an index that change while it looks."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from fleetlight.cells.errors import CellUnreachableError
from fleetlight.cells.model import InstanceRow
from fleetlight.indexer.backends.base import OLDEST_TIME_VERSION, REPAIRS, Document, WriteResult
from fleetlight.indexer.errors import IndexUnavailableError
from fleetlight.indexer.reconcile.differences import DifferenceKind, Verification
from fleetlight.indexer.reconcile.native_cell import NativeComparison
from fleetlight.indexer.reconcile.reconcile import verify
from fleetlight.indexer.transform.documents import to_document
from fleetlight.query.page import PageRequest
from tests.support.fleets.documents import make_record, make_uuid
from tests.support.memory.memory_cell import CELL_UUID, MemoryCell
from tests.support.memory.stage import NativeStage, kinds


class LivelyCell(MemoryCell):
    """A cell to which things happen between two questions.

    after_reading, after_asking_for_numbers: called once, after the next page, or the next look for missing numbers.
    """

    after_reading: Callable[[], None] | None = None
    after_asking_for_numbers: Callable[[], None] | None = None

    def read_page(self, request: PageRequest) -> Sequence[InstanceRow]:
        page = super().read_page(request)
        happening, self.after_reading = self.after_reading, None
        if happening:
            happening()
        return page

    def unnumbered(self, uuids: Collection[str]) -> Collection[str]:
        found = super().unnumbered(uuids)
        happening, self.after_asking_for_numbers = self.after_asking_for_numbers, None
        if happening:
            happening()
        return found


Stage = NativeStage[LivelyCell]


@pytest.fixture
def stage() -> Stage:
    """Of three instances, all of them in the index, which has caught up."""
    stage = Stage(LivelyCell())
    for number in (1, 2, 3):
        stage.cell.create(uuid=make_uuid(number))
    stage.follow()
    return stage


def test_index_that_agrees_is_not_read(stage: Stage) -> None:
    verification = stage.verify()
    assert verification == Verification(3, 3, 0, (), 0, True)
    assert stage.index.reads == []


def test_lag_is_no_difference(stage: Stage) -> None:
    stage.cell.update(make_uuid(1), display_name="new")
    stage.cell.create(uuid=make_uuid(4))
    stage.cell.after_reading = stage.follow
    verification = stage.verify()
    assert (verification.differences, verification.has_caught_up) == ((), True)


def test_lag_is_waited_out_and_what_remains_is_reported(stage: Stage) -> None:
    stage.lose(make_uuid(2))
    stage.cell.update(make_uuid(1), display_name="new")
    stage.index.refused[make_uuid(2)] = "never"
    stage.cell.after_reading = stage.follow
    assert kinds(stage.verify()) == {make_uuid(2): DifferenceKind.MISSING}


def test_change_that_has_no_number_yet_is_waited_for(stage: Stage) -> None:
    stage.cell.update(make_uuid(1), display_name="new")
    stage.cell.last_sequence -= 1
    stage.cell.without_number = {make_uuid(1)}

    def relay_and_follow() -> None:
        stage.cell.without_number = set()
        stage.cell.last_sequence += 1
        stage.follow()

    # The index is as far as the cell has announced, so only the missing number tells.
    stage.cell.after_asking_for_numbers = relay_and_follow
    verification = stage.verify()
    assert (verification.differences, verification.has_caught_up) == ((), True)


def test_index_that_got_further_than_the_row_that_was_read_is_not_newer(stage: Stage) -> None:
    stage.lose(make_uuid(1))

    def change_and_follow() -> None:
        stage.cell.update(make_uuid(1), display_name="newer")
        stage.follow()

    stage.cell.after_reading = change_and_follow
    assert stage.verify().differences == ()


def test_instance_that_is_created_while_looking_is_not_only_in_the_index(stage: Stage) -> None:
    row = stage.cell.rows.pop(make_uuid(1))
    assert kinds(stage.verify()) == {make_uuid(1): DifferenceKind.ONLY_IN_INDEX}

    def create() -> None:
        stage.cell.rows[make_uuid(1)] = row

    stage.cell.after_reading = create
    assert kinds(stage.verify()) == {}


def test_index_that_never_catches_up_is_waited_for_once_and_said_to_lag(stage: Stage) -> None:
    stage.cell.update(make_uuid(1), display_name="new")
    verification = stage.verify(catch_up_timeout_s=0.05)
    assert [difference.kind for difference in verification.differences] == [DifferenceKind.OLDER]
    assert not verification.has_caught_up
    stage.cell.without_number = {make_uuid(1)}
    stage.follow()
    stage.lose(make_uuid(1))
    assert not stage.verify(catch_up_timeout_s=0.05).has_caught_up


def test_database_that_went_back_to_an_older_copy_makes_the_index_newer_and_repair_follows_it(stage: Stage) -> None:
    older = stage.cell.rows[make_uuid(1)]
    stage.cell.update(make_uuid(1), display_name="lost with the database")
    stage.follow()
    stage.cell.rows[make_uuid(1)] = older
    (difference,) = stage.verify(repair=True).differences
    assert (difference.kind, difference.revision, difference.version) == (DifferenceKind.NEWER, 1, 2)
    assert difference.is_repaired
    assert stage.index.documents[make_uuid(1)].record == older.record


class Newer:
    """A stage on which two rows of the index are newer than those of the cell; what happened to it, in order."""

    def __init__(self, stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
        self.stage = stage
        self.happened: list[tuple[str, bool]] = []
        for number in (1, 2):
            older = stage.cell.rows[make_uuid(number)]
            stage.cell.update(make_uuid(number), display_name="lost with the database")
            stage.follow()
            stage.cell.rows[make_uuid(number)] = older
        for name in ("remove", "write"):
            monkeypatch.setattr(stage.index, name, self._noted(name, getattr(stage.index, name)))

    def verify(self, pause: Callable[[float], object]) -> Verification:
        return self.stage.verify(repair=True, pause=pause)

    def pause(self, _seconds: float) -> None:
        self.happened.append(("pause", self.is_told))

    @property
    def is_told(self) -> bool:
        return bool(self.stage.index.state.get(REPAIRS))

    def _noted(self, name: str, call: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def noted(what: Any) -> Any:
            self.happened.append((name, self.is_told))
            return call(what)

        return noted


def test_lists_are_told_before_rows_make_place_for_older_ones(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    newer = Newer(stage, monkeypatch)
    assert newer.verify(newer.pause).remaining == ()
    assert newer.happened == [("pause", True), ("remove", True), ("write", True)]
    assert not newer.is_told


def test_repair_that_is_ended_before_anything_was_taken_away_leaves_the_cell_in_doubt(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(_seconds: float) -> None:
        raise KeyboardInterrupt

    newer = Newer(stage, monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        newer.verify(interrupt)
    assert newer.happened == []
    assert newer.is_told


def test_cell_whose_rows_were_taken_away_is_not_complete_until_it_is_repaired(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    newer = Newer(stage, monkeypatch)
    with monkeypatch.context() as broken:
        broken.setattr(stage.index, "write", _fail)
        with pytest.raises(IndexUnavailableError):
            newer.verify(newer.pause)
    assert newer.is_told
    stage.index.make_searchable()
    assert newer.verify(newer.pause).remaining == ()
    assert not newer.is_told
    assert len(newer.happened) == 3, "what is missing makes nobody wait"


def _fail(_documents: object) -> WriteResult:
    raise IndexUnavailableError("it is away")


def test_external_document_of_no_row_is_kept_and_one_in_the_place_of_a_row_gives_way(stage: Stage) -> None:
    external = [to_document(CELL_UUID, OLDEST_TIME_VERSION + 5, make_record(number)) for number in (1, 9)]
    stage.index.write(external)
    stage.index.make_searchable()
    verification = stage.verify(repair=True)
    assert [(each.uuid, each.kind) for each in verification.differences] == [(make_uuid(1), DifferenceKind.NEWER)]
    assert (verification.remaining, verification.external) == ((), 1)
    assert stage.index.documents[make_uuid(1)].version == 1
    assert stage.index.documents[make_uuid(9)] == external[1]


def test_document_of_another_cell_is_not_taken_away_if_its_mapping_says_the_same(stage: Stage) -> None:
    stage.alter(make_uuid(1), cell_uuid="another")
    stage.owners.cells[make_uuid(1)] = "another"
    (difference,) = stage.verify(repair=True).differences
    assert (difference.kind, difference.is_repaired) == (DifferenceKind.OTHER_CELL, False)
    assert difference.owner == "another"
    assert difference.problem == "the mapping of the instance names cell another"
    assert stage.index.documents[make_uuid(1)].cell_uuid == "another"


@pytest.mark.parametrize("version", [1, 7, OLDEST_TIME_VERSION - 1, OLDEST_TIME_VERSION + 5])
@pytest.mark.parametrize("mapped", [{}, {make_uuid(1): CELL_UUID}])
def test_document_that_another_cell_has_put_in_the_place_of_a_row_gives_way_in_one_pass(
    stage: Stage, mapped: dict[str, str], version: int
) -> None:
    stage.owners.cells |= mapped
    stage.alter(make_uuid(1), cell_uuid="another", version=version)
    (difference,) = stage.verify(repair=True).differences
    assert (difference.kind, difference.owner, difference.version) == (DifferenceKind.OTHER_CELL, "another", version)
    assert difference.is_repaired
    repaired = stage.index.documents[make_uuid(1)]
    assert (repaired.cell_uuid, repaired.version) == (CELL_UUID, 1)
    assert not stage.verify().differences


def test_document_far_ahead_of_its_row_gives_way_in_one_pass(stage: Stage) -> None:
    stage.alter(make_uuid(1), version=OLDEST_TIME_VERSION - 1)
    assert stage.verify(repair=True).remaining == ()
    assert stage.index.documents[make_uuid(1)].version == 1


def test_row_that_was_just_deleted_from_the_index_is_written_in_the_same_pass(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in Elasticsearch, for a minute: to it a document that is deleted is newer than the row, until it forgets."""
    stage.lose(make_uuid(1))
    write, remove = stage.index.write, stage.index.remove
    forgotten: set[str] = set()

    def write_what_is_forgotten(documents: Iterable[Document]) -> WriteResult:
        documents = list(documents)
        result = write([document for document in documents if document.id in forgotten])
        return WriteResult(result.applied, len(documents) - result.applied)

    def forget(versions: Mapping[str, int]) -> None:
        forgotten.update(versions)
        remove(versions)

    monkeypatch.setattr(stage.index, "write", write_what_is_forgotten)
    monkeypatch.setattr(stage.index, "remove", forget)
    (difference,) = stage.verify(repair=True).differences
    assert (difference.kind, difference.is_repaired) == (DifferenceKind.MISSING, True)
    assert stage.index.documents[make_uuid(1)].version == 1


def test_row_that_the_index_rejects_remains_with_the_reason(stage: Stage) -> None:
    stage.lose(make_uuid(1))
    stage.lose(make_uuid(2))
    stage.index.refused[make_uuid(1)] = "too long"
    verification = stage.verify(repair=True)
    assert len(verification.differences) == 2
    (remaining,) = verification.remaining
    assert (remaining.uuid, remaining.problem) == (make_uuid(1), "too long")


def test_without_repair_nothing_is_written(stage: Stage) -> None:
    stage.lose(make_uuid(1))
    writes = list(stage.index.writes)
    assert kinds(stage.verify()) == {make_uuid(1): DifferenceKind.MISSING}
    assert stage.index.writes == writes
    assert make_uuid(1) not in stage.index.documents


def test_progress_is_reported(stage: Stage) -> None:
    stage.lose(make_uuid(1))
    seen: list[tuple[int, int]] = []
    comparison = NativeComparison(stage.cell, stage.index, catch_up_timeout_s=0)
    verify(comparison, repair=True, on_progress=lambda ranges, differences: seen.append((ranges, differences)))
    assert seen[0][1] == 0
    assert seen[-1] == (1, 1)


def test_cell_or_index_that_is_away_ends_the_verification(stage: Stage) -> None:
    stage.cell.is_away = True
    with pytest.raises(CellUnreachableError):
        stage.verify()
    stage.cell.is_away = False
    stage.index.failures = 1
    with pytest.raises(IndexUnavailableError):
        stage.verify()


def test_change_that_was_stale_to_the_index_until_its_document_made_place_is_not_lost(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    newer = Newer(stage, monkeypatch)

    def change_meanwhile(_seconds: float) -> None:
        stage.cell.update(make_uuid(1), display_name="meanwhile")
        stage.follow()

    assert newer.verify(change_meanwhile).remaining == ()
    assert stage.index.documents[make_uuid(1)].record["display_name"] == "meanwhile"
    assert stage.index.documents[make_uuid(2)].version == 1


def test_row_that_says_something_else_at_the_same_revision_is_found_by_content_alone(stage: Stage) -> None:
    row = stage.cell.rows[make_uuid(1)]
    stage.cell.rows[make_uuid(1)] = replace(row, record={**row.record, "display_name": "written again"})
    stage.lose(make_uuid(2))
    assert kinds(stage.verify()) == {make_uuid(2): DifferenceKind.MISSING}
    found = stage.verify(repair=True, catch_up_timeout_s=0, contents_at_once=2)
    assert kinds(found) == {
        make_uuid(1): DifferenceKind.CHANGED,
        make_uuid(2): DifferenceKind.MISSING,
    }
    assert found.remaining == ()
    assert stage.index.documents[make_uuid(1)].record["display_name"] == "written again"
