"""Interprets messages from a cell's bus; pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from fleetlight.bus.topology import CELL_HEADER, RESOURCE_HEADER, REVISION_HEADER, SEQUENCE_HEADER
from fleetlight.cells.payloads.instance_payload import from_payload
from fleetlight.indexer.backends.base import OLDEST_TIME_VERSION
from fleetlight.indexer.errors import DeadLetterReason, MalformedMessageError
from fleetlight.indexer.extra_fields import SCHEMA_KEY, read_extra
from fleetlight.indexer.transform.documents import ExternalChange, NativeChange
from fleetlight.indexer.transform.native_messages import read_record
from fleetlight.indexer.transform.other_items import OtherItemChange, read_other_item_change
from fleetlight.notifications.envelope import Notification, decode, size_problem
from fleetlight.notifications.errors import (
    EnvelopeError,
    PayloadError,
    UnknownPayloadError,
    UnsupportedVersionError,
    UnversionedError,
)
from fleetlight.notifications.event_types import OF_INSTANCES
from fleetlight.notifications.payloads import fleetlight, instance
from fleetlight.notifications.registry import parse_payload
from fleetlight.notifications.versioned import DATA_KEY, NAMESPACE_KEY
from fleetlight.resources.fields import to_microseconds
from fleetlight.resources.uuids import is_uuid

_NOVA = "nova"
_OBJECT_KEYS = "nova_object."
_UUID_LENGTH = 36
_LONGEST_SEQUENCE = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The highest sequence of a cell at the moment `at` (microseconds) was `sequence`."""

    cell_uuid: str
    sequence: int
    at: int


@dataclass(frozen=True, slots=True)
class Hint:
    """A notification after which the rows of these instances may differ; it does not carry the change."""

    event_type: str
    uuids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class OtherNotification:
    """A valid notification that changes no document."""

    event_type: str


Meaning = NativeChange | OtherItemChange | ExternalChange | Hint | Heartbeat | OtherNotification


def read_headers(cell_uuid: str, headers: Mapping[str, Any]) -> tuple[int | None, int | None, str | None]:
    """Sequence, revision and instance of a message on the bus of a cell; None for each that its headers lack.

    A header of a wrong type counts as missing, since any sender may have set it. Raises MalformedMessageError if the
    headers name another cell, or a number is out of range.
    """
    cell = headers.get(CELL_HEADER)
    if cell is not None and cell != cell_uuid:
        raise MalformedMessageError(
            DeadLetterReason.MALFORMED, f"headers.{CELL_HEADER}: must be {cell_uuid}, whose bus this is, not {cell!r}"
        )
    instance_uuid = headers.get(RESOURCE_HEADER)
    return (
        _number(headers, SEQUENCE_HEADER, _LONGEST_SEQUENCE),
        _number(headers, REVISION_HEADER, OLDEST_TIME_VERSION - 1),
        instance_uuid if isinstance(instance_uuid, str) else None,
    )


def _number(headers: Mapping[str, Any], header: str, highest: int) -> int | None:
    value = headers.get(header)
    if type(value) is not int:
        return None
    if not 1 <= value <= highest:
        raise MalformedMessageError(
            DeadLetterReason.MALFORMED, f"headers.{header}: must be between 1 and {highest}, not {value}"
        )
    return value


def interpret(body: bytes, revision: int | None) -> Meaning:
    """Decode one message.

    revision: from the headers; None for a notification from outside. Raises MalformedMessageError if the message can
    never be read; an unforeseen error becomes one as well, since one message must not stop the stream.
    """
    if problem := size_problem(body):
        raise MalformedMessageError(DeadLetterReason.TOO_LARGE, f"message: {problem}")
    try:
        return _interpret(body, revision)
    except MalformedMessageError:
        raise
    except Exception as error:
        raise MalformedMessageError.unexpected(error) from error


def _interpret(body: bytes, revision: int | None) -> Meaning:
    if revision is not None:
        record = read_record(body)
        if record is not None:
            return NativeChange(revision, record)
    try:
        notification = decode(body)
        if revision is None and (aside := _aside(notification)) is not None:
            return aside
        payload = parse_payload(notification.payload)
    except UnversionedError as error:
        if revision is None:
            return OtherNotification(error.event_type)
        raise MalformedMessageError(DeadLetterReason.MALFORMED, str(error)) from error
    except (EnvelopeError, PayloadError) as error:
        raise MalformedMessageError(DeadLetterReason.MALFORMED, str(error)) from error
    except UnknownPayloadError as error:
        raise MalformedMessageError(DeadLetterReason.UNKNOWN_PAYLOAD, str(error)) from error
    except UnsupportedVersionError as error:
        raise MalformedMessageError(DeadLetterReason.UNSUPPORTED_VERSION, str(error)) from error
    match payload:
        case fleetlight.FullInstancePayload() if revision is not None:
            extra = read_extra(payload, notification.payload.get(SCHEMA_KEY))
            return NativeChange(revision, from_payload(payload), extra)
        case fleetlight.FullInstancePayload() | instance.InstancePayload():
            return _external_change(notification, payload)
        case fleetlight.CellHeartbeatPayload():
            return Heartbeat(payload.cell_uuid, payload.sequence, to_microseconds(payload.at))
        case _:
            # A message without a revision is not from the cell itself.
            change = None if revision is None else read_other_item_change(payload, revision)
            return change or OtherNotification(notification.event_type)


def _aside(notification: Notification) -> Hint | OtherNotification | None:
    """The meaning of a notification of Nova, in any version, that is not about an instance; None for all others.

    An unversioned notification is for other consumers; it has another topic, unless an operator configured ours.
    """
    event_type, payload = notification.event_type, notification.payload
    if not any(key.startswith(_OBJECT_KEYS) for key in payload):
        return OtherNotification(event_type)
    if payload.get(NAMESPACE_KEY) != _NOVA or event_type.startswith(OF_INSTANCES):
        return None
    data = payload.get(DATA_KEY)
    if not isinstance(data, dict):
        return OtherNotification(event_type)
    # For an instance that could not be built this may be the only message (section 8). A group names its members.
    named = [data.get("instance_uuid")] if event_type.startswith("compute_task.") else []
    if event_type.startswith("server_group.") and isinstance(data.get("members"), list):
        named = data["members"]
    uuids = tuple(_canonical(uuid) for uuid in named if isinstance(uuid, str) and is_uuid(uuid))
    return Hint(event_type, uuids) if uuids else OtherNotification(event_type)


def _external_change(
    notification: Notification, payload: fleetlight.FullInstancePayload | instance.InstancePayload
) -> ExternalChange:
    version = to_microseconds(notification.timestamp)
    if version < OLDEST_TIME_VERSION:
        raise MalformedMessageError(
            DeadLetterReason.MALFORMED, f"timestamp: must be after 2001-09-09, not {notification.timestamp}"
        )
    carried = from_payload(payload)
    carried["uuid"] = _canonical(payload.uuid)
    extra = read_extra(payload, notification.payload.get(SCHEMA_KEY))
    return ExternalChange(carried["uuid"], version, notification.event_type, carried, extra)


def _canonical(uuid: str) -> str:
    """The uuid in lower case with dashes. Nova accepts other spellings, which must not become other instances."""
    return uuid if len(uuid) == _UUID_LENGTH and uuid.islower() else str(UUID(uuid))
