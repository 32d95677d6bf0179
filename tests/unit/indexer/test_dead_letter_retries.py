"""Trying failures again: what is solved is off the list, and what is not says why."""

from typing import Any

import pytest

from fleetlight.bus.bus import Message
from fleetlight.bus.topology import RESOURCE_HEADER
from fleetlight.cells.errors import CellUnreachableError
from fleetlight.cells.fleet.producer_keys import RefusedAnnouncement
from fleetlight.indexer.errors import DeadLetterReason
from tests.support.memory.memory_cell import ROUTING_KEY, MemoryCell
from tests.support.memory.memory_index import versions
from tests.support.memory.stage import NativeStage, NovaStage
from tests.support.played.nova_cell import MemoryNovaCell

Stage = NativeStage[MemoryCell]


@pytest.fixture
def stage() -> Stage:
    return NativeStage(MemoryCell())


@pytest.fixture
def nova() -> NovaStage:
    """Its messages have no revisions."""
    return NovaStage(MemoryNovaCell())


def damaged(message: Message) -> Message:
    return Message(b"{", ROUTING_KEY, message.headers)


def external(message: Message) -> Message:
    return Message(message.body, ROUTING_KEY, {})


def test_change_that_the_index_takes_now_is_solved(stage: Stage) -> None:
    stage.fail(stage.cell.create())
    [result] = stage.retry()
    assert result.is_solved
    assert versions(stage.index) == stage.cell.versions()
    assert stage.index.searchable.keys() == stage.cell.rows.keys()
    assert stage.failures.kept == {}


def test_change_that_the_index_still_refuses_stays_and_is_counted(stage: Stage) -> None:
    stage.fail(stage.cell.create())
    [uuid] = stage.cell.rows
    stage.index.refused[uuid] = "the name is still too long"
    [result] = stage.retry()
    assert (result.is_solved, result.what) == (False, "the name is still too long")
    [failure] = stage.failures.kept.values()
    assert (failure.summary.times, failure.summary.detail) == (2, "the name is still too long")
    assert failure.summary.last_at == stage.now + 1


def test_late_change_is_written_as_its_cell_has_the_instance_now(stage: Stage) -> None:
    stage.fail(stage.cell.create())
    [uuid] = stage.cell.rows
    stage.cell.delete(uuid)
    [result] = stage.retry()
    assert result.is_solved
    assert stage.index.documents[uuid].record["deleted"]


def test_message_that_cannot_be_read_is_solved_by_what_its_cell_has(stage: Stage) -> None:
    stage.fail(damaged(stage.cell.create()), DeadLetterReason.MALFORMED)
    [result] = stage.retry()
    assert result.is_solved
    assert "as its cell has it" in result.what
    assert versions(stage.index) == stage.cell.versions()


def test_message_that_cannot_be_read_and_is_about_nothing_known_stays(stage: Stage) -> None:
    stage.fail(Message(b"{", ROUTING_KEY, {}), DeadLetterReason.MALFORMED)
    [result] = stage.retry()
    assert not result.is_solved
    assert "is not JSON" in result.what
    assert len(stage.failures.kept) == 1


def test_refused_announcement_stays_until_its_producer_may_make_it(stage: Stage) -> None:
    elsewhere = MemoryCell()
    stage.fail(external(elsewhere.create()), DeadLetterReason.REFUSED)
    stage.announcer = RefusedAnnouncement("producer 'x' has no key")
    [result] = stage.retry()
    assert (result.is_solved, result.what) == (False, "producer 'x' has no key")
    assert stage.index.documents == {}
    stage.announcer = "x"
    [result] = stage.retry()
    assert result.is_solved
    [document] = stage.index.documents.values()
    assert document.extra is not None
    assert document.extra.values == {"announced_by": "x"}


def test_announcement_that_says_to_be_of_the_outbox_has_to_be_in_the_changelog(stage: Stage) -> None:
    stage.announcer = RefusedAnnouncement("it is nobody's")
    elsewhere = MemoryCell()
    passed_on = stage.cell.pass_on(elsewhere.create(), "")
    forged = Message(elsewhere.create().body, ROUTING_KEY, passed_on.headers)
    solved, unsolved = (stage.fail(each, DeadLetterReason.UNSUPPORTED_VERSION) for each in (passed_on, forged))
    results = {result.failure_id: result for result in stage.retry()}
    assert (results[solved].is_solved, results[unsolved].is_solved) == (True, False)
    assert results[unsolved].what == "it is nobody's"
    [document] = stage.index.documents.values()
    assert document.extra is not None
    assert document.extra.values == {"announced_by": "fleetlight-cell:one"}


def test_message_that_was_too_large_stays_so_unless_its_cell_has_its_instance(stage: Stage) -> None:
    known = stage.cell.create()
    unknown = Message(b"<20000000 bytes>", ROUTING_KEY, {})
    solved, left = (stage.fail(message, DeadLetterReason.TOO_LARGE) for message in (known, unknown))
    results = {result.failure_id: result for result in stage.retry()}
    assert results[solved].is_solved
    assert not results[left].is_solved
    assert stage.failures.kept[left].summary.reason == "too_large"
    assert stage.failures.kept[left].summary.detail == "the name is too long"


def test_change_of_an_instance_that_its_cell_does_not_have_is_not_invented(stage: Stage) -> None:
    stage.fail(stage.cell.create())
    [uuid] = stage.cell.rows
    stage.cell.rows.clear()
    [result] = stage.retry()
    assert (result.is_solved, result.what) == (False, f"its cell does not have instance {uuid}")
    assert stage.index.documents == {}


def test_notification_of_somebody_else_is_indexed_unless_something_newer_is_there(
    stage: Stage,
) -> None:
    elsewhere = MemoryCell()
    stage.fail(external(elsewhere.create()))
    assert all(result.is_solved for result in stage.retry())
    assert stage.index.documents.keys() == elsewhere.rows.keys()


def test_notification_that_needs_nothing_in_the_index_is_solved(stage: Stage) -> None:
    stage.fail(stage.cell.heartbeat())
    [result] = stage.retry()
    assert (result.is_solved, result.what) == (True, "it can be read, and there is nothing in it for the index")


def test_one_failure_that_stays_holds_up_no_other(stage: Stage) -> None:
    stays = stage.fail(Message(b"{", ROUTING_KEY, {}))
    solved = [stage.fail(stage.cell.create()), stage.fail(damaged(stage.cell.create()))]
    results = {result.failure_id: result for result in stage.retry()}
    assert [result.failure_id for result in results.values() if result.is_solved] == solved
    assert list(stage.failures.kept) == [stays]


def test_row_that_this_program_fails_on_says_so(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    def mistake(_record: Any) -> None:
        raise KeyError("flavor")

    stage.fail(stage.cell.create())
    monkeypatch.setattr("fleetlight.indexer.transform.documents.render_view", mistake)
    [result] = stage.retry()
    assert (result.is_solved, result.what) == (False, "KeyError: 'flavor'")


def malformed(stage: NovaStage, body: bytes, instance_uuid: str | None = None) -> None:
    headers: dict[str, int | str] = {} if instance_uuid is None else {RESOURCE_HEADER: instance_uuid}
    stage.fail(Message(body, ROUTING_KEY, headers), DeadLetterReason.MALFORMED, "it could not be read")


def test_notification_of_nova_is_solved_by_the_row_as_it_is_now(nova: NovaStage) -> None:
    nova.journals.start_over(nova.cell.cell.uuid)
    uuid = nova.cell.create(display_name="as it was announced")
    announced = nova.cell.notify(nova.cell.snapshot(uuid), "instance.create.end")
    nova.cell.save(uuid, display_name="as it is now")
    malformed(nova, announced.body)
    assert [each.is_solved for each in nova.retry()] == [True]
    assert nova.index.documents[uuid].record["display_name"] == "as it is now"
    assert [detected_change.instance_uuid for detected_change in nova.journals.found] == [uuid], "watches are told"
    assert nova.failures.kept == {}


def test_notification_of_nova_that_nobody_can_read_is_solved_by_the_row_of_its_instance(
    nova: NovaStage,
) -> None:
    uuid = nova.cell.create()
    malformed(nova, b"{", uuid)
    malformed(nova, b"[")
    assert [each.is_solved for each in nova.retry()] == [True, False], "nobody knows what the other one is about"
    assert nova.index.documents.keys() == {uuid}


def test_failures_stay_while_their_cell_of_nova_is_away(nova: NovaStage) -> None:
    uuid = nova.cell.create()
    malformed(nova, nova.cell.notify(nova.cell.snapshot(uuid), "instance.create.end").body)
    nova.cell.is_away = True
    with pytest.raises(CellUnreachableError):
        nova.retry()
    assert len(nova.failures.kept) == 1
    assert nova.index.documents == {}
