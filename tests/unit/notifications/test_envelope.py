import json
from datetime import UTC, datetime
from typing import Any

import pytest

from fleetlight.notifications.envelope import Notification, decode, encode, read_sample
from fleetlight.notifications.errors import EnvelopeError

NOW = datetime(2026, 11, 21, 10, 0, 0, 1, tzinfo=UTC)
NOTIFICATION = Notification(
    event_type="instance.update",
    payload={"nova_object.name": "Ä"},
    publisher_id="nova-compute:host7",
    priority="INFO",
    timestamp=NOW,
    message_id="3f2b8a52-6a0e-4c38-9f57-0a6c4a1d2e10",
    request_id="req-1",
)


def _inner(**changes: Any) -> dict[str, Any]:
    inner = json.loads(json.loads(encode(NOTIFICATION))["oslo.message"])
    return {key: value for key, value in (inner | changes).items() if value is not ...}


def _body(**changes: Any) -> bytes:
    return json.dumps(_inner(**changes)).encode()


def test_envelope_has_the_text_of_the_message_inside() -> None:
    outer = json.loads(encode(NOTIFICATION))
    assert outer.keys() == {"oslo.version", "oslo.message"}
    assert outer["oslo.version"] == "2.0"
    inner = json.loads(outer["oslo.message"])
    assert len(inner.pop("_unique_id")) == 32
    assert inner == {
        "message_id": NOTIFICATION.message_id,
        "publisher_id": "nova-compute:host7",
        "event_type": "instance.update",
        "priority": "INFO",
        "payload": {"nova_object.name": "Ä"},
        "timestamp": "2026-11-21 10:00:00.000001",
        "_context_request_id": "req-1",
    }


def test_decoding_reverses_encoding() -> None:
    assert decode(encode(NOTIFICATION)) == NOTIFICATION


def test_message_without_envelope_is_read() -> None:
    assert decode(_body()) == NOTIFICATION


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-11-21 10:00:00", datetime(2026, 11, 21, 10, tzinfo=UTC)),
        ("2026-11-21 10:00:00.5", datetime(2026, 11, 21, 10, 0, 0, 500_000, tzinfo=UTC)),
        ("2026-11-21T10:00:00.000001Z", NOW),
        ("2026-11-21T12:00:00.000001+02:00", NOW),
    ],
)
def test_timestamps_are_read_with_and_without_fraction_and_zone(text: str, expected: datetime) -> None:
    assert decode(_body(timestamp=text)).timestamp == expected


def test_nothing_of_the_request_context_is_kept_but_its_id() -> None:
    notification = decode(_body(_context_auth_token="secret", _context_roles=["admin"]))
    assert notification == NOTIFICATION


def test_request_id_that_is_no_text_is_dropped() -> None:
    assert decode(_body(_context_request_id=None)).request_id is None
    assert decode(_body(_context_request_id=7)).request_id is None


@pytest.mark.parametrize(
    ("body", "where"),
    [
        (b"", "message"),
        (b"not json", "message"),
        (b"\xff\xfe", "message"),
        (b"[]", "message"),
        (b"{}", "event_type"),
        (_body(priority=...), "priority"),
        (_body(priority=3), "priority"),
        (_body(payload=[]), "payload"),
        (_body(message_id=...), "message_id"),
        (_body(timestamp=...), "timestamp"),
        (_body(timestamp="soon"), "timestamp"),
        (_body(timestamp="0001-01-01T00:00:00+14:00"), "timestamp"),
        (json.dumps({"oslo.version": "3.0", "oslo.message": "{}"}).encode(), "oslo.version"),
        (json.dumps({"oslo.version": "2.1", "oslo.message": "{}"}).encode(), "oslo.version"),
        (json.dumps({"oslo.message": "{}"}).encode(), "oslo.version"),
        (json.dumps({"oslo.version": "2.0", "oslo.message": {}}).encode(), "oslo.message"),
        (json.dumps({"oslo.version": "2.0", "oslo.message": "["}).encode(), "message"),
        (b'{"event_type": "a.b", "payload": {"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}}", "message"),
    ],
)
def test_what_is_no_notification_is_refused_with_the_place(body: bytes, where: str) -> None:
    with pytest.raises(EnvelopeError) as refused:
        decode(body)
    assert refused.value.problem.where == where


def test_sample_gets_the_missing_message_id_and_timestamp() -> None:
    sample = read_sample(_body(message_id=..., timestamp=...), NOW)
    assert sample.timestamp == NOW
    assert len(sample.message_id) == 36


def test_sample_keeps_the_message_id_and_timestamp_that_it_has() -> None:
    assert read_sample(encode(NOTIFICATION), datetime.now(UTC)) == NOTIFICATION
