"""A cell of Nova that is followed by the log of its database: the index is whole up to what the log was read to."""

from dataclasses import replace
from functools import partial

import pytest

from fleetlight.cells.errors import CommitLogError
from fleetlight.indexer.backends.base import CellProgress
from tests.support.played.logged_cell import ADDRESS, LoggedCell
from tests.support.waiting import wait_until
from tests.unit.indexer.test_external_follower import FollowedStage


class LoggedStage(FollowedStage[LoggedCell]):
    """A stage whose cell keeps a log. logged: the same cell."""

    def __init__(self) -> None:
        self.logged = LoggedCell()
        super().__init__(self.logged)

    def reached(self, number: int) -> bool:
        assert self.follower is not None
        return self.follower.progress.watermark == number

    def progress(self) -> CellProgress:
        assert self.follower is not None
        return self.follower.progress


@pytest.fixture
def stage() -> LoggedStage:
    return LoggedStage()


def test_touched_rows_are_read_again_and_the_watermark_is_the_number_of_the_commit(stage: LoggedStage) -> None:
    one, other = stage.logged.create(1), stage.logged.create(2)
    with stage.running():
        stage.logged.save(one, display_name="new")
        stage.logged.save_beside(other, display_name="not told of")
        named_at = stage.logged.now
        number = stage.logged.commit(one)
        wait_until(partial(stage.reached, number))
        assert stage.shown(one)["display_name"] == "new"
        assert stage.shown(other)["display_name"] != "not told of"
        assert stage.progress().fresh_as_of >= named_at


def test_row_that_is_gone_is_removed_and_one_that_was_deleted_stays(stage: LoggedStage) -> None:
    gone, deleted = stage.logged.create(1), stage.logged.create(2)
    with stage.running():
        stage.logged.destroy(deleted)
        wait_until(partial(stage.reached, stage.logged.commit(deleted)))
        del stage.logged.rows[gone], stage.logged.rows[deleted]
        wait_until(partial(stage.reached, stage.logged.commit(gone, deleted)))
    assert set(stage.index.documents) == {deleted}


def test_nothing_is_promised_of_a_commit_that_named_no_row_before_all_rows_were_compared(stage: LoggedStage) -> None:
    uuids = [stage.logged.create(number) for number in range(1, 8)]
    with stage.running():
        wait_until(partial(stage.reached, stage.logged.commit()))
        promised = stage.progress()
        seen: list[CellProgress] = []
        for uuid in uuids:
            stage.logged.save_beside(uuid, display_name="altered")

        def told_meanwhile() -> None:
            # In the middle of the comparison: the log goes on, and names nothing more.
            if len(seen) < 3 and stage.logged.hints is not None:
                stage.logged.commit()
                seen.append(stage.progress())

        stage.index.before_write = told_meanwhile
        number = stage.logged.commit(is_said=False)
        wait_until(lambda: stage.progress().watermark >= number)
        assert seen
        assert all(each == promised for each in seen)
        stage.has_what_the_cell_has()


def test_what_could_not_be_written_is_told_again(stage: LoggedStage) -> None:
    uuid = stage.logged.create(1)
    with stage.running():
        reached = stage.logged.commit()
        wait_until(partial(stage.reached, reached))
        stage.logged.save(uuid, display_name="new")
        first = stage.logged.hints
        stage.index.failures = 1
        stage.logged.commit(uuid)
        wait_until(lambda: stage.logged.hints not in (None, first))
        assert stage.logged.asked[-1][ADDRESS].number == reached
        assert stage.progress().watermark == reached
        wait_until(partial(stage.reached, stage.logged.commit(uuid)))
        assert stage.shown(uuid)["display_name"] == "new"


def test_log_that_lost_its_place_has_the_cell_compared_before_anything_is_promised(stage: LoggedStage) -> None:
    uuid = stage.logged.create(1)
    with stage.running():
        wait_until(partial(stage.reached, stage.logged.commit()))
        stage.logged.has_kept = False
        hints = stage.logged.hints
        assert hints is not None
        stage.logged.save_beside(uuid, display_name="in no log")
        hints.fail(CommitLogError("the connection has ended", is_lasting=False))
        wait_until(lambda: stage.logged.hints not in (None, hints))
        wait_until(partial(stage.reached, stage.logged.commit()))
        assert stage.shown(uuid)["display_name"] == "in no log"


def test_comparison_that_was_cut_off_is_made_again_before_anything_is_promised(stage: LoggedStage) -> None:
    uuid = stage.logged.create(1)
    with stage.running():
        wait_until(partial(stage.reached, reached := stage.logged.commit()))
        stage.logged.save_beside(uuid, display_name="in no log")
        first = stage.logged.hints
        stage.logged.is_away = True
        stage.logged.commit(is_said=False)
        wait_until(lambda: stage.logged.hints not in (None, first))
        assert stage.progress().watermark == reached
        stage.logged.is_away = False
        # Nothing in the log from here on says what was touched.
        wait_until(lambda: stage.logged.hints is not None and stage.logged.commit() and not stage.reached(reached))
        assert stage.shown(uuid)["display_name"] == "in no log"


def test_instance_that_could_not_be_indexed_is_read_again_after_a_failure_of_the_log(stage: LoggedStage) -> None:
    uuid = stage.logged.create(1)
    with stage.running():
        stage.index.refused[uuid] = "played"
        stage.logged.save(uuid, display_name="new")
        stage.logged.commit(uuid)
        wait_until(lambda: not stage.progress().is_complete)
        hints = stage.logged.hints
        assert hints is not None
        stage.index.refused.clear()
        hints.fail(CommitLogError("the connection has ended", is_lasting=False))
        wait_until(lambda: stage.progress().is_complete)
        assert stage.shown(uuid)["display_name"] == "new"


def test_number_that_went_back_takes_the_promise_back_until_the_cell_was_compared(stage: LoggedStage) -> None:
    uuid = stage.logged.create(1)
    with stage.running():
        wait_until(partial(stage.reached, stage.logged.commit()))
        stage.logged.save_beside(uuid, display_name="from a backup")
        stage.logged.number = 10
        stage.logged.commit()
        wait_until(lambda: stage.shown(uuid)["display_name"] == "from a backup")
        wait_until(partial(stage.reached, stage.logged.commit()))
        assert stage.progress().is_complete


def test_queue_that_was_made_before_is_removed(stage: LoggedStage) -> None:
    stage.logged.cell = replace(stage.logged.cell, transport_url="amqp://bus/nova")
    with stage.running():
        wait_until(lambda: stage.logged.hints)
    stage.released.assert_called_once_with(stage.logged.cell, is_gone=False)


def test_log_that_cannot_be_read_leaves_the_cell_to_notifications(stage: LoggedStage) -> None:
    stage.logged.refusal = CommitLogError("the log of PostgreSQL is not read", is_lasting=True)
    uuid = stage.logged.create(1)
    with stage.running() as follower:
        wait_until(lambda: follower.progress.is_complete)
        stage.logged.save(uuid, display_name="announced")
        stage.send(stage.logged.notify(stage.logged.snapshot(uuid), "instance.update"))
        assert stage.shown(uuid)["display_name"] == "announced"
        assert follower.progress.watermark == 0
    assert len(stage.logged.asked) == 1


def test_another_process_that_reads_the_log_is_waited_for(stage: LoggedStage) -> None:
    lease = next(iter(names_of(stage)))
    stage.leases.taken[lease] = "another indexer"
    stage.logged.create(1)
    with stage.running() as follower:
        wait_until(lambda: follower.health.activity.value == "standing by")
        assert not stage.logged.asked
        del stage.leases.taken[lease]
        wait_until(lambda: stage.logged.hints)
        wait_until(partial(stage.reached, stage.logged.commit()))


def names_of(stage: LoggedStage) -> set[str]:
    """The lease of the log, as an indexer takes it."""
    with stage.running():
        wait_until(lambda: stage.logged.hints)
        found = {name for name in stage.leases.held if name.startswith("index-log-")}
    stage.leases.held.clear()
    stage.logged.asked.clear()
    return found
