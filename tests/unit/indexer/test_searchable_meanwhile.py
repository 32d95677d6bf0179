"""What is written can be found while the rest is written, and nothing goes on when that has ended."""

import threading
from collections.abc import Iterator
from threading import Event

import pytest

from fleetlight.indexer.errors import IndexUnavailableError
from fleetlight.indexer.writing import searchable_meanwhile as module
from fleetlight.indexer.writing.searchable_meanwhile import searchable_meanwhile
from fleetlight.indexer.writing.throttle import Throttle
from tests.support.waiting import wait_until

AS_FAST_AS_IT_GOES = Throttle(None, Event())


class Index:
    def __init__(self, *, fails: bool = False) -> None:
        self.asked = 0
        self._fails = fails

    def make_searchable(self) -> None:
        self.asked += 1
        if self._fails:
            raise IndexUnavailableError("away")


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(module, "_INTERVAL_S", 0.001)
    yield
    # Nothing goes on.
    assert not [thread for thread in threading.enumerate() if thread.name == "searchable-meanwhile"]


@pytest.mark.parametrize("fails", [False, True])
def test_it_is_made_searchable_again_and_again_also_after_a_failure(fails: bool) -> None:
    index = Index(fails=fails)
    with searchable_meanwhile(index, AS_FAST_AS_IT_GOES):
        wait_until(lambda: index.asked > 2)


def test_what_fails_inside_ends_it() -> None:
    index = Index()
    with pytest.raises(KeyError), searchable_meanwhile(index, AS_FAST_AS_IT_GOES):
        raise KeyError


@pytest.mark.parametrize(("rows_per_s", "waits_s"), [(None, 0.5), (20_000, 0.5), (2000, 2.5), (10, 10.0)])
def test_slow_writing_is_made_searchable_less_often(
    rows_per_s: float | None, waits_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    waits: list[float | None] = []

    class Over(Event):
        def wait(self, timeout: float | None = None) -> bool:
            waits.append(timeout)
            return super().wait(timeout)

    monkeypatch.setattr(module, "Event", Over)
    with searchable_meanwhile(Index(), Throttle(rows_per_s, Event())):
        wait_until(lambda: waits)
    assert waits[0] == waits_s
