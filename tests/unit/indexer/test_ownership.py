"""Asking whose instances are, while the fleet database hangs or is away."""

import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from threading import Event

import pytest

from fleetlight.cells.errors import FleetUnreachableError
from fleetlight.indexer.backends.base import OLDEST_TIME_VERSION
from fleetlight.indexer.writing import ownership
from fleetlight.indexer.writing.ownership import OwnWriter, PromptOwners
from tests.support.fleets.documents import make_document, make_uuid
from tests.support.memory.memory_fleet import MemoryOwners
from tests.support.memory.memory_index import MemoryIndex

ANNOUNCED = OLDEST_TIME_VERSION


class HangingOwners(MemoryOwners):
    """Answers nothing before it may."""

    def __init__(self) -> None:
        super().__init__()
        self.may_answer = Event()

    def cells_of(self, instance_uuids: Collection[str]) -> Mapping[str, str]:
        self.questions += 1
        self.may_answer.wait(60)
        return {}


@pytest.fixture
def hanging(monkeypatch: pytest.MonkeyPatch) -> Iterator[HangingOwners]:
    monkeypatch.setattr(ownership, "_TIMEOUT_S", 0.02)
    owners = HangingOwners()
    yield owners
    owners.may_answer.set()


@pytest.mark.parametrize(("again_after_s", "threads"), [(0.0, ownership._QUERIES_AT_ONCE), (60.0, 1)])
def test_owners_that_hang_keep_a_few_threads_for_all_cells(
    hanging: HangingOwners, monkeypatch: pytest.MonkeyPatch, again_after_s: float, threads: int
) -> None:
    monkeypatch.setattr(ownership, "_ASK_AGAIN_S", again_after_s)
    owners, index = PromptOwners(hanging), MemoryIndex()
    before = threading.active_count()
    for number in range(8):
        cell = f"c{number}"
        assert OwnWriter(index, cell, owners).write([make_document(number, cell_uuid=cell)]).applied == 1
    assert hanging.questions == threads
    assert threading.active_count() - before == threads


def test_owners_that_are_away_are_not_asked_again_at_once_by_any_question() -> None:
    owners = MemoryOwners(is_away=True)
    prompt = PromptOwners(owners)
    questions: list[Callable[[], object]] = [
        lambda: prompt.living_elsewhere("c0", [make_uuid(1)]),
        lambda: prompt.cells_of([make_uuid(1)]),
        lambda: prompt.living_elsewhere("c1", [make_uuid(1)]),
    ]
    for question in questions:
        with pytest.raises(FleetUnreachableError):
            question()
    assert owners.questions == 1


def test_announcement_of_an_unknown_instance_does_not_outrank_its_row_after_the_fleet_database_was_away() -> None:
    owners, index = MemoryOwners({make_uuid(1): "c0"}, is_away=True), MemoryIndex()
    forged = make_document(1, cell_uuid="c1", version=ANNOUNCED)
    [refused] = OwnWriter(index, "c1", owners).write([forged]).rejected
    assert "the fleet database" in refused.reason
    owners.is_away = False
    assert OwnWriter(index, "c0", owners).write([make_document(1)]).applied == 1
    assert index.documents[make_uuid(1)].cell_uuid == "c0"


def test_what_needs_no_confirmation_is_written_while_the_fleet_database_is_away() -> None:
    owners, index = MemoryOwners(is_away=True), MemoryIndex()
    known = make_document(1, cell_uuid="c1", version=ANNOUNCED)
    index.write([known])
    writer = OwnWriter(index, "c1", owners)
    assert writer.write([make_document(1, cell_uuid="c1", version=ANNOUNCED + 1)]).applied == 1, "it has it already"
    assert writer.write([make_document(2, cell_uuid="c1", version=1)]).applied == 1, "a revision outranks no other row"
    of_rows = OwnWriter(index, "c1", owners, has_rows=True)
    assert of_rows.write([make_document(3, cell_uuid="c1", version=ANNOUNCED)]).applied == 1, "the cell has a row of it"
