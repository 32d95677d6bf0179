import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from threading import Event

import msgspec
import pytest

from fleetlight.bus.bus import Headers, Message
from fleetlight.bus.topology import CELL_HEADER, RESOURCE_HEADER, REVISION_HEADER, SEQUENCE_HEADER, TRACE_HEADER
from fleetlight.bus.traces import Traces
from fleetlight.cells.fleet.producer_keys import RefusedAnnouncement
from fleetlight.cells.model import Change, InstanceRow
from fleetlight.cells.payloads.instance_payload import to_payload
from fleetlight.indexer.backends.base import OLDEST_TIME_VERSION
from fleetlight.indexer.errors import DeadLetterReason, IndexUnavailableError, MalformedMessageError
from fleetlight.indexer.extra_fields import Extra
from fleetlight.indexer.settings import IndexerSettings
from fleetlight.indexer.stream.cell_assignment import CellAssignment
from fleetlight.indexer.stream.received_batch import MessageReading
from fleetlight.indexer.transform.announcers import Announcers
from fleetlight.indexer.writing.catch_up import catch_up
from fleetlight.indexer.writing.rereading import rows_of
from fleetlight.manager.operations.actions.new_instance import new_record
from fleetlight.notifications.envelope import LARGEST_BODY_BYTES, Notification, encode
from fleetlight.query.page import PageRequest
from fleetlight.resources.fields import Record, from_microseconds
from fleetlight.views.compute.view import View, render_view
from tests.support.memory.memory_cell import CELL_UUID, NOW, ROUTING_KEY, MemoryCell
from tests.support.memory.memory_consumer import MemoryConsumer
from tests.support.memory.memory_index import versions
from tests.support.memory.stage import NativeStage
from tests.support.traced import RecordedTraces
from tests.support.waiting import wait_until

SETTINGS = IndexerSettings(batch_max_messages=4, retry_wait_max_s=0.01)


class Stage(NativeStage[MemoryCell]):
    """With a consumer between the bus, the cell and the index."""

    def __init__(
        self,
        settings: IndexerSettings = SETTINGS,
        watermark: int = 0,
        *,
        reads_own_rows: bool = False,
        takes_announcements: bool = True,
        traces: Traces | None = None,
    ) -> None:
        super().__init__(MemoryCell())
        cell = replace(self.cell.cell, takes_announcements=takes_announcements)
        self.horizon = 0
        self.is_of_relay: Callable[[Headers, bytes], bool] = lambda _headers, _body: True
        self.items_lost: list[int] = []
        self.accepts: Callable[[Headers], bool] = lambda _headers: True
        self.assignment = CellAssignment()
        read_rows = partial(rows_of, self.cell)
        self.consumer = MemoryConsumer(
            CELL_UUID,
            self.index,
            self.bus.receiver(),
            settings,
            read_rows,
            reading=MessageReading(
                self._is_of_relay,
                horizon=lambda: self.horizon,
                accepts=self._accepts,
                announcers=Announcers(cell, lambda *_: self.announcer),
                own_rows=read_rows if reads_own_rows else None,
                clock=lambda: self.now,
            ),
            failures=self.failures,
            registry=self.registry,
            watermark=watermark,
            clock=lambda: NOW,
            assignment=self.assignment,
            on_item_lost=lambda: self.items_lost.append(1),
            traces=traces,
        )
        self.tracker = self.consumer.tracker

    def _is_of_relay(self, headers: Headers, body: bytes) -> bool:
        return self.is_of_relay(headers, body)

    def _accepts(self, headers: Headers) -> bool:
        return self.accepts(headers)

    def consume(self, *messages: Message) -> None:
        self.bus.waiting.extend(messages)
        while self.consumer.step():
            pass


@pytest.fixture
def stage() -> Iterator[Stage]:
    stage = Stage()
    yield stage
    stage.consumer.close()


def external(message: Message) -> Message:
    """The same notification as somebody without revisions would send it."""
    return Message(message.body, message.routing_key, {})


def test_changes_are_written_then_the_watermark_moves_and_they_are_acknowledged(stage: Stage) -> None:
    stage.consume(*(stage.cell.create() for _ in range(10)))
    assert versions(stage.index) == stage.cell.versions()
    assert stage.tracker.watermark == 10
    assert stage.bus.acknowledged == 10
    assert sorted(stage.index.writes) == [2, 4, 4], "two may be under way at once"


def test_traces_go_on_with_messages_of_the_relay_that_were_written() -> None:
    recorded = RecordedTraces()
    stage = Stage(traces=recorded.traces)

    def traced(message: Message, span: str) -> Message:
        trace = f"00-46f4d8ace61c452d926bb508626a50af-{span * 16}-01"
        return replace(message, headers={**message.headers, TRACE_HEADER: trace})

    written, torn, forged = (stage.cell.create() for _ in range(3))
    stage.is_of_relay = lambda headers, _body: headers != forged_headers
    forged_headers = traced(forged, "3").headers
    stage.consume(
        traced(written, "1"), traced(replace(torn, body=b"torn"), "2"), traced(forged, "3"), stage.cell.create()
    )
    stage.consumer.close()
    recorded.traces.searchable(CELL_UUID, 4, stage.now)
    assert [span.parent and f"{span.parent.span_id:x}" for span in recorded.spans] == ["1" * 16]


def test_trace_of_a_change_that_the_changelog_brought_first_ends_with_its_message() -> None:
    recorded = RecordedTraces()
    stage = Stage(watermark=1, traces=recorded.traces)
    known = stage.cell.create()
    trace = f"00-46f4d8ace61c452d926bb508626a50af-{'1' * 16}-01"
    stage.consume(replace(known, headers={**known.headers, TRACE_HEADER: trace}))
    stage.consumer.close()
    recorded.traces.searchable(CELL_UUID, 1, stage.now)
    assert [span.name for span in recorded.spans] == ["index"]


def test_messages_of_one_instance_in_a_batch_collapse_to_the_newest(stage: Stage) -> None:
    first = stage.cell.create()
    uuid = next(iter(stage.cell.rows))
    second, third = stage.cell.update(uuid, host="b"), stage.cell.update(uuid, host="c")
    stage.consume(third, first, second)
    assert stage.index.writes == [1]
    assert stage.index.documents[uuid].record["host"] == "c"
    assert stage.tracker.watermark == 3


def test_message_that_a_newer_one_in_its_batch_replaces_is_not_read(stage: Stage) -> None:
    first = stage.cell.create()
    uuid = next(iter(stage.cell.rows))
    second = stage.cell.update(uuid, host="b")
    stage.consume(Message(b"torn", ROUTING_KEY, first.headers), second)
    assert versions(stage.index) == stage.cell.versions()
    assert not stage.failures.found
    assert (stage.tracker.watermark, stage.bus.acknowledged) == (2, 2)


def test_message_that_names_another_instance_than_it_is_about_has_both_read_again(stage: Stage) -> None:
    one, other = stage.cell.create(), stage.cell.create()
    named = {**one.headers, RESOURCE_HEADER: other.headers[RESOURCE_HEADER]}
    stage.consume(Message(one.body, ROUTING_KEY, named))
    [(_, reason, detail)] = stage.failures.found
    assert reason == "malformed"
    assert f"headers.{RESOURCE_HEADER}: names {other.headers[RESOURCE_HEADER]}" in detail
    assert versions(stage.index) == stage.cell.versions()


def test_message_with_a_revision_that_is_about_no_instance_is_a_dead_letter(stage: Stage) -> None:
    headers = stage.cell.create().headers
    stage.consume(Message(stage.cell.heartbeat().body, ROUTING_KEY, headers))
    [(_, reason, detail)] = stage.failures.found
    assert reason == "malformed"
    assert f"headers.{REVISION_HEADER}" in detail
    assert versions(stage.index) == stage.cell.versions(), "the cell knows better"


def test_messages_up_to_the_watermark_are_acknowledged_without_being_read() -> None:
    stage = Stage(watermark=2)
    stage.consume(stage.cell.create(), stage.cell.create(), stage.cell.create())
    assert len(stage.index.documents) == 1
    assert stage.messages("duplicate") == 2
    assert stage.bus.acknowledged == 3
    stage.consumer.close()


def test_heartbeat_moves_freshness_and_is_acknowledged(stage: Stage) -> None:
    stage.consume(stage.cell.create(), stage.cell.heartbeat(at=NOW))
    assert stage.tracker.snapshot().fresh_as_of == NOW
    assert stage.bus.acknowledged == 2


def test_only_what_follows_a_change_is_waited_for(stage: Stage) -> None:
    stage.consume(stage.cell.create())
    stage.consume(stage.cell.heartbeat())
    stage.consume(stage.cell.heartbeat(), stage.cell.create())
    wait_s = SETTINGS.batch_wait_s
    first_change, first_heartbeat, both = [0.0, wait_s], [0.0, 0.0], [0.0, wait_s]
    assert stage.bus.waits_s == [*first_change, *first_heartbeat, *both]


def test_heartbeat_of_another_cell_says_nothing_about_this_one(stage: Stage) -> None:
    stage.consume(MemoryCell("00000000-0000-4000-8000-000000000001").heartbeat(at=NOW))
    assert stage.tracker.snapshot().fresh_as_of == 0
    assert stage.bus.acknowledged == 1


def test_malformed_message_goes_to_the_dead_letters_and_the_others_go_on(stage: Stage) -> None:
    good, another = stage.cell.create(), stage.cell.create()
    stage.consume(good, Message(b"{", ROUTING_KEY, {}), another)
    assert versions(stage.index) == stage.cell.versions()
    [(body, reason, detail)] = stage.failures.found
    assert (body, reason) == (b"{", "malformed")
    assert detail
    assert [failure.routing_key for failure in stage.failures.kept.values()] == [ROUTING_KEY]
    assert stage.bus.acknowledged == 3
    assert stage.tracker.watermark == 2
    assert stage.tracker.snapshot().is_complete


def test_instance_of_a_malformed_change_is_read_again_from_its_cell(stage: Stage) -> None:
    message = stage.cell.create()
    stage.consume(Message(b"{", ROUTING_KEY, message.headers))
    assert versions(stage.index) == stage.cell.versions()
    assert stage.tracker.watermark == 1
    assert stage.tracker.snapshot().is_complete


def test_message_that_is_too_large_is_not_read_and_not_kept_and_its_instance_is_read_again(stage: Stage) -> None:
    message = stage.cell.create()
    # Still a valid change.
    body = message.body + b" " * LARGEST_BODY_BYTES
    stage.consume(Message(body, ROUTING_KEY, message.headers), stage.cell.create())
    [(kept, reason, detail)] = stage.failures.found
    assert reason == "too_large"
    assert detail == f"message: is of {len(body)} bytes, and more than 16777216 are neither sent nor read"
    assert kept.startswith(b"<%d bytes that are not kept, SHA-256 " % len(body))
    assert versions(stage.index) == stage.cell.versions()
    assert stage.tracker.watermark == 2
    assert stage.tracker.snapshot().is_complete


def test_cell_is_not_complete_until_the_instance_of_a_malformed_change_could_be_read(stage: Stage) -> None:
    message = stage.cell.create()
    stage.cell.is_away = True
    stage.consume(Message(b"{", ROUTING_KEY, message.headers))
    assert not stage.tracker.snapshot().is_complete
    stage.cell.is_away = False
    stage.consume(stage.cell.update(next(iter(stage.cell.rows)), host="b"))
    assert stage.tracker.snapshot().is_complete


def test_older_change_that_comes_late_does_not_stand_for_a_newer_one_that_is_broken(stage: Stage) -> None:
    first = stage.cell.create()
    uuid = next(iter(stage.cell.rows))
    second = stage.cell.update(uuid, host="b")
    stage.cell.is_away = True
    stage.consume(Message(b"torn", ROUTING_KEY, second.headers))
    stage.consume(first)
    assert stage.tracker.watermark == 2
    assert not stage.tracker.snapshot().is_complete, "the index has the first revision only"
    stage.cell.is_away = False
    stage.consumer.rereader.work(1e9)  # when it is due again
    assert versions(stage.index) == stage.cell.versions()
    assert stage.tracker.snapshot().is_complete


def test_notification_of_somebody_else_does_not_stand_for_a_change_that_was_rejected(stage: Stage) -> None:
    stage.consume(stage.cell.create())
    uuid = next(iter(stage.cell.rows))
    stage.index.refused[uuid] = "no"
    stage.consume(stage.cell.update(uuid, host="b"))
    assert not stage.tracker.snapshot().is_complete
    stage.consume(external(stage.cell.message_of(stage.cell.changes[-1])))
    assert not stage.tracker.snapshot().is_complete, "the index has the first revision only"


def test_rejected_change_of_the_cell_is_not_mistaken_for_a_notification_of_its_instance(stage: Stage) -> None:
    change = stage.cell.create()
    uuid = str(change.headers["fleetlight-resource"])
    stage.index.refused[uuid] = "the name is too long"
    stage.consume(change, external(change))
    [failure] = stage.failures.kept.values()
    assert failure.headers == change.headers
    assert not stage.tracker.snapshot().is_complete


def test_rejected_document_goes_to_the_dead_letters_and_the_cell_is_not_complete(stage: Stage) -> None:
    bad, good = stage.cell.create(), stage.cell.create()
    uuid = str(bad.headers["fleetlight-resource"])
    stage.index.refused[uuid] = "the name is too long"
    stage.consume(bad, good)
    assert stage.failures.found == [(bad.body, "rejected", "the name is too long")]
    assert stage.tracker.watermark == 2
    assert not stage.tracker.snapshot().is_complete
    assert stage.bus.acknowledged == 2
    stage.index.refused.clear()
    stage.consume(stage.cell.update(uuid, display_name="short"))
    assert stage.tracker.snapshot().is_complete


def test_message_that_is_a_dead_letter_was_not_applied(stage: Stage) -> None:
    torn, bad, good = (stage.cell.create() for _ in range(3))
    stage.index.refused[str(bad.headers[RESOURCE_HEADER])] = "the name is too long"
    stage.consume(Message(b"torn", ROUTING_KEY, torn.headers), bad, good)
    assert [stage.messages(outcome) for outcome in ("applied", "malformed", "rejected")] == [1, 1, 1]


def test_messages_that_were_not_read_are_counted_apart_also_those_that_nobody_could_read(stage: Stage) -> None:
    torn = stage.cell.create()
    uuid = str(torn.headers[RESOURCE_HEADER])
    newer, newest = (stage.cell.update(uuid, display_name=name) for name in ("newer", "newest"))
    # Whichever order they come in.
    stage.consume(Message(b"torn", ROUTING_KEY, torn.headers), newest, newer)
    assert [stage.messages(outcome) for outcome in ("applied", "superseded", "malformed")] == [1, 2, 0]
    assert stage.tracker.snapshot().is_complete


def test_newer_major_version_is_refused_with_its_reason(stage: Stage) -> None:
    message = stage.cell.create()
    stage.consume(Message(message.body.replace(b'\\"1.1\\"', b'\\"9.1\\"'), ROUTING_KEY, {}))
    [(_, reason, detail)] = stage.failures.found
    assert reason == "unsupported_version"
    assert "9.1" in detail


def test_nothing_is_acknowledged_or_received_while_the_index_is_away(stage: Stage) -> None:
    during: list[tuple[int, int]] = []
    stage.index.before_write = lambda: during.append((stage.bus.acknowledged, len(stage.bus.waiting)))
    stage.index.failures = 3
    stage.consume(stage.cell.create(), stage.cell.create())
    assert during == [(0, 0)] * 4
    assert len(stage.consumer.waits) == 3
    assert versions(stage.index) == stage.cell.versions()
    assert stage.bus.acknowledged == 2


def test_stop_ends_the_wait_for_an_index_that_is_away_and_the_messages_stay_on_the_bus() -> None:
    stage = Stage(IndexerSettings(retry_wait_max_s=60))
    stage.index.failures = 1_000_000
    stage.consumer.stop.set()
    stage.bus.waiting.append(stage.cell.create())
    with pytest.raises(IndexUnavailableError):
        stage.consumer.step()
    stage.consumer.close()
    assert len(stage.bus.waiting) == 1
    assert stage.tracker.watermark == 0


def test_two_writes_are_under_way_while_there_is_a_backlog() -> None:
    stage = Stage()
    first_may_go_on = Event()
    order: list[int] = []

    def hold_the_first_write() -> None:
        order.append(len(order))
        if len(order) == 1:
            assert first_may_go_on.wait(10)
        else:
            first_may_go_on.set()

    stage.index.before_write = hold_the_first_write
    stage.consume(*(stage.cell.create() for _ in range(8)))
    assert stage.tracker.watermark == 8, "the first write ended only because the second had begun"
    stage.consumer.close()


def test_no_more_batches_wait_for_the_index_than_are_written_at_once(stage: Stage) -> None:
    stage.bus.waiting.extend(stage.cell.create() for _ in range(12))
    finished = []
    while stage.consumer.step():
        finished.append(stage.tracker.watermark)
    assert finished == [0, 4, 8]


def test_messages_of_a_future_that_the_cell_was_restored_out_of_are_counted_and_nothing_else(stage: Stage) -> None:
    lost = [stage.cell.create() for _ in range(3)]
    futures = [message.headers for message in lost]
    stage.accepts = lambda headers: headers not in futures
    stage.consume(*lost)
    assert stage.messages("never happened") == 3
    assert (stage.index.documents, stage.tracker.highest_known, stage.bus.acknowledged) == ({}, 0, 3)
    stage.is_of_relay = lambda _headers, body: body != lost[0].body
    stage.consume(*lost)
    assert stage.messages("never happened") == 5, "nobody but the relay speaks of the future of its cell"
    assert len(stage.index.documents) == 1


@pytest.mark.parametrize("revision", [7, 0])
def test_change_of_the_changelog_that_cannot_be_indexed_is_kept_as_the_relay_has_published_it(
    stage: Stage, revision: int
) -> None:
    stage.cell.create()
    [uuid] = stage.cell.rows
    change = Change(4, uuid if revision else "", revision, ROUTING_KEY, b"{")
    stage.consumer.give_up([(change, MalformedMessageError(DeadLetterReason.REJECTED, "too long", "here"))])
    stage.consumer.step()
    [failure] = stage.failures.kept.values()
    assert (failure.body, failure.routing_key, failure.trace) == (b"{", ROUTING_KEY, "here")
    assert (failure.summary.reason, failure.summary.detail) == ("rejected", "too long")
    about = {REVISION_HEADER: 7, RESOURCE_HEADER: uuid} if revision else {}
    assert failure.headers == {CELL_HEADER: CELL_UUID, SEQUENCE_HEADER: 4, **about}
    assert versions(stage.index) == (stage.cell.versions() if revision else {}), "the cell knows better"


def test_indexer_that_has_to_stand_back_finishes_what_it_has_and_rests(stage: Stage) -> None:
    stage.consume(stage.cell.create())
    assert stage.assignment.is_active
    stage.bus.waiting.extend(stage.cell.create() for _ in range(8))
    stage.assignment.is_to_end = True
    before_s = time.monotonic()
    stage.consumer.step()
    assert (stage.tracker.watermark, stage.bus.acknowledged) == (5, 5)
    assert not stage.assignment.is_to_end
    assert stage.assignment.rests_until_s > before_s
    stage.assignment.is_active = True
    stage.consumer.close()
    assert stage.assignment.is_active is False


def test_external_messages_of_a_batch_need_one_read(stage: Stage) -> None:
    messages = [external(stage.cell.create()) for _ in range(3)]
    stage.consume(*messages)
    assert stage.index.reads == [{str(row) for row in stage.cell.rows}]
    assert set(versions(stage.index)) == set(stage.cell.rows)


def test_external_message_sees_what_the_batch_before_it_wrote() -> None:
    stage = Stage(IndexerSettings(batch_max_messages=1, retry_wait_max_s=0.01))
    first = stage.cell.create(host="a")
    second = stage.cell.update(next(iter(stage.cell.rows)), host="b")
    stage.consume(external(first), external(second))
    [document] = stage.index.documents.values()
    assert document.record["host"] == "b"
    assert from_microseconds(document.version).year >= 2026
    stage.consumer.close()


def test_what_a_message_is_merged_into_is_read_after_the_batch_before_it_was_written() -> None:
    stage = Stage(IndexerSettings(batch_max_messages=1, retry_wait_max_s=0.01))
    first = stage.cell.create(host="a")
    uuid = next(iter(stage.cell.rows))
    second = stage.cell.update(uuid, host="b")
    read_meanwhile = []

    def hold_the_first_write() -> None:
        if not stage.index.writes:
            # The first write has not happened, and the second batch must not look for what it leaves. A reader that
            # did not wait would be here long before.
            with suppress(AssertionError):
                wait_until(lambda: len(stage.index.reads) > 1, timeout_s=0.2)
            read_meanwhile.append(stage.index.reads[1:])

    stage.index.before_write = hold_the_first_write
    stage.consume(external(first), external(second))
    assert read_meanwhile == [[]]
    assert stage.index.reads == [{uuid}, {uuid}]
    stage.consumer.close()


def test_external_message_about_an_instance_of_the_cell_changes_nothing(stage: Stage) -> None:
    message = stage.cell.create(host="a")
    stage.consume(message)
    stage.consume(external(stage.cell.update(next(iter(stage.cell.rows)), host="wrong")))
    [document] = stage.index.documents.values()
    assert (document.version, document.record["host"]) == (1, "a")


def test_numbered_message_without_a_revision_moves_the_watermark(stage: Stage) -> None:
    message = stage.cell.create()
    stage.consume(Message(message.body, ROUTING_KEY, {SEQUENCE_HEADER: 1}))
    assert stage.tracker.watermark == 1
    assert len(stage.index.documents) == 1


@pytest.mark.parametrize("wrong", ["1", 1.5, None])
def test_header_that_is_no_number_is_as_good_as_none(stage: Stage, wrong: object) -> None:
    headers: dict[str, int | str] = {REVISION_HEADER: wrong, SEQUENCE_HEADER: wrong}  # type: ignore[dict-item]
    stage.consume(Message(stage.cell.create().body, ROUTING_KEY, headers))
    assert len(stage.index.documents) == 1
    assert stage.tracker.watermark == 0


def test_bus_is_kept_alive_while_the_index_is_slow(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fleetlight.indexer.stream.consumer._KEEP_ALIVE_INTERVAL_S", 0.01)
    stage.index.before_write = lambda: wait_until(lambda: stage.bus.kept_alive)
    stage.consume(stage.cell.create())
    assert stage.tracker.watermark == 1


def test_bus_is_kept_alive_while_a_cell_is_slow_to_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fleetlight.indexer.stream.consumer._KEEP_ALIVE_INTERVAL_S", 0.01)
    stage = Stage(reads_own_rows=True)
    announced, read = external(stage.cell.create()), stage.cell.read_page

    def slow(request: PageRequest) -> Sequence[InstanceRow]:
        wait_until(lambda: stage.bus.kept_alive)
        return read(request)

    monkeypatch.setattr(stage.cell, "read_page", slow)
    stage.consume(announced)
    assert (stage.index.documents, stage.messages("other")) == ({}, 1), "what is of the cell is for its relay to tell"
    stage.consumer.close()


def test_message_that_this_program_fails_on_is_a_dead_letter_and_the_others_go_on(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad, good = stage.cell.create(), stage.cell.create()
    uuid = str(bad.headers["fleetlight-resource"])

    def render(record: Record) -> View:
        if record["uuid"] == uuid:
            raise KeyError("vcpus")
        return render_view(record)

    monkeypatch.setattr("fleetlight.indexer.transform.documents.render_view", render)
    stage.consume(bad, good, external(bad))
    [failure] = stage.failures.kept.values()
    assert (failure.summary.reason, failure.summary.detail) == ("unexpected", "KeyError: 'vcpus'")
    assert "test_consumer.py" in (failure.trace or "")
    assert set(versions(stage.index)) == stage.cell.rows.keys() - {uuid}
    assert stage.tracker.watermark == 2
    assert not stage.tracker.snapshot().is_complete
    assert stage.bus.acknowledged == 3


def test_message_that_cannot_even_be_read_for_an_unknown_cause_is_a_dead_letter(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def mistake(_body: bytes) -> None:
        raise RuntimeError("a mistake")

    monkeypatch.setattr("fleetlight.indexer.transform.messages.read_record", mistake)
    stage.consume(stage.cell.create())
    [failure] = stage.failures.kept.values()
    assert (failure.summary.reason, failure.summary.detail) == ("unexpected", "RuntimeError: a mistake")
    assert versions(stage.index) == stage.cell.versions(), "the cell knows better"
    assert stage.failures.reread == list(stage.cell.rows)


@pytest.mark.parametrize("header", [REVISION_HEADER, SEQUENCE_HEADER])
@pytest.mark.parametrize("wrong", [0, -1, 10**30])
def test_number_that_no_cell_gives_out_is_a_dead_letter(stage: Stage, header: str, wrong: int) -> None:
    message = stage.cell.create()
    stage.consume(Message(message.body, ROUTING_KEY, {**message.headers, header: wrong}))
    [(_, reason, detail)] = stage.failures.found
    assert reason == "malformed"
    assert f"headers.{header}" in detail
    assert versions(stage.index) == stage.cell.versions()


def test_message_of_another_cell_is_a_dead_letter_and_its_numbers_count_for_nothing(stage: Stage) -> None:
    message = stage.cell.create()
    stage.consume(Message(message.body, ROUTING_KEY, {**message.headers, CELL_HEADER: "another"}))
    [(_, _, detail)] = stage.failures.found
    assert f"headers.{CELL_HEADER}: must be {CELL_UUID}" in detail
    assert stage.tracker.watermark == 0


def test_stream_goes_on_while_the_fleet_database_is_away(stage: Stage) -> None:
    stage.failures.is_away = True
    stage.consume(Message(b"{", ROUTING_KEY, {}), stage.cell.create())
    assert versions(stage.index) == stage.cell.versions()
    assert [reason for _, reason, _ in stage.bus.dead_lettered] == ["malformed"]
    assert stage.bus.acknowledged == 2


def test_many_broken_messages_are_read_again_together(stage: Stage) -> None:
    messages = [stage.cell.create() for _ in range(4)]
    stage.consume(*(Message(b"%d" % number, ROUTING_KEY, each.headers) for number, each in enumerate(messages)))
    assert versions(stage.index) == stage.cell.versions()
    assert (stage.cell.pages_read, [size for size in stage.index.writes if size]) == (1, [4])


def test_old_notification_about_an_instance_that_is_not_there_is_left_out(stage: Stage) -> None:
    """It may be one that was deleted and purged since, and nobody else remembers that."""
    message = external(stage.cell.create())
    stage.horizon = 2**52
    stage.consume(message)
    assert stage.index.documents == {}
    assert stage.bus.acknowledged == 1
    assert (stage.messages("forgotten"), stage.messages("applied")) == (1, 0)
    stage.horizon = 0
    stage.consume(message)
    assert len(stage.index.documents) == 1
    assert (stage.messages("forgotten"), stage.messages("applied")) == (1, 1)


def test_old_notification_about_an_instance_that_is_there_counts(stage: Stage) -> None:
    stage.consume(external(stage.cell.create(host="a")))
    stage.horizon = 2**52
    stage.consume(external(stage.cell.update(next(iter(stage.cell.rows)), host="b")))
    [document] = stage.index.documents.values()
    assert document.record["host"] == "b"


def test_announcement_says_in_the_index_who_made_it_and_not_what_it_says_itself(stage: Stage) -> None:
    stage.is_of_relay = lambda _headers, _body: False
    stage.consume(external(stage.cell.create()))
    [document] = stage.index.documents.values()
    assert document.extra == Extra("", {"announced_by": "rack-agent"}, {"announced_by": "text"})
    assert document.extra.terms == ["announced_by=rack-agent"]
    stage.announcer = "other-agent"
    claims = {"announced_by": "root", "rack": "r7"}
    stage.consume(claiming(stage.cell.update(document.id, host="b"), claims))
    [document] = stage.index.documents.values()
    assert document.extra is not None
    assert document.extra.values == {"announced_by": "other-agent", "rack": "r7"}


def test_end_of_an_instance_says_who_announced_it(stage: Stage) -> None:
    stage.is_of_relay = lambda _headers, _body: False
    created = announced_at(stage.now)
    stage.consume(created)
    stage.announcer = "other-agent"
    stage.consume(Message(created.body.replace(b"instance.update", b"instance.delete.end"), ROUTING_KEY, {}))
    [document] = stage.index.documents.values()
    assert document.record["deleted"]
    assert document.extra is not None
    assert document.extra.values == {"announced_by": "other-agent"}


def test_announcement_of_nobody_who_may_make_one_is_a_dead_letter_with_the_reason(stage: Stage) -> None:
    stage.is_of_relay = lambda _headers, _body: False
    stage.announcer = RefusedAnnouncement("producer 'x' has no key")
    stage.consume(announced_at(stage.now), announced_at(stage.now))
    assert not stage.index.documents
    assert [(reason, detail) for _, reason, detail in stage.failures.found] == [
        ("refused", "producer 'x' has no key"),
        ("refused", "producer 'x' has no key"),
    ]
    assert (stage.messages("refused"), stage.messages("applied")) == (2, 0)
    assert not stage.tracker.unindexed, "the cell has no such instance, and so the index has all of the cell"


def test_refused_announcement_takes_none_of_its_batch_with_it(stage: Stage) -> None:
    uuid = str(stage.cell.create().headers[RESOURCE_HEADER])
    good, bad = external(stage.cell.update(uuid, host="right")), external(stage.cell.update(uuid, host="forged"))
    stage.is_of_relay = lambda _headers, body: body == good.body
    stage.announcer = RefusedAnnouncement("it is nobody's")
    stage.consume(bad, good, bad)
    assert stage.index.documents[uuid].record["host"] == "right"
    [failure] = stage.failures.kept.values()
    assert failure.summary.times == 2


def test_refused_announcement_of_an_instance_that_the_cell_has_is_no_dead_letter() -> None:
    stage = Stage(reads_own_rows=True)
    stage.is_of_relay = lambda _headers, _body: False
    stage.announcer = RefusedAnnouncement("it is nobody's")
    stage.consume(external(stage.cell.create()), announced_at(stage.now))
    assert not stage.index.documents
    assert [reason for _, reason, _ in stage.failures.found] == ["refused"]
    assert (stage.messages("other"), stage.messages("refused")) == (1, 1)
    stage.consumer.close()


def test_cell_that_takes_no_announcements_takes_none_of_its_outbox_either() -> None:
    stage = Stage(takes_announcements=False)
    stage.consume(stage.cell.pass_on(announced_at(stage.now), ""))
    assert not stage.index.documents
    assert stage.tracker.watermark == 1
    [(_, reason, detail)] = stage.failures.found
    assert (reason, detail) == (
        "refused",
        "cell one takes no announcements: `fleetlight cell set one --announcements` lets it",
    )
    stage.is_of_relay = lambda _headers, _body: False
    stage.consume(announced_at(stage.now))
    assert not stage.index.documents, "whoever has signed it"
    stage.consumer.close()


def test_only_the_relay_makes_the_index_doubt_the_items_of_its_cell(stage: Stage) -> None:
    unreadable = Message(b"{", ROUTING_KEY, {REVISION_HEADER: 3})
    stage.is_of_relay = lambda _headers, _body: False
    stage.consume(unreadable)
    assert (len(stage.failures.kept), stage.items_lost) == (1, [])
    stage.is_of_relay = lambda _headers, _body: True
    stage.consume(unreadable)
    assert stage.items_lost == [1]


def test_what_a_cell_passes_on_is_announced_by_the_cell(stage: Stage) -> None:
    stage.consume(stage.cell.pass_on(announced_at(stage.now), ""))
    [document] = stage.index.documents.values()
    assert document.extra is not None
    assert document.extra.values == {"announced_by": "fleetlight-cell:one"}


def test_message_without_the_signature_of_the_relay_is_an_announcement_of_somebody_else(stage: Stage) -> None:
    stage.consume(stage.cell.create())
    uuid = next(iter(stage.cell.rows))
    stage.is_of_relay = lambda _headers, _body: False
    forged: dict[str, int | str] = {
        SEQUENCE_HEADER: 900,
        REVISION_HEADER: OLDEST_TIME_VERSION - 1,
        RESOURCE_HEADER: uuid,
    }
    stage.consume(Message(stage.cell.update(uuid, host="forged").body, ROUTING_KEY, forged))
    assert stage.index.documents[uuid].record["host"] is None
    assert (stage.index.documents[uuid].version, stage.tracker.highest_known) == (1, 1)
    assert not stage.failures.kept


def test_heartbeat_without_the_signature_of_the_relay_says_nothing(stage: Stage) -> None:
    stage.is_of_relay = lambda _headers, _body: False
    stage.consume(stage.cell.heartbeat(at=NOW))
    assert stage.tracker.snapshot().fresh_as_of == 0
    assert (stage.messages("heartbeat"), stage.messages("other")) == (0, 1)


def test_heartbeat_that_the_relay_passes_on_for_somebody_else_says_nothing(stage: Stage) -> None:
    heartbeat = Message(stage.cell.heartbeat(at=NOW).body, ROUTING_KEY, {})
    stage.consume(stage.cell.pass_on(heartbeat, ""))
    assert (stage.tracker.watermark, stage.tracker.snapshot().fresh_as_of) == (1, 0)


def test_unsigned_message_from_before_an_upgrade_is_no_loss() -> None:
    """It is missed when the next one is heard of that is signed, and the changelog has it (decision 0010)."""
    stage = Stage(reads_own_rows=True)
    stage.is_of_relay = lambda headers, _body: "signed" in headers
    before = [stage.cell.create() for _ in range(3)]
    after = stage.cell.create()
    stage.consume(*before, Message(after.body, ROUTING_KEY, {**after.headers, "signed": 1}))
    assert (stage.tracker.watermark, stage.tracker.highest_known) == (0, 4)
    assert stage.bus.acknowledged == 4
    assert not stage.failures.kept
    assert stage.tracker.hole_age_s(1.0) == 0
    assert stage.tracker.hole_age_s(3.0) == 2
    assert catch_up(
        stage.cell,
        stage.index,
        stage.tracker,
        announcer="the outbox",
        dead_letters=stage.consumer.give_up,
        batch_size=2,
        on_batch=lambda: None,
    )
    assert versions(stage.index) == stage.cell.versions()
    assert stage.tracker.watermark == 4
    stage.consumer.close()


def test_announcement_from_the_future_is_a_dead_letter_and_its_instance_is_read_again(stage: Stage) -> None:
    """It would be newer than all that is said of the instance until then."""
    stage.now = NOW - 700_000_000
    stage.consume(announced_at(NOW), announced_at(NOW - 200_000_000))
    assert len(stage.index.documents) == 1
    assert [(reason, detail) for _, reason, detail in stage.failures.found] == [
        ("malformed", "timestamp: must not be more than 600 s ahead of our clock, not 700 s")
    ]


def claiming(message: Message, values: Mapping[str, str]) -> Message:
    """The same notification from a newer producer, which says more."""
    outer = msgspec.json.decode(message.body)
    inner = msgspec.json.decode(outer["oslo.message"])
    payload = inner["payload"]
    payload["nova_object.version"] = "1.99"
    payload["nova_object.data"] |= values
    body = msgspec.json.encode(outer | {"oslo.message": msgspec.json.encode(inner).decode()})
    return Message(body, message.routing_key, {})


def announced_at(at: int) -> Message:
    """What somebody else says at that moment of an instance that nobody has heard of."""
    notification = Notification(
        event_type="instance.update",
        payload=to_payload(new_record({}, at)).wrap(),
        publisher_id="nova-compute:a",
        priority="INFO",
        timestamp=from_microseconds(at),
        message_id="1",
    )
    return Message(encode(notification), ROUTING_KEY, {})
