"""Indexers find and repair by themselves what the index has otherwise than the cells."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from fleetlight.cells.model import DamagedRecord, InstanceRow, ItemRow
from fleetlight.indexer.backends.base import HORIZONS, REPAIRS, CellProgress
from fleetlight.indexer.errors import IndexUnavailableError
from fleetlight.indexer.metrics import IndexerMetrics
from fleetlight.indexer.reconcile.audit import AuditedCell, Auditor
from fleetlight.indexer.reconcile.native_cell import NativeComparison
from fleetlight.indexer.settings import IndexerSettings
from fleetlight.indexer.transform.other_items import OtherItemChange, other_item_document
from fleetlight.query.page import PageRequest
from fleetlight.resources.query_fields.node import NODE
from tests.support.fleets.documents import make_uuid
from tests.support.fleets.indexer_worlds import in_thread
from tests.support.memory.memory_cell import CELL_UUID, LONG_AGO, MemoryCell
from tests.support.memory.memory_index import versions
from tests.support.memory.stage import NativeStage
from tests.support.waiting import wait_until

NODE_UUID = make_uuid(900)


class DamagedCell(MemoryCell):
    """damaged: the records of rows that cannot be read."""

    def __init__(self) -> None:
        super().__init__()
        self.damaged: dict[str, DamagedRecord] = {}

    def read_page(self, request: PageRequest) -> Sequence[InstanceRow]:
        return [replace(row, record=self.damaged.get(row.uuid, row.record)) for row in super().read_page(request)]


class Stage(NativeStage[DamagedCell]):
    """The cell has instances and a node, all of them in the index; the audit runs as fast as it can."""

    def __init__(self) -> None:
        super().__init__(DamagedCell())
        for number in range(20):
            self.cell.create(uuid=make_uuid(number), display_name=f"web{number}")
        record = {"uuid": NODE_UUID, "name": "n1", "deleted": False, "deleted_at": None}
        self.cell.items[NODE.name] = {NODE_UUID: ItemRow(NODE_UUID, 1, record)}
        self.index.write([other_item_document(CELL_UUID, OtherItemChange(NODE.name, 1, record))])
        self.index.mark_items(NODE.name, CELL_UUID, are_whole=True)
        self.follow()

    def auditing(self) -> AbstractContextManager[None]:
        cells = {CELL_UUID: AuditedCell(self.cell.cell, lambda: self.index.saved[CELL_UUID].watermark)}
        settings = IndexerSettings(audit_interval_s=0.01, audit_share=1)
        return in_thread(Auditor(lambda: cells, self.repair, settings, IndexerMetrics(self.registry)).run)

    def audited(self, name: str, **labels: str) -> float | None:
        """A metric of the audit of the cell."""
        return self.sample(f"audit_{name}", cell=CELL_UUID, **labels)

    def is_right(self) -> bool:
        documents = self.index.searchable
        assert super().is_right()
        assert {each.cell_uuid for each in documents.values()} == {CELL_UUID}
        assert {uuid: each.record for uuid, each in documents.items()} == {
            uuid: row.record for uuid, row in self.cell.rows.items()
        }
        assert REPAIRS not in self.index.state or not self.index.state[REPAIRS]
        return True


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Stage:
    monkeypatch.setattr("fleetlight.indexer.reconcile.reconcile.LISTS_DELAY_S", 0)
    return Stage()


@pytest.mark.parametrize("compared", ["revisions", "content"])
def test_time_of_the_last_comparison_of_the_whole_cell_is_shown(stage: Stage, compared: str) -> None:
    def audited_at() -> float:
        return stage.sample("audited_seconds", cell=CELL_UUID, compared=compared) or 0

    with stage.auditing():
        wait_until(lambda: audited_at() > 0)
        began = audited_at()
        wait_until(lambda: audited_at() > began)


@pytest.mark.parametrize("what", ["hole", "surplus", "older", "newer", "other cell", "content"])
def test_whatever_differs_is_found_and_repaired(stage: Stage, what: str) -> None:
    document = stage.index.documents[make_uuid(3)]
    if what == "surplus":
        surplus = replace(document, record={**document.record, "uuid": make_uuid(99)})
        stage.index.documents[make_uuid(99)] = surplus
        stage.index.make_searchable()
    elif what == "older":
        stage.cell.update(make_uuid(3), display_name="newer")
        stage.index.save_progress([CellProgress(CELL_UUID, stage.cell.last_sequence, 0, is_complete=True)])
    elif what == "hole":
        stage.lose(make_uuid(3))
    else:
        changes: dict[str, dict[str, Any]] = {
            "newer": {"version": 9},
            "other cell": {"cell_uuid": "elsewhere"},
            "content": {"record": {**document.record, "display_name": "altered"}},
        }
        stage.alter(make_uuid(3), **changes[what])
    with capture_logs() as logs, stage.auditing():
        wait_until(stage.is_right)
        wait_until(lambda: stage.audited("suspected") == 0)
    assert stage.audited("differences_total") == 1
    assert [each["event"] for each in logs if each["event"] != "indexer.audit_postponed"] == [
        "indexer.audit_found",
        "indexer.audit_repaired",
    ]


def test_what_is_on_its_way_is_no_difference(stage: Stage) -> None:
    stage.cell.update(make_uuid(1), display_name="on its way")
    stage.cell.without_number.add(make_uuid(2))
    stage.lose(make_uuid(2))
    with stage.auditing():
        wait_until(lambda: stage.audited("round_seconds", compared="revisions"))
        wait_until(lambda: stage.audited("round_seconds", compared="content"))
        assert not stage.index.state.get(REPAIRS)
        assert stage.audited("differences_total") is None
        stage.follow()
        stage.cell.without_number.clear()
        wait_until(stage.is_right)
    assert stage.audited("differences_total") is None


def test_lists_do_without_the_index_of_a_cell_until_it_is_repaired(stage: Stage) -> None:
    """As long as another process works on the cell it cannot be."""
    stage.leases.taken[f"index-bulk-{CELL_UUID}"] = "a sync"
    stage.lose(make_uuid(3))
    with stage.auditing():
        wait_until(lambda: stage.index.state.get(REPAIRS) == {CELL_UUID: True})
        assert stage.audited("suspected") == 1
        stage.leases.taken.clear()
        wait_until(stage.is_right)
        wait_until(lambda: stage.audited("suspected") == 0)


def test_doubt_that_a_repair_has_left_ends_when_nothing_differs(stage: Stage) -> None:
    stage.index.save_state(REPAIRS, {CELL_UUID: True})
    with stage.auditing():
        wait_until(stage.is_right)


def test_doubt_that_a_repair_has_left_does_not_end_before_what_it_was_about_is_repaired(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Content was found to differ by a process that was killed then, and no round of the content comes there soon."""
    monkeypatch.setattr(NativeComparison, "differing_in_page", lambda *_: ((), None))
    document = stage.index.documents[make_uuid(3)]
    stage.alter(make_uuid(3), record={**document.record, "display_name": "altered"})
    stage.index.save_state(REPAIRS, {CELL_UUID: True})
    with stage.auditing():
        wait_until(stage.is_right)


def test_lists_rely_on_the_index_again_only_when_the_rest_of_the_cell_is_right_too(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first range that is compared has a hole, and the last one."""
    far = "f" + make_uuid(77)[1:]
    stage.cell.create(uuid=far, display_name="far")
    stage.follow()
    del stage.index.documents[far]
    stage.lose(make_uuid(3))
    believed: list[bool] = []
    save_state = stage.index.save_state

    def watch(kind: str, values: Mapping[str, object | None]) -> None:
        if kind == REPAIRS and values.get(CELL_UUID) is None:
            believed.append(versions(stage.index) == stage.cell.versions())
        save_state(kind, values)

    monkeypatch.setattr(stage.index, "save_state", watch)
    with stage.auditing():
        wait_until(stage.is_right)
        wait_until(lambda: stage.audited("suspected") == 0)
    assert believed == [True]


def test_instance_that_the_index_rejects_keeps_the_cell_in_doubt_and_is_told_of_once(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.index.refused[make_uuid(3)] = "no"
    stage.lose(make_uuid(3))
    changes: list[object] = []
    save_state = stage.index.save_state

    def watch(kind: str, values: Mapping[str, object | None]) -> None:
        changes.append(values.get(CELL_UUID))
        save_state(kind, values)

    monkeypatch.setattr(stage.index, "save_state", watch)
    with capture_logs() as logs, stage.auditing():
        wait_until(lambda: len([each for each in changes if each]) > 3)
        assert stage.audited("suspected") == 1
    assert set(changes) == {True}
    assert [each["event"] for each in logs].count("indexer.audit_found") == 1
    assert stage.audited("differences_total") == 1


def test_damaged_row_keeps_no_other_from_being_compared(stage: Stage) -> None:
    far = "f" + make_uuid(77)[1:]
    stage.cell.create(uuid=far, display_name="far")
    stage.follow()
    row = stage.cell.rows[make_uuid(3)]
    readable = {name: value for name, value in row.record.items() if name not in ("deleted", "deleted_at")}
    stage.lose(make_uuid(3))
    del stage.index.documents[far]
    stage.index.save_state(HORIZONS, {CELL_UUID: LONG_AGO})
    stage.cell.damaged = {make_uuid(3): DamagedRecord("one", readable, "no number")}
    with stage.auditing():
        wait_until(lambda: far in stage.index.documents)
        wait_until(lambda: stage.audited("round_seconds", compared="content"))
        assert stage.index.state[REPAIRS] == {CELL_UUID: True}


def test_many_differences_are_repaired_at_once(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fleetlight.indexer.reconcile.audit._MOST_SUSPECTS", 3)
    for number in range(15):
        stage.lose(make_uuid(number))
    with capture_logs() as logs, stage.auditing():
        wait_until(lambda: "indexer.audit_repaired" in [each["event"] for each in logs])
    assert [each["repaired"] for each in logs if each["event"] == "indexer.audit_repaired"] == [15]
    assert stage.is_right()


def test_node_that_was_altered_is_doubted_so_that_its_follower_repairs_it(stage: Stage) -> None:
    key = (NODE.name, CELL_UUID, NODE_UUID)
    document = stage.index.stored_items[key]
    stage.index.stored_items[key] = replace(document, record={**document.record, "name": "altered"})
    with stage.auditing():
        wait_until(lambda: not stage.index.are_items_whole(NODE.name, CELL_UUID))
    assert stage.audited("differences_total") == 1


def test_cell_or_index_that_is_away_is_passed_over(stage: Stage) -> None:
    stage.cell.is_away = True
    stage.lose(make_uuid(3))
    with capture_logs() as logs, stage.auditing():
        wait_until(lambda: logs)
        stage.cell.is_away = False
        stage.index.failures = 3
        wait_until(stage.is_right)
    assert logs[0]["event"] == "indexer.audit_postponed"


def test_repair_that_an_index_takes_no_note_of_is_tried_again(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """As when another program has blocked the writing of its state."""
    saved: list[str] = []
    save_state = stage.index.save_state

    def save_or_fail(kind: str, values: Mapping[str, object | None]) -> None:
        saved.append(kind)
        if saved.count(REPAIRS) == 2:
            # The first one suspects the cell; this is that of its repair.
            raise IndexUnavailableError("its state is blocked")
        save_state(kind, values)

    monkeypatch.setattr(stage.index, "save_state", save_or_fail)
    stage.lose(make_uuid(3))
    with capture_logs() as logs, stage.auditing():
        wait_until(stage.is_right)
    assert "indexer.repair_postponed" in [each["event"] for each in logs]


def test_first_round_of_a_small_cell_takes_a_sample_and_one_range(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared: list[str] = []
    differing = NativeComparison.differing_in_range

    def noted(comparison: NativeComparison, prefix: str, on_step: Callable[[], None]) -> Iterator[Sequence[str]]:
        compared.append(prefix)
        return differing(comparison, prefix, on_step)

    monkeypatch.setattr(NativeComparison, "differing_in_range", noted)
    with stage.auditing():
        wait_until(lambda: len(compared) > 2)
    assert compared[:3] == ["0", "", ""]
