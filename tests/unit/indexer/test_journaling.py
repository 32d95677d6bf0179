"""What an indexer finds in a cell of Nova is in the cell's journal first, or a new journal begins."""

from collections.abc import Callable

import pytest

from fleetlight.indexer.reconcile.external_cell import compare_cell
from fleetlight.indexer.transform.documents import to_document
from fleetlight.indexer.writing.journaling import CellJournal, JournalingWriter
from tests.support.fleets.documents import make_record
from tests.support.memory.memory_fleet import MemoryJournals
from tests.support.memory.memory_index import MemoryIndex
from tests.support.played.nova_cell import NOVA_CELL, MemoryNovaCell

CELL = NOVA_CELL.uuid


@pytest.fixture
def journals() -> MemoryJournals:
    return MemoryJournals()


@pytest.fixture
def index() -> MemoryIndex:
    return MemoryIndex()


@pytest.fixture
def new_journal(
    journals: MemoryJournals, index: MemoryIndex, monkeypatch: pytest.MonkeyPatch
) -> Callable[[], CellJournal]:
    """As an indexer has it that has just started."""
    monkeypatch.setattr("fleetlight.indexer.writing.journaling._INTERVAL_S", 0.0)
    return lambda: CellJournal(CELL, journals, index, clock=lambda: 7)


def test_journal_begins_once_for_an_index(journals: MemoryJournals, new_journal: Callable[[], CellJournal]) -> None:
    new_journal().keep_up()
    first = journals.position(CELL)
    new_journal().keep_up()
    assert journals.position(CELL) == first is not None
    assert journals.followed_at == {CELL: 7}


def test_index_that_was_made_anew_gets_another_journal(
    journals: MemoryJournals, index: MemoryIndex, new_journal: Callable[[], CellJournal]
) -> None:
    new_journal().keep_up()
    first = journals.position(CELL)
    index.replace()
    new_journal().keep_up()
    assert journals.position(CELL) != first


def test_what_is_written_is_told_before_it_is_in_the_index(
    journals: MemoryJournals, index: MemoryIndex, new_journal: Callable[[], CellJournal]
) -> None:
    journal = new_journal()
    journal.keep_up()
    document = to_document(CELL, 5, make_record(1))
    told_first: list[bool] = []
    index.before_write = lambda: told_first.append([each.version for each in journals.found] == [5])
    JournalingWriter(index, journal).write([document])
    assert told_first == [True]


def test_index_is_written_while_the_journal_is_away_and_another_journal_begins_then(
    journals: MemoryJournals, index: MemoryIndex, new_journal: Callable[[], CellJournal]
) -> None:
    journal = new_journal()
    journal.keep_up()
    first = journals.position(CELL)
    journals.is_away = True
    JournalingWriter(index, journal).write([to_document(CELL, 5, make_record(1))])
    journal.keep_up()
    assert len(index.documents) == 1
    journals.is_away = False
    # Whoever goes on: the index says it.
    new_journal().keep_up()
    assert journals.position(CELL) != first


def test_comparison_tells_what_differs_and_what_is_gone(
    journals: MemoryJournals, index: MemoryIndex, new_journal: Callable[[], CellJournal]
) -> None:
    cell, journal = MemoryNovaCell(), new_journal()
    same, changed, purged = (cell.create(number) for number in (1, 2, 3))
    compare_cell(cell, index, journal=journal.of_comparison(was_whole=False), batch_size=10, clock=lambda: cell.now)
    journal.keep_up()
    assert journals.found == [], "nobody is told of a whole cell"
    cell.save(changed, display_name="new")
    del cell.rows[purged]
    compare_cell(cell, index, journal=journal.of_comparison(was_whole=True), batch_size=10, clock=lambda: cell.now)
    assert [(each.instance_uuid, each.is_gone) for each in journals.found] == [(changed, False), (purged, True)]
    assert set(index.documents) == {same, changed}


def test_first_comparison_of_a_cell_ends_the_journal_that_there_was(
    journals: MemoryJournals, index: MemoryIndex, new_journal: Callable[[], CellJournal]
) -> None:
    journal = new_journal()
    journal.keep_up()
    first = journals.position(CELL)
    compare_cell(MemoryNovaCell(), index, journal=journal.of_comparison(was_whole=False), batch_size=10)
    journal.keep_up()
    assert journals.position(CELL) != first


@pytest.mark.parametrize("has_started_anew", [True, False])
def test_journal_that_went_back_to_an_older_copy_ends(
    journals: MemoryJournals, index: MemoryIndex, new_journal: Callable[[], CellJournal], has_started_anew: bool
) -> None:
    journal = new_journal()
    journal.keep_up()
    writer = JournalingWriter(index, journal)
    writer.write([to_document(CELL, 5, make_record(1)), to_document(CELL, 5, make_record(2))])
    journal.keep_up()
    first = journals.position(CELL)
    journals.sequence -= 1
    if not has_started_anew:
        # As many changes as were lost come before it is looked at.
        writer.write([to_document(CELL, 6, make_record(1)), to_document(CELL, 6, make_record(2))])
    (new_journal() if has_started_anew else journal).keep_up()
    now = journals.position(CELL)
    assert first is not None
    assert now is not None
    assert now.epoch != first.epoch
