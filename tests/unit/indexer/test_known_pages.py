"""What the index is asked for a page that was asked for before."""

import time
from collections.abc import Callable, Collection, Mapping, Sequence

import pytest

from fleetlight.indexer.backends.base import FoundPage, FoundRow
from fleetlight.indexer.backends.elasticsearch import known_pages
from fleetlight.indexer.backends.elasticsearch.known_pages import KnownPages
from fleetlight.indexer.backends.elasticsearch.rows import Write


class Index:
    """Rows 0, 1, 2, …, each at the number of its last write; notes what it is asked."""

    def __init__(self, rows: int = 200) -> None:
        self.rows_at = dict.fromkeys(range(rows), 1)
        self.asked: list[str] = []
        self.when_asked_for_some: Callable[[], None] = lambda: None

    def write(self, *rows: int) -> None:
        for row in rows:
            self.rows_at[row] = self.rows_at.get(row, 0) + 1

    def now(self) -> dict[Write, FoundRow]:
        return {
            Write("i", seq_no, 1, (0, row)): FoundRow((row,), f"{row}@{seq_no}".encode())
            for row, seq_no in sorted(self.rows_at.items())
        }

    def whole(self) -> FoundPage:
        rows = list(self.now().values())
        return FoundPage(b",".join([row.item for row in rows]), len(rows), rows[-1].position if rows else None)

    def page(self) -> FoundPage:
        self.asked.append("page")
        return self.whole()

    def writes(self) -> Sequence[Write]:
        self.asked.append("writes")
        return list(self.now())

    def rows(self) -> Mapping[Write, FoundRow]:
        self.asked.append("rows")
        return self.now()

    def rows_of(self, writes: Collection[Write]) -> Mapping[Write, FoundRow]:
        self.when_asked_for_some()
        self.asked.append(f"rows of {len(writes)}")
        wanted = {write.sort[-1] for write in writes}
        return {write: row for write, row in self.now().items() if write.sort[-1] in wanted}


class Caller:
    """Asks for pages, sees that each is the one of now, and tells what the index was asked for it."""

    def __init__(self, index: Index) -> None:
        self.index = index
        self._pages = KnownPages()

    def ask(self, key: str = "page", shown: object = None) -> list[str]:
        self.index.asked.clear()
        assert self._pages.find(key, shown, self.index) == self.index.whole()
        return [*self.index.asked]


@pytest.fixture
def caller() -> Caller:
    return Caller(Index())


@pytest.fixture
def regular(caller: Caller) -> Caller:
    """One whose page is remembered."""
    caller.ask()
    caller.ask()
    return caller


def test_page_is_remembered_when_it_is_asked_for_a_second_time(caller: Caller) -> None:
    assert [caller.ask() for _ in range(4)] == [["page"], ["rows"], ["writes"], ["writes"]]


def test_another_page_is_not_mistaken_for_it(regular: Caller) -> None:
    assert regular.ask("another page") == ["page"]


def test_page_of_few_rows_is_not_remembered() -> None:
    caller = Caller(Index(rows=50))
    assert [caller.ask() for _ in range(3)] == [["page"]] * 3


def test_only_rows_that_have_changed_are_read_again(regular: Caller) -> None:
    regular.index.write(3, 77)
    assert [regular.ask(), regular.ask()] == [["writes", "rows of 2"], ["writes"]]


def test_page_of_which_most_has_changed_is_read_again(regular: Caller) -> None:
    regular.index.write(*range(150))
    assert [regular.ask(), regular.ask()] == [["writes", "rows"], ["writes"]]


def test_row_that_is_gone_costs_nothing(regular: Caller) -> None:
    del regular.index.rows_at[3]
    assert regular.ask() == ["writes"]


def test_row_that_has_become_the_last_one_is_read_for_its_position(regular: Caller) -> None:
    del regular.index.rows_at[199]
    assert [regular.ask(), regular.ask()] == [["writes", "rows of 1"], ["writes"]]


def test_last_row_that_has_changed_is_read_once(regular: Caller) -> None:
    regular.index.write(199)
    assert regular.ask() == ["writes", "rows of 1"]


def test_page_that_has_lost_all_of_its_rows_is_empty(regular: Caller) -> None:
    regular.index.rows_at.clear()
    assert regular.ask() == ["writes"]


def test_page_is_read_again_when_a_row_changes_once_more_meanwhile(regular: Caller) -> None:
    regular.index.write(3)
    regular.index.when_asked_for_some = lambda: regular.index.write(3)
    assert regular.ask() == ["writes", "rows of 1", "rows"]


def test_page_is_rendered_again_when_something_else_that_it_shows_has_changed(regular: Caller) -> None:
    shown = {"host": "UP"}
    assert [regular.ask(shown=shown), regular.ask(shown=shown)] == [["rows"], ["writes"]]


def test_page_is_forgotten_a_minute_after_it_was_used(regular: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = time.monotonic()
    for later_s, asked in ((50, "writes"), (100, "writes"), (170, "page")):
        monkeypatch.setattr(known_pages, "monotonic", lambda: now_s + later_s)  # noqa: B023
        assert regular.ask() == [asked]


def test_pages_that_were_not_used_lately_make_room(regular: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_pages, "_MAX_BYTES", 250_000)
    regular.ask("another page")
    regular.ask("another page")
    assert regular.ask() == ["writes"]
    regular.ask("a third page")
    regular.ask("a third page")
    assert regular.ask("another page") == ["page"]
    assert regular.ask() == ["writes"], "it was used after the one that is gone"


def test_of_pages_that_were_asked_for_once_the_last_ones_are_noted(
    caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(known_pages, "_MAX_NOTES", 2)
    for key in ("first", "second", "third"):
        caller.ask(key)
    assert [caller.ask("first"), caller.ask("third")] == [["page"], ["rows"]]


def test_page_that_was_asked_for_a_minute_ago_is_new(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    caller.ask()
    later_s = time.monotonic() + 70
    monkeypatch.setattr(known_pages, "monotonic", lambda: later_s)
    assert [caller.ask(), caller.ask()] == [["page"], ["rows"]]
