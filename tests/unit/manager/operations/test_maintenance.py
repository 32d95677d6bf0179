"""When a maintenance task of a worker is done: at intervals, and while nothing is committed as seldom as it says."""

import pytest

from fleetlight.manager.operations.jobs.maintenance import AT_ONCE, MaintenanceTask


class Task:
    """A task that is done every second, at moments that the test chooses. rest_s: what it says after each time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, rest_s: float | None = None, found: int = 0) -> None:
        self.now_s = 1_000.0
        self.count = 0
        self.rest_s = rest_s
        self.found = found
        monkeypatch.setattr("time.monotonic", lambda: self.now_s)
        self._task = MaintenanceTask(self._do, 1.0, rest_s=None if rest_s is None else lambda: self.rest_s or 0.0)

    def _do(self) -> int:
        self.count += 1
        return self.found

    def times(self, *moments_s: float, may_be_new: bool = False) -> int:
        """How often it was done when it was called at these moments."""
        before = self.count
        for self.now_s in moments_s:
            self._task(may_be_new=may_be_new)
        return self.count - before

    @property
    def due_s(self) -> float:
        return self._task.due_s


def test_task_is_done_once_in_its_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    task = Task(monkeypatch)
    assert task.times(1000.0, 1000.5, 1000.9) == 1
    assert task.due_s == 1001.0
    assert task.times(1001.0, 1001.5) == 1


def test_task_with_more_to_do_is_done_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    task = Task(monkeypatch, rest_s=30.0, found=AT_ONCE)
    assert task.times(1000.0, 1000.1, 1000.2) == 3


def test_task_that_rests_is_done_when_its_rest_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    task = Task(monkeypatch, rest_s=30.0)
    assert task.times(1000.0, 1001.0, 1029.9) == 1
    assert task.due_s == 1030.0
    assert task.times(1030.0) == 1


def test_commit_ends_the_rest_but_not_the_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    task = Task(monkeypatch, rest_s=30.0)
    assert task.times(1000.0) == 1
    assert task.times(1000.2, may_be_new=True) == 0
    assert task.due_s == 1001.0
    assert task.times(1000.9, 1001.0, 1002.0) == 1


def test_task_that_could_rest_for_ever_is_done_each_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    task = Task(monkeypatch, rest_s=float("inf"))
    assert task.times(1000.0, 1059.0, 1060.0) == 2


def test_task_whose_rest_is_over_keeps_to_its_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    task = Task(monkeypatch, rest_s=-5.0)
    assert task.times(1000.0, 1000.5, 1001.0) == 2
