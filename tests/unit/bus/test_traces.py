"""Which trace a request has, and what the spans of its changes say."""

from dataclasses import replace
from random import Random
from uuid import UUID

import pytest
from opentelemetry.trace import StatusCode

from fleetlight.bus.bus import Delivery, Message
from fleetlight.bus.link import Link
from fleetlight.bus.signatures import SigningKey, is_signed, signed
from fleetlight.notifications.envelope import Notification, encode
from fleetlight.resources.fields import from_microseconds
from tests.support.traced import RecordedTraces, times

REQUEST = "req-46f4d8ac-e61c-452d-926b-b508626a50af"
TRACE = 0x46F4D8ACE61C452D926BB508626A50AF
ANSWER = 0x46F4D8ACE61C452D
AT = 1_700_000_000_000_000
CELL, SERVER = "0d6b1f2e-6c52-4a5c-9f0e-2f3a7a9a1c11", "a9d1948f-a24c-43a9-bea6-0f72acb40a4b"


def message(sequence: int = 1, request_id: str | None = REQUEST) -> Message:
    notification = Notification("instance.update", {}, "cell", "INFO", from_microseconds(AT), "1", request_id)
    headers: dict[str, int | str] = {
        "fleetlight-cell": CELL,
        "fleetlight-sequence": sequence,
        "fleetlight-resource": SERVER,
        "fleetlight-revision": sequence + 10,
    }
    return Message(encode(notification), "versioned_notifications.info", headers)


def delivered(sent: Message) -> Delivery:
    return Delivery(sent.body, sent.routing_key, sent.headers, redelivered=False, tag=1, link=Link.__new__(Link))


def test_trace_has_the_uuid_of_its_request() -> None:
    assert RecordedTraces().traces.trace_of(REQUEST) == TRACE


@pytest.mark.parametrize(
    "request_id", [None, "", "req-", "req-1", f"req-balance-{SERVER}", f"req-{UUID(int=0)}", SERVER]
)
def test_request_without_a_random_uuid_has_no_trace(request_id: str | None) -> None:
    recorded = RecordedTraces()
    sent = message(request_id=request_id)
    assert recorded.traces.trace_of(request_id) is None
    assert recorded.traces.begun(sent) is sent
    recorded.traces.job_ended(request_id, "job", AT, AT, {}, has_failed=False)
    recorded.traces.published([sent], [AT], AT, AT)
    assert recorded.spans == []


def test_message_that_is_none_is_published_without_a_trace() -> None:
    sent = replace(message(), body=b"no notification")
    assert RecordedTraces().traces.begun(sent) is sent


@pytest.mark.parametrize("ratio", [0.0, 0.1, 0.5, 0.75, 1.0])
def test_ratio_of_the_requests_is_sampled_and_every_process_decides_alike(ratio: float) -> None:
    # The two bits of a UUID that are the same in all would make it none of them, or all.
    random = Random(7)
    requests = [f"req-{UUID(int=random.getrandbits(128), version=4)}" for _ in range(2000)]
    api, relay = (RecordedTraces(ratio).traces for _ in range(2))
    sampled = [request for request in requests if api.trace_of(request) is not None]
    assert len(sampled) == pytest.approx(2000 * ratio, abs=60)
    assert [request for request in requests if "traceparent" in relay.begun(message(1, request)).headers] == sampled


def test_answer_is_the_span_that_all_others_of_its_request_are_below() -> None:
    recorded = RecordedTraces()
    recorded.traces.answered(
        TRACE, "POST /servers", AT, AT + 5, {"http.route": "/servers"}, has_failed=True, caller=None
    )
    recorded.traces.job_ended(REQUEST, "job os-stop", AT + 1, AT + 9, {"fleetlight.job": 7}, has_failed=False)
    sent = recorded.traces.begun(message())
    recorded.traces.published([sent], [AT + 2], AT + 3000, AT + 4000)

    answer, job, publish = recorded.spans
    assert (answer.name, answer.parent, answer.context and answer.context.span_id) == ("POST /servers", None, ANSWER)
    assert (answer.status.status_code, job.status.status_code) == (StatusCode.ERROR, StatusCode.UNSET)
    assert {span.context and span.context.trace_id for span in recorded.spans} == {TRACE}
    assert [span.parent and span.parent.span_id for span in (job, publish)] == [ANSWER, ANSWER]
    assert [times(span) for span in (answer, job, publish)] == [(AT, AT + 5), (AT + 1, AT + 9), (AT + 2, AT + 4000)]
    assert publish.attributes == {
        "fleetlight.cell": CELL,
        "fleetlight.sequence": 1,
        "fleetlight.instance": SERVER,
        "fleetlight.revision": 11,
        "messaging.batch.message_count": 1,
        "fleetlight.outbox_wait_ms": 2,
    }


@pytest.mark.parametrize(
    ("caller", "links"),
    [
        (None, []),
        ("junk", []),
        ("00-00000000000000000000000000000000-b7ad6b7169203331-01", []),
        ("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00", [0x0AF7651916CD43DD8448EB211C80319C]),
    ],
)
def test_answer_is_linked_to_the_span_of_its_caller(caller: str | None, links: list[int]) -> None:
    recorded = RecordedTraces()
    recorded.traces.answered(TRACE, "GET /", AT, AT, {}, has_failed=False, caller=caller)
    [answer] = recorded.spans
    assert [link.context.trace_id for link in answer.links] == links


def test_change_is_indexed_when_the_watermark_has_passed_it_and_searches_find_it() -> None:
    recorded = RecordedTraces()
    sent = [recorded.traces.begun(message(sequence)) for sequence in (1, 2, 3)]
    recorded.traces.published(sent, [AT] * 3, AT, AT)
    recorded.traces.written(CELL, [delivered(each) for each in sent], AT + 10, AT + 20)
    recorded.traces.searchable(CELL, 0, AT + 25)
    recorded.traces.searchable("another cell", 3, AT + 26)
    assert [span.name for span in recorded.spans] == ["publish"] * 3
    recorded.traces.searchable(CELL, 2, AT + 30)
    recorded.traces.searchable(CELL, 2, AT + 40)

    first, second, _ = recorded.spans[:3]
    indexed = recorded.spans[3:]
    assert [span.parent and span.parent.span_id for span in indexed] == [
        span.context and span.context.span_id for span in (first, second)
    ]
    assert [(span.name, times(span)) for span in indexed] == [("index", (AT + 10, AT + 30))] * 2
    assert [(each.name, each.timestamp // 1000) for each in indexed[0].events] == [("written", AT + 20)]
    assert indexed[1].attributes is not None
    assert indexed[1].attributes["fleetlight.sequence"] == 2


@pytest.mark.parametrize("header", ["junk", 7, "00-46f4d8ace61c452d926bb508626a50af-0000000000000000-01"])
def test_header_that_names_no_span_makes_none(header: str | int) -> None:
    recorded = RecordedTraces()
    forged = replace(message(), headers={**message().headers, "traceparent": header})
    recorded.traces.published([forged], [AT], AT, AT)
    recorded.traces.written(CELL, [delivered(forged)], AT, AT)
    recorded.traces.searchable(CELL, 1, AT)
    assert recorded.spans == []


def test_signature_of_a_message_holds_with_and_without_its_trace() -> None:
    key = SigningKey("0123abcd", b"x" * 32)
    traced = signed(RecordedTraces().traces.begun(message()), key)
    without = {name: value for name, value in traced.headers.items() if name != "traceparent"}
    assert "traceparent" in traced.headers
    assert is_signed(traced.headers, traced.body, key)
    assert is_signed(without, traced.body, key)
