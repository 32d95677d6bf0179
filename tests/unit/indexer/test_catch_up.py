from collections.abc import Callable, Sequence

import pytest

from fleetlight.cells.errors import CellUnreachableError
from fleetlight.cells.fleet.producer_keys import RefusedAnnouncement
from fleetlight.cells.model import Change
from fleetlight.indexer.backends.base import CellProgress
from fleetlight.indexer.errors import DeadLetterReason, MalformedMessageError
from fleetlight.indexer.writing.catch_up import catch_up, reaches_back_to_the_beginning
from fleetlight.indexer.writing.progress import ProgressTracker
from tests.support.memory.memory_cell import CELL_UUID, OTHER_UUID, MemoryCell
from tests.support.memory.memory_index import versions
from tests.support.memory.stage import NativeStage


class Stage(NativeStage[MemoryCell]):
    """The index has what the cell announced up to the watermark."""

    def __init__(self, cell: MemoryCell, watermark: int = 0) -> None:
        super().__init__(cell)
        self.dead: list[tuple[int, DeadLetterReason]] = []
        self.batches = 0
        self.announcer = "the outbox"
        self.tracker = ProgressTracker(CellProgress(CELL_UUID, watermark, 0, is_complete=True))

    def catch_up(self, batch_size: int = 3) -> bool:
        return catch_up(
            self.cell,
            self.index,
            self.tracker,
            announcer=self.announcer,
            dead_letters=self._keep_dead,
            batch_size=batch_size,
            on_batch=self._on_batch,
        )

    def _keep_dead(self, changes: Sequence[tuple[Change, MalformedMessageError]]) -> None:
        assert all(map(str, (error for _, error in changes)))
        self.dead += [(change.sequence, error.reason) for change, error in changes]

    def _on_batch(self) -> None:
        self.batches += 1


def filled(count: int, watermark: int = 0) -> Stage:
    return Stage(MemoryCell(instances=count), watermark)


def test_everything_after_the_watermark_is_written_in_batches() -> None:
    stage = filled(7)
    assert stage.catch_up()
    assert versions(stage.index) == stage.cell.versions()
    assert stage.tracker.watermark == 7
    assert stage.batches == 3


def test_what_the_watermark_covers_is_not_read_again() -> None:
    stage = filled(7, watermark=5)
    assert stage.catch_up()
    assert len(stage.index.documents) == 2


def test_cell_without_changes_is_caught_up_with() -> None:
    stage = filled(0)
    assert stage.catch_up()
    assert stage.tracker.watermark == 0


@pytest.mark.parametrize("batch_size", [1, 3, 100])
def test_changelog_that_no_longer_reaches_back_needs_a_sync(batch_size: int) -> None:
    stage = filled(7, watermark=3)
    stage.cell.prune(4)
    assert not stage.catch_up(batch_size)
    assert stage.tracker.watermark == 3


def test_changelog_without_any_change_left_needs_a_sync_if_something_was_missed() -> None:
    stage = filled(7, watermark=6)
    stage.cell.prune(7)
    assert not stage.catch_up()
    assert filled(7, watermark=7).catch_up()


def test_changelog_that_is_pruned_while_it_is_read_needs_a_sync() -> None:
    stage = filled(9)

    def prune_in_between() -> None:
        stage.cell.prune(5)

    stage.index.before_write = prune_in_between
    assert not stage.catch_up(batch_size=3)
    assert stage.tracker.watermark == 3


def test_announcement_in_the_changelog_is_written_or_refused_as_one_on_the_bus_is() -> None:
    stage, elsewhere = filled(2), MemoryCell()
    stage.announcer = RefusedAnnouncement("it takes none")
    stage.cell.pass_on(elsewhere.create(), "")
    own = next(iter(stage.cell.rows))
    stage.cell.pass_on(stage.cell.update(own), own)
    assert stage.catch_up()
    assert stage.dead == [(3, DeadLetterReason.REFUSED)], "what is said of a row of the cell does no harm"
    assert versions(stage.index) == stage.cell.versions()
    taken = Stage(stage.cell)
    assert taken.catch_up()
    assert taken.index.documents.keys() == {*stage.cell.rows, *elsewhere.rows}
    assert taken.dead == []


def test_cell_that_does_not_know_the_watermark_needs_a_sync() -> None:
    assert not filled(4, watermark=9).catch_up()


def test_unreadable_change_goes_to_the_dead_letters_and_the_others_go_on() -> None:
    stage = filled(3)
    stage.cell.damage(2)
    assert stage.catch_up()
    assert stage.dead == [(2, DeadLetterReason.MALFORMED)]
    assert len(stage.index.documents) == 2
    assert stage.tracker.watermark == 3


def test_rejected_change_goes_to_the_dead_letters() -> None:
    stage = filled(3)
    stage.index.refused[stage.cell.changes[1].instance_uuid] = "too long"
    assert stage.catch_up()
    assert stage.dead == [(2, DeadLetterReason.REJECTED)]


def test_notification_of_somebody_else_in_the_changelog_is_merged() -> None:
    stage = filled(1)
    change = stage.cell.changes[0]
    stage.cell.changes[0] = Change(1, "", 0, change.routing_key, change.message)
    stage.cell.rows.clear()
    assert stage.catch_up()
    [document] = stage.index.documents.values()
    assert document.version > 1_000_000_000_000_000


@pytest.mark.parametrize("batch_size", [1, 2, 3])
def test_whoever_speaks_of_an_instance_before_its_cell_does_hides_none_of_its_changes(batch_size: int) -> None:
    elsewhere = MemoryCell(OTHER_UUID)
    said = elsewhere.create(host="wrong")
    [uuid] = elsewhere.rows
    stage = filled(0)
    stage.cell.pass_on(said, uuid)
    stage.cell.create(uuid=uuid, host="a")
    stage.cell.update(uuid, host="b")
    assert stage.catch_up(batch_size)
    assert versions(stage.index) == stage.cell.versions()


def test_cell_that_is_away_is_named() -> None:
    stage = filled(0)
    stage.cell.is_away = True
    with pytest.raises(CellUnreachableError, match="one"):
        stage.catch_up()


@pytest.mark.parametrize(
    ("prepare", "expected"),
    [
        (lambda cell: None, False),
        (lambda cell: cell.create(), True),
        (lambda cell: (cell.create(), cell.create(), cell.prune(1)), False),
    ],
)
def test_changelog_reaches_back_to_the_beginning_if_it_has_the_first_change(
    prepare: Callable[[MemoryCell], object], expected: bool
) -> None:
    cell = MemoryCell()
    prepare(cell)
    assert reaches_back_to_the_beginning(cell) is expected


def test_notification_of_somebody_else_does_not_stand_for_a_change_that_was_rejected() -> None:
    stage = filled(1)
    uuid = next(iter(stage.cell.rows))
    update = stage.cell.update(uuid, host="b")
    stage.index.refused[uuid] = "no"
    assert stage.catch_up()
    stage.tracker.mark_unindexed(uuid)
    stage.cell.pass_on(update, uuid)
    assert stage.catch_up()
    assert stage.tracker.unindexed == {uuid}
    del stage.index.refused[uuid]
    stage.cell.update(uuid, host="c")
    assert stage.catch_up()
    assert not stage.tracker.unindexed
