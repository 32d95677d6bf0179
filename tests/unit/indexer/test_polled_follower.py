"""A cell of other software that is asked now and then whether something has changed, or what."""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

import pytest

from fleetlight.cells.errors import CellUnreachableError
from fleetlight.cells.model import Hints
from tests.support.played.nova_cell import MemoryNovaCell
from tests.support.waiting import wait_until
from tests.unit.indexer.test_external_follower import FollowedStage


class PolledCell(MemoryNovaCell):
    """hint: the instances that the next look names; None: it says that something was committed, not to what.

    looks: how many there were.
    """

    is_continued = False

    def __init__(self, *, proves: bool) -> None:
        super().__init__()
        self.hint: frozenset[str] | None = None if proves else frozenset()
        self.proves = proves
        self.tells = True
        self.looks = 0
        self._committing = Lock()

    def poll_changes(self) -> "PolledCell":
        return self

    def take(self) -> Hints | None:
        if self.is_away or not self.tells:
            raise CellUnreachableError(self.cell.name, "it is away")
        with self._committing:
            self.looks += 1
            hint, self.hint = self.hint, frozenset()
            return Hints(hint, self.now if self.proves else None)

    @contextmanager
    def commit(self, hint: frozenset[str] | None) -> Iterator[None]:
        """What the block changes is committed at once, and the next look says `hint` of it."""
        with self._committing:
            yield
            self.hint = hint


class PolledStage(FollowedStage[PolledCell]):
    def __init__(self, *, proves: bool) -> None:
        self.polled = PolledCell(proves=proves)
        super().__init__(self.polled)

    def fresh_as_of(self) -> int:
        assert self.follower is not None
        return self.follower.progress.fresh_as_of

    def after_looks(self, count: int) -> None:
        looks = self.polled.looks
        wait_until(lambda: self.polled.looks >= looks + count)


@pytest.fixture
def proving() -> PolledStage:
    return PolledStage(proves=True)


@pytest.fixture
def naming() -> PolledStage:
    return PolledStage(proves=False)


def test_index_stays_fresh_without_a_comparison_while_nothing_is_committed(proving: PolledStage) -> None:
    proving.polled.create()
    with proving.running():
        wait_until(lambda: proving.fresh_as_of() == proving.polled.now)
        read = len(proving.polled.readings)
        proving.polled.now += 5_000_000
        wait_until(lambda: proving.fresh_as_of() == proving.polled.now)
        proving.after_looks(3)
        assert len(proving.polled.readings) == read


def test_commit_has_the_cell_compared_before_it_counts_as_fresh(proving: PolledStage) -> None:
    uuid = proving.polled.create()
    with proving.running():
        wait_until(lambda: proving.fresh_as_of() == proving.polled.now)
        with proving.polled.commit(None):
            proving.polled.save_beside(uuid, display_name="new")
        committed_at = proving.polled.now
        wait_until(lambda: proving.fresh_as_of() >= committed_at)
        assert proving.shown(uuid)["display_name"] == "new"


def test_commit_during_a_comparison_has_another_one_made(proving: PolledStage) -> None:
    uuid = proving.polled.create()
    with proving.running():
        wait_until(lambda: proving.fresh_as_of() == proving.polled.now)
        committed: list[int] = []

        def commit_once() -> None:
            if not committed:
                with proving.polled.commit(None):
                    proving.polled.save_beside(uuid, display_name="last")
                committed.append(proving.polled.now)

        with proving.polled.commit(None):
            proving.polled.save_beside(uuid, display_name="first")
            proving.index.before_write = commit_once
        wait_until(lambda: committed and proving.fresh_as_of() >= committed[0])
        assert proving.shown(uuid)["display_name"] == "last"


def test_named_instance_is_read_and_nothing_is_promised(naming: PolledStage) -> None:
    named, other = naming.polled.create(1), naming.polled.create(2)
    with naming.running():
        naming.after_looks(2)
        promised = naming.fresh_as_of()
        with naming.polled.commit(frozenset({named})):
            naming.polled.save(named, display_name="new")
            naming.polled.save_beside(other, display_name="not told of")
        wait_until(lambda: naming.shown(named)["display_name"] == "new")
        naming.after_looks(2)
        assert naming.shown(other)["display_name"] != "not told of"
        assert naming.fresh_as_of() == promised


@pytest.mark.parametrize("proves", [True, False])
def test_notifications_are_taken_beside_and_also_while_the_cell_is_away(proves: bool) -> None:
    stage = PolledStage(proves=proves)
    uuid = stage.polled.create()
    with stage.running():
        stage.after_looks(2)
        stage.polled.is_away = True
        stage.polled.save(uuid, display_name="announced")
        stage.send(stage.polled.notify(stage.polled.snapshot(uuid), "instance.update"))
        assert stage.shown(uuid)["display_name"] == "announced"


def test_cell_that_was_away_is_compared_before_it_counts_as_fresh(proving: PolledStage) -> None:
    uuid = proving.polled.create()
    with proving.running() as follower:
        wait_until(lambda: proving.fresh_as_of() == proving.polled.now)
        proving.polled.is_away = True
        wait_until(lambda: follower.health.problem)
        proving.polled.save_beside(uuid, display_name="meanwhile")
        committed_at = proving.polled.now
        proving.polled.is_away = False
        wait_until(lambda: proving.fresh_as_of() >= committed_at)
        assert proving.shown(uuid)["display_name"] == "meanwhile"


@pytest.mark.parametrize("proves", [True, False])
def test_cell_that_does_not_say_what_has_changed_is_compared_all_the_same(proves: bool) -> None:
    stage = PolledStage(proves=proves)
    stage.polled.tells = False
    uuid = stage.polled.create()
    with stage.running():
        wait_until(stage.fresh_as_of)
        assert uuid in stage.index.documents


def test_problem_of_a_cell_that_is_away_stays_until_it_answers(proving: PolledStage) -> None:
    proving.polled.create()
    with proving.running() as follower:
        wait_until(lambda: proving.fresh_as_of() == proving.polled.now)
        proving.polled.is_away = True
        wait_until(lambda: follower.health.problem)
        uuid = proving.polled.create(2)
        for _ in range(3):
            proving.send(proving.polled.notify(proving.polled.snapshot(uuid), "instance.update"))
            assert follower.health.problem
        proving.polled.is_away = False
        wait_until(lambda: not follower.health.problem)
