"""The envelope of notifications: how they are written to the bus, and read (contract, section 3).

In oslo.messaging's format 2.0 an object contains the JSON text of another one. Reading is liberal: the inner object
alone, as the older driver sends it, is accepted too. Of the sender's request context (`_context_*`) only the request id
is kept, since older senders leave tokens in it. Payloads are checked elsewhere; see registry.
"""

import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec

from fleetlight.notifications.errors import EnvelopeError, UnversionedError

ENVELOPE_VERSION = "2.0"
LARGEST_BODY_BYTES = 16 * 1024 * 1024
"""Larger bodies are neither sent nor read. This is RabbitMQ 4's default limit (max_message_size)."""
_MAJOR, _MINOR = 2, 0


@dataclass(frozen=True, slots=True)
class Notification:
    """One event on the wire.

    payload: the wrapped form (`nova_object.*`) of a versioned payload.
    publisher_id: `<service>:<host>`. priority: upper case, as in `INFO`. timestamp: when it was sent, with time zone.
    message_id: the same in each copy and resend.
    """

    event_type: str
    payload: dict[str, Any]
    publisher_id: str
    priority: str
    timestamp: datetime
    message_id: str
    request_id: str | None = None


class _Outer(msgspec.Struct):
    version: str | None = msgspec.field(name="oslo.version", default=None)
    message: str | None = msgspec.field(name="oslo.message", default=None)


class _Inner(msgspec.Struct):
    event_type: str
    payload: Any
    publisher_id: str
    priority: str
    timestamp: str | None = None
    message_id: str | None = None
    request_id: Any = msgspec.field(name="_context_request_id", default=None)


class _Context(msgspec.Struct):
    request_id: str | None = msgspec.field(name="_context_request_id", default=None)


# Such as "Expected `str`, got `int` - at `$.priority`" and "Object missing required field `priority`".
_MSGSPEC_ERROR = re.compile(
    r"Expected `(?P<expected>[^`]+)`, got `(?P<found>[^`]+)`( - at `\$\.?(?P<where>[^`]*)`)?"
    r"|Object missing required field `(?P<missing>[^`]+)`.*"
)

# msgspec's names of types; others have their own names.
_JSON_NAMES: Mapping[type, str] = {list: "array", type(None): "null"}
# RecursionError: nested deeper than any payload.
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

_decode_outer = msgspec.json.Decoder(_Outer).decode
_decode_inner = msgspec.json.Decoder(_Inner).decode
_decode_context = msgspec.json.Decoder(_Context).decode
_encode = msgspec.json.Encoder().encode


def encode(notification: Notification) -> bytes:
    """Encode a notification as a message body: UTF-8 JSON, envelope 2.0."""
    inner: dict[str, Any] = {
        "message_id": notification.message_id,
        "publisher_id": notification.publisher_id,
        "event_type": notification.event_type,
        "priority": notification.priority,
        "payload": notification.payload,
        # oslo's form: UTC without a zone, and no fraction at a full second.
        "timestamp": notification.timestamp.astimezone(UTC).replace(tzinfo=None).isoformat(sep=" "),
        "_unique_id": uuid.uuid4().hex,
    }
    if notification.request_id is not None:
        inner["_context_request_id"] = notification.request_id
    return _encode({"oslo.version": ENVELOPE_VERSION, "oslo.message": _encode(inner).decode()})


def size_problem(body: bytes) -> str | None:
    """The problem with a body of excessive size, which is not parsed; None for any other."""
    if len(body) <= LARGEST_BODY_BYTES:
        return None
    return f"is of {len(body)} bytes, and more than {LARGEST_BODY_BYTES} are neither sent nor read"


def decode(body: bytes) -> Notification:
    """Parse a message body, with or without envelope. Raises EnvelopeError, UnversionedError."""
    inner = _open(body)
    if inner.message_id is None:
        raise EnvelopeError("message_id", "is missing")
    if inner.timestamp is None:
        raise EnvelopeError("timestamp", "is missing")
    return _notification(inner, inner.message_id, _read_timestamp(inner.timestamp))


def request_id_of(body: bytes) -> str | None:
    """The request id in a message body, without parsing the rest; None if there is none."""
    try:
        return _decode_context(_decode_outer(body).message or body).request_id
    except _UNREADABLE:
        return None


def read_sample(text: bytes, now: datetime) -> Notification:
    """As `decode`, but fills in a missing message_id or timestamp, which sample files lack.

    now: the timestamp to fill in, with time zone. Raises EnvelopeError, UnversionedError.
    """
    inner = _open(text)
    timestamp = now if inner.timestamp is None else _read_timestamp(inner.timestamp)
    return _notification(inner, inner.message_id or str(uuid.uuid4()), timestamp)


def _notification(inner: _Inner, message_id: str, timestamp: datetime) -> Notification:
    if not isinstance(inner.payload, dict):
        raise UnversionedError(inner.event_type, _JSON_NAMES.get(type(inner.payload), type(inner.payload).__name__))
    request_id = inner.request_id if isinstance(inner.request_id, str) else None
    return Notification(
        inner.event_type, inner.payload, inner.publisher_id, inner.priority, timestamp, message_id, request_id
    )


def _open(body: bytes) -> _Inner:
    if problem := size_problem(body):
        raise EnvelopeError("message", problem)
    try:
        outer = _decode_outer(body)
    except _UNREADABLE as error:
        raise _not_a_notification(error) from error
    if outer.message is not None:
        _check_version(outer.version)
    try:
        return _decode_inner(body if outer.message is None else outer.message)
    except _UNREADABLE as error:
        raise _not_a_notification(error) from error


def _check_version(version: str | None) -> None:
    if version == ENVELOPE_VERSION:
        return
    major, _, minor = (version or "").partition(".")
    if not (major.isdecimal() and minor.isdecimal() and int(major) == _MAJOR and int(minor) <= _MINOR):
        raise EnvelopeError("oslo.version", f"must be {ENVELOPE_VERSION}, not {version!r}")


def _read_timestamp(text: str) -> datetime:
    try:
        timestamp = datetime.fromisoformat(text)
        return timestamp.replace(tzinfo=UTC) if timestamp.tzinfo is None else timestamp.astimezone(UTC)
    except (ValueError, OverflowError):
        raise EnvelopeError("timestamp", f"must be a time such as 2026-11-21 10:00:00.000001, not {text!r}") from None


def _not_a_notification(error: Exception) -> EnvelopeError:
    """Convert msgspec's error, moving the place, which its sentence ends with, to the front."""
    found = _MSGSPEC_ERROR.fullmatch(str(error))
    if found is None:
        return EnvelopeError("message", f"is not JSON: {error}")
    if found["missing"]:
        return EnvelopeError(found["missing"], "is missing")
    return EnvelopeError(found["where"] or "message", f"must be {found['expected']}, not {found['found']}")
