from datetime import UTC, datetime
from typing import Any

import pytest

from fleetlight.cells.payloads.instance_payload import to_payload
from fleetlight.indexer.errors import DeadLetterReason, MalformedMessageError
from fleetlight.indexer.transform.documents import ExternalChange, NativeChange
from fleetlight.indexer.transform.messages import Heartbeat, OtherNotification, interpret
from fleetlight.manager.operations.actions.new_instance import new_record
from fleetlight.notifications.envelope import Notification, encode
from fleetlight.resources.fields import to_microseconds
from tests.support.memory.memory_cell import CELL_UUID, NOW, MemoryCell

SENT = datetime(2026, 11, 21, 10, 0, tzinfo=UTC)
UUID = "7a1d5a0a-90b1-4f36-8f6e-1e2d3c4b5a69"


def body(payload: dict[str, Any], event_type: str = "instance.update", timestamp: datetime = SENT) -> bytes:
    return encode(Notification(event_type, payload, "fleetlight-cell:one", "INFO", timestamp, "an-id"))


def instance_payload(**values: Any) -> dict[str, Any]:
    return to_payload(new_record({"uuid": UUID, **values}, NOW)).wrap()


def test_message_with_a_revision_is_a_change_with_a_complete_record() -> None:
    cell = MemoryCell()
    message = cell.create(uuid=UUID, display_name="web")
    meaning = interpret(message.body, 1)
    assert meaning == NativeChange(1, cell.rows[UUID].record)


def test_message_without_a_revision_has_its_time_as_version() -> None:
    meaning = interpret(body(instance_payload(host="a"), "instance.power_off.end"), None)
    assert isinstance(meaning, ExternalChange)
    assert (meaning.uuid, meaning.version, meaning.event_type) == (
        UUID,
        to_microseconds(SENT),
        "instance.power_off.end",
    )
    assert meaning.carried["host"] == "a"


def test_spellings_of_a_uuid_are_one_instance() -> None:
    payload = instance_payload()
    payload["nova_object.data"]["uuid"] = UUID.replace("-", "").upper()
    meaning = interpret(body(payload), None)
    assert isinstance(meaning, ExternalChange)
    assert meaning.uuid == meaning.carried["uuid"] == UUID


def test_heartbeat_says_which_sequence_was_the_highest_when() -> None:
    assert interpret(MemoryCell().heartbeat(at=NOW).body, None) == Heartbeat(CELL_UUID, 0, NOW)


def test_notification_about_something_else_is_named() -> None:
    payload = {
        "nova_object.name": "KeypairPayload",
        "nova_object.namespace": "nova",
        "nova_object.version": "1.0",
        "nova_object.data": {"user_id": "u", "name": "k", "fingerprint": "", "public_key": "", "type": "ssh"},
    }
    assert interpret(body(payload, "keypair.create.end"), None) == OtherNotification("keypair.create.end")


def _newer_major() -> bytes:
    return body({**instance_payload(), "nova_object.version": "2.0"})


def _unknown_payload() -> bytes:
    return body({**instance_payload(), "nova_object.name": "VolumePayload"})


def _wrong_field() -> bytes:
    payload = instance_payload()
    payload["nova_object.data"]["progress"] = "much"
    return body(payload)


@pytest.mark.parametrize("revision", [None, 3])
@pytest.mark.parametrize("time", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"])
def test_time_that_utc_has_no_date_for_is_refused_by_name(time: str, revision: int | None) -> None:
    payload = instance_payload()
    payload["nova_object.data"]["created_at"] = time
    with pytest.raises(MalformedMessageError, match="created_at"):
        interpret(body(payload), revision)


@pytest.mark.parametrize("revision", [None, 3])
def test_uuid_with_a_new_line_behind_it_is_refused_by_name(revision: int | None) -> None:
    payload = instance_payload()
    payload["nova_object.data"]["uuid"] += "\n"
    with pytest.raises(MalformedMessageError, match="uuid"):
        interpret(body(payload), revision)


@pytest.mark.parametrize("revision", [None, 3])
def test_message_nested_too_deep_is_refused(revision: int | None) -> None:
    payload = instance_payload(scheduler_hints={"group": "deep"})
    deep = "[" * 100_000 + "]" * 100_000
    message = body(payload).replace(rb"\"deep\"", deep.encode())
    with pytest.raises(MalformedMessageError, match="message"):
        interpret(message, revision)


@pytest.mark.parametrize(
    ("message", "reason", "detail"),
    [
        (b"{", DeadLetterReason.MALFORMED, "message"),
        (b"\xff", DeadLetterReason.MALFORMED, "message"),
        (b"[]", DeadLetterReason.MALFORMED, "message"),
        (_wrong_field(), DeadLetterReason.MALFORMED, "progress"),
        (_unknown_payload(), DeadLetterReason.UNKNOWN_PAYLOAD, "VolumePayload"),
        (_newer_major(), DeadLetterReason.UNSUPPORTED_VERSION, "InstancePayload 2.0"),
        (
            body(instance_payload(), timestamp=datetime(1970, 1, 2, tzinfo=UTC)),
            DeadLetterReason.MALFORMED,
            "timestamp",
        ),
    ],
)
def test_what_can_never_be_indexed_is_refused_by_name(message: bytes, reason: DeadLetterReason, detail: str) -> None:
    with pytest.raises(MalformedMessageError, match=detail) as failure:
        interpret(message, None)
    assert failure.value.reason is reason
