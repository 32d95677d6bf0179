"""Failures in the fleet database, in both kinds of database."""

from dataclasses import replace
from typing import Any

import pytest

from fleetlight.cells.capabilities import CellKind
from fleetlight.cells.fleet.failures import FailedMessages, Failure, FailureSummary, failure_id
from fleetlight.cells.fleet.fleet import Fleet
from fleetlight.cells.settings import FailureLimits

ONE, TWO = "5a1c6f0e-8c8e-4d6f-9a52-0a3a1d2f7b11", "5a1c6f0e-8c8e-4d6f-9a52-0a3a1d2f7b22"
INSTANCE = "7a1d5a0a-90b1-4f36-8f6e-000000000001"


@pytest.fixture
def store(fleet: Fleet) -> FailedMessages:
    return fleet.failures


def failed(body: bytes, at: int = 1, *, cell_uuid: str = ONE, **changes: Any) -> Failure:
    summary = FailureSummary(failure_id(cell_uuid, body), cell_uuid, "malformed", "it is not JSON", INSTANCE, at, at)
    return Failure(replace(summary, **changes), "versioned_notifications.info", {"fleetlight-sequence": 7}, body)


def test_failure_is_kept_whole(store: FailedMessages) -> None:
    failure = replace(failed(bytes(range(256))), trace="file.py:7 in read")
    store.add([failure])
    assert store.find([failure.id]) == [failure]


def test_message_that_fails_again_is_counted_and_says_what_is_wrong_now(store: FailedMessages) -> None:
    store.add([failed(b"{", 1), failed(b"[", 1)])
    store.add([failed(b"{", 5, reason="rejected", detail="too long")])
    [first] = store.find([failure_id(ONE, b"{")])
    assert (first.summary.times, first.summary.first_at, first.summary.last_at) == (2, 1, 5)
    assert (first.summary.reason, first.summary.detail) == ("rejected", "too long")
    assert store.counts() == {ONE: 2}


def test_same_message_of_two_cells_is_two_failures(store: FailedMessages) -> None:
    store.add([failed(b"{"), failed(b"{", cell_uuid=TWO)])
    assert store.counts() == {ONE: 1, TWO: 1}


def test_message_that_two_cells_got_from_one_broker_is_one_failure_of_the_first(store: FailedMessages) -> None:
    shared = failure_id("bus4/nova nova", b"{")
    for cell_uuid in (ONE, TWO, TWO, ONE):
        store.add([failed(b"{", cell_uuid=cell_uuid, id=shared)])
    assert store.counts() == {ONE: 1}
    [kept] = store.find([shared])
    assert kept.summary.times == 2


def test_failures_are_listed_oldest_first_however_many(store: FailedMessages, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fleetlight.cells.fleet.failures._BATCH", 3)
    bodies = [str(number).encode() for number in range(10)]
    store.add([failed(body, 100 - number // 2) for number, body in enumerate(bodies)])
    store.add([failed(b"of another cell", cell_uuid=TWO)])
    moments = [summary.first_at for summary in store.summaries([ONE])]
    assert moments == sorted(moments)
    assert {summary.id for summary in store.summaries([ONE])} == {failure_id(ONE, body) for body in bodies}
    assert len(list(store.summaries([ONE, TWO]))) == 11
    assert list(store.summaries([])) == []


def test_text_that_no_database_takes_is_kept_readable(store: FailedMessages) -> None:
    failure = failed(b"\0", detail="a\0b\ud800" + "x" * 20_000)
    store.add([replace(failure, headers={"na\0me": "\udfff"})])
    [kept] = store.find([failure.id])
    assert kept.summary.detail.startswith("a\\x00b\\ud800xx")
    assert len(kept.summary.detail) < 11_000
    assert kept.headers == {"na\\x00me": "\\udfff"}
    assert kept.body == b"\0"


def test_instances_that_were_read_again_are_marked(store: FailedMessages) -> None:
    other = failed(b"[", instance_uuid=None)
    store.add([failed(b"{"), other, failed(b"{", cell_uuid=TWO)])
    store.mark_reread(ONE, [], 8)
    store.mark_reread(ONE, [INSTANCE], 9)
    assert {summary.instance_uuid: summary.reread_at for summary in store.summaries([ONE])} == {INSTANCE: 9, None: None}
    assert [summary.reread_at for summary in store.summaries([TWO])] == [None]


def test_dropped_failures_are_gone(store: FailedMessages) -> None:
    store.add([failed(b"{"), failed(b"[")])
    assert store.drop([failure_id(ONE, b"{"), "no-such-failure"]) == 1
    assert store.counts() == {ONE: 1}


def of_cell(store: FailedMessages, cell_uuid: str = ONE) -> set[bytes]:
    return {failure.body for failure in store.find([summary.id for summary in store.summaries([cell_uuid])])}


def test_oldest_failures_of_a_cell_go_when_there_are_too_many_and_are_counted(fleet: Fleet) -> None:
    store = FailedMessages(fleet.database, FailureLimits(count=3))
    store.add([failed(b"other", cell_uuid=TWO)])
    store.add([failed(b"1", 1), failed(b"2", 2), failed(b"3", 3)])
    store.add([failed(b"1", 4)])
    store.add([failed(b"5", 5)])
    store.add([failed(b"6", 6), failed(b"7", 7)])
    assert of_cell(store) == {b"5", b"6", b"7"}
    assert of_cell(store, TWO) == {b"other"}
    assert store.dropped() == {ONE: 3}
    store.forget_dropped([ONE])
    assert store.dropped() == {}


def test_failures_of_a_cell_are_never_larger_than_allowed_unless_it_is_the_last_one(fleet: Fleet) -> None:
    store = FailedMessages(fleet.database, FailureLimits(size=1000))
    store.add([failed(bytes(400), 1), failed(bytes(401), 2)])
    assert store.dropped() == {}
    store.add([failed(bytes(402), 3)])
    assert of_cell(store) == {bytes(401), bytes(402)}
    store.add([failed(bytes(2000), 4)])
    assert of_cell(store) == {bytes(2000)}
    assert store.dropped() == {ONE: 3}


def test_removed_cell_takes_its_failures_along(fleet: Fleet) -> None:
    cell = fleet.add_cell("one", CellKind.NATIVE, "sqlite:///one.db", "memory://", uuid=ONE)
    one_each = FailedMessages(fleet.database, FailureLimits(count=1))
    one_each.add([failed(b"{"), failed(b"["), failed(b"{", cell_uuid=TWO)])
    fleet.set_disabled(cell.uuid, True)
    fleet.remove_cell(cell)
    assert (fleet.failures.counts(), fleet.failures.dropped()) == ({TWO: 1}, {})
