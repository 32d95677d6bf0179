"""Changelogs that indexers keep of cells that number nothing, in both kinds of fleet database."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from fleetlight.cells.capabilities import CellKind
from fleetlight.cells.epochs import Position
from fleetlight.cells.fleet import journals as journals_module
from fleetlight.cells.fleet.announced_instances import AnnouncedInstance
from fleetlight.cells.fleet.fleet import Fleet
from fleetlight.cells.fleet.journals import DetectedChange, Journals
from tests.support.fleets.documents import make_record, make_uuid

ONE, TWO = "5a1c6f0e-8c8e-4d6f-9a52-0a3a1d2f7b11", "5a1c6f0e-8c8e-4d6f-9a52-0a3a1d2f7b22"


@pytest.fixture
def journals(fleet: Fleet) -> Journals:
    fleet.journals.start_over(ONE)
    return fleet.journals


def found(number: int, version: int = 1, *, is_gone: bool = False, **values: Any) -> DetectedChange:
    return DetectedChange(make_uuid(number), version, make_record(number, **values), is_gone)


def numbered(journals: Journals, after: int = 0, limit: int = 100) -> list[tuple[int, str, int]]:
    reading = journals.read(ONE, after, limit)
    assert reading is not None
    return [(number, each.instance_uuid, each.version) for number, each in reading.entries]


def test_findings_are_numbered_in_order_and_read_whole(journals: Journals) -> None:
    detected_changes = [found(1, tags=["a"], display_name="ä"), found(2, is_gone=True)]
    journals.append(ONE, detected_changes)
    journals.confirm(ONE, 7)
    reading = journals.read(ONE, 0, 100)
    assert reading is not None
    assert [detected_change for _, detected_change in reading.entries] == detected_changes
    assert (reading.now, reading.now.sequence, reading.followed_at) == (journals.position(ONE), 2, 7)
    assert numbered(journals, after=1) == [(2, make_uuid(2), 1)]
    assert numbered(journals, limit=1) == [(1, make_uuid(1), 1)]
    assert numbered(journals, after=2) == []


def test_journal_is_read_back_from_its_end_over_numbers_that_are_no_longer_there(journals: Journals) -> None:
    journals.append(ONE, [found(number) for number in range(1, 5)])
    for version in range(2, 9):
        journals.append(ONE, [found(2, version), found(4, version)])

    def back(before: int, limit: int) -> list[int]:
        reading = journals.read_back(ONE, before, limit)
        assert reading is not None
        assert reading.now == journals.position(ONE)
        return [number for number, _ in reading.entries]

    assert back(1000, 3) == [18, 17, 3]
    assert back(18, 2) == [17, 3]
    assert back(3, 100) == [1]
    assert back(1, 100) == []
    assert journals.read_back(TWO, 1000, 1) is None


def test_of_an_instance_only_the_newest_is_kept_and_nothing_older_takes_its_place(journals: Journals) -> None:
    journals.append(ONE, [found(1, 5), found(2, 5)])
    journals.append(ONE, [found(1, 6)])
    # What another indexer had read before that.
    journals.append(ONE, [found(1, 5), found(2, 4)])
    assert numbered(journals) == [(2, make_uuid(2), 5), (3, make_uuid(1), 6)]


def test_journal_goes_back_so_many_numbers(journals: Journals, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journals_module, "KEPT", 3)
    for number in range(1, 6):
        journals.append(ONE, [found(number)])
    assert [number for number, _, _ in numbered(journals)] == [3, 4, 5]


def test_new_journal_is_empty_and_another_one(journals: Journals) -> None:
    journals.append(ONE, [found(1)])
    before = journals.position(ONE)
    assert Position(journals.start_over(ONE), 0) == journals.position(ONE) != before
    assert numbered(journals) == []


def test_any_number_of_indexers_may_begin_a_journal_at_once(journals: Journals) -> None:
    with ThreadPoolExecutor(4) as threads:
        for begun in [threads.submit(journals.start_over, ONE) for _ in range(40)]:
            begun.result()
    journals.append(ONE, [found(1)])
    assert numbered(journals) == [(1, make_uuid(1), 1)]


def test_cell_without_a_journal_has_nothing_to_read(journals: Journals) -> None:
    journals.append(TWO, [found(1)])
    journals.confirm(TWO, 7)
    assert journals.position(TWO) is None
    assert journals.read(TWO, 0, 100) is None


def test_numbers_come_in_the_order_of_commits_whoever_writes(journals: Journals) -> None:
    with ThreadPoolExecutor(4) as threads:
        writes = [threads.submit(journals.append, ONE, [found(number)]) for number in range(1, 21)]
        seen: set[int] = set()
        last = 0
        while last < 20:
            entries = numbered(journals, after=last)
            assert all(number not in seen for number, _, _ in entries)
            seen |= {number for number, _, _ in entries}
            last = max([last, *seen])
        for write in writes:
            write.result()
    assert seen == set(range(1, 21)), "nobody has seen a number before the lower ones were there"


def test_journal_goes_with_its_cell(fleet: Fleet) -> None:
    cell = fleet.add_cell("nova", CellKind.NOVA_DB, "sqlite:////nowhere", "", uuid=ONE)
    fleet.journals.start_over(ONE)
    fleet.journals.append(ONE, [found(1)])
    fleet.set_disabled(ONE, True)
    fleet.remove_cell(fleet.cell(cell.uuid))
    assert fleet.journals.read(ONE, 0, 100) is None
    fleet.journals.start_over(ONE)
    assert numbered(fleet.journals) == []


def announced(number: int, version: int = 1, **values: Any) -> AnnouncedInstance:
    return AnnouncedInstance(make_uuid(number), version, make_record(number, **values), b"{}")


def test_of_what_is_announced_the_newest_state_is_kept_whole(fleet: Fleet) -> None:
    store = fleet.journals.announced
    newest = announced(1, 5, display_name="ä", tags=["a"])
    for each in (announced(1, 3), newest, announced(1, 4), announced(2)):
        store.keep(ONE, [each])
    store.keep(TWO, [announced(1, 9)])
    assert store.versions(ONE) == {make_uuid(1): 5, make_uuid(2): 1}
    assert store.read(ONE, [make_uuid(1), make_uuid(3)]) == [newest]
    store.forget(ONE, [make_uuid(1)])
    assert [store.versions(ONE), store.versions(TWO)] == [{make_uuid(2): 1}, {make_uuid(1): 9}]


def test_what_was_announced_goes_with_the_retention_and_never_is_more_than_the_limit(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fleetlight.cells.fleet.announced_instances.MOST_KEPT", 2)
    store = fleet.journals.announced
    old, young = ({"deleted": True, "deleted_at": moment} for moment in (99, 100))
    store.keep(ONE, [announced(1, 9, **old), announced(2, 1, **young), announced(3, 2), announced(4, 3)])
    store.prune(ONE, 100)
    assert store.versions(ONE) == {make_uuid(3): 2, make_uuid(4): 3}
