"""What one message from a cell's bus means for the index; pure."""

from dataclasses import dataclass
from uuid import UUID

from cells.instance_payload import from_payload
from indexer.backends.base import OLDEST_TIME_VERSION
from indexer.documents import ForeignChange, NativeChange
from indexer.errors import DeadLetterReason, MalformedMessageError
from indexer.native_messages import read_record
from notifications.envelope import Notification, decode
from notifications.errors import EnvelopeError, PayloadError, UnknownPayloadError, UnsupportedVersionError
from notifications.payloads import fleetlight, instance
from notifications.registry import parse_payload
from query.fields import to_microseconds

_UUID_LENGTH = 36


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """At the moment `at` (microseconds) the cell had given out `sequence` and no higher one."""

    cell_uuid: str
    sequence: int
    at: int


@dataclass(frozen=True, slots=True)
class OtherNotification:
    """A valid notification that says nothing about an instance's record."""

    event_type: str


Meaning = NativeChange | ForeignChange | Heartbeat | OtherNotification


def interpret(body: bytes, revision: int | None) -> Meaning:
    """Read one message.

    revision: what the message's headers say; None for a notification from outside, which has no such header.
    Raises MalformedMessageError for what can never be read.
    """
    if revision is not None:
        record = read_record(body)
        if record is not None:
            return NativeChange(revision, record)
    try:
        notification = decode(body)
        payload = parse_payload(notification.payload)
    except (EnvelopeError, PayloadError) as error:
        raise MalformedMessageError(DeadLetterReason.MALFORMED, str(error)) from error
    except UnknownPayloadError as error:
        raise MalformedMessageError(DeadLetterReason.UNKNOWN_PAYLOAD, str(error)) from error
    except UnsupportedVersionError as error:
        raise MalformedMessageError(DeadLetterReason.UNSUPPORTED_VERSION, str(error)) from error
    match payload:
        case fleetlight.InstancePayload() if revision is not None:
            return NativeChange(revision, from_payload(payload))
        case fleetlight.InstancePayload() | instance.InstancePayload():
            return _foreign_change(notification, payload)
        case fleetlight.CellHeartbeatPayload():
            return Heartbeat(payload.cell_uuid, payload.sequence, to_microseconds(payload.at))
        case _:
            return OtherNotification(notification.event_type)


def _foreign_change(
    notification: Notification, payload: fleetlight.InstancePayload | instance.InstancePayload
) -> ForeignChange:
    version = to_microseconds(notification.timestamp)
    if version < OLDEST_TIME_VERSION:
        raise MalformedMessageError(
            DeadLetterReason.MALFORMED, f"timestamp: must be after 2001-09-09, not {notification.timestamp}"
        )
    carried = from_payload(payload)
    carried["uuid"] = _canonical(payload.uuid)
    return ForeignChange(carried["uuid"], version, notification.event_type, carried)


def _canonical(uuid: str) -> str:
    """Nova takes several spellings of a uuid, which must not become several instances."""
    return uuid if len(uuid) == _UUID_LENGTH and uuid.islower() else str(UUID(uuid))
