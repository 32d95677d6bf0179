"""What is written can be found while the rest is written, and nothing goes on when that has ended."""

import threading
from collections.abc import Iterator

import pytest

from indexer.errors import IndexUnavailableError
from indexer.writing import searchable_meanwhile as module
from indexer.writing.searchable_meanwhile import searchable_meanwhile
from tests.support.waiting import wait_until


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
    with searchable_meanwhile(index):
        wait_until(lambda: index.asked > 2)


def test_what_fails_inside_ends_it() -> None:
    index = Index()
    with pytest.raises(KeyError), searchable_meanwhile(index):
        raise KeyError
