"""The headers of a message, out of the payload of its header frame.

py-amqp reads all properties, each type of value by a list of comparisons; that took a third of what it takes to receive
a message. Here only headers are read, and only such values as our own messages have: texts and whole numbers
(docs/performance.md). Whatever else there is has py-amqp read all of it.
"""

import struct
from sys import intern
from typing import Any

from amqp.serialization import decode_properties_basic  # type: ignore[import-untyped]  # as kombu, which needs it

# In front of the properties: class, weight, size of the body; two octets say which properties there are.
PROPERTIES_BEGIN = 12
_FLAGS = 2
_CONTENT_TYPE, _CONTENT_ENCODING, _HEADERS = 0x80, 0x40, 0x20
# RabbitMQ calls the last one `l`, and py-amqp wrote it as `L`.
_TEXT, _INT32, *_INT64 = b"SIlL"
_read_length = struct.Struct(">I").unpack_from
_read_int32 = struct.Struct(">i").unpack_from
_read_int64 = struct.Struct(">q").unpack_from
_APPLICATION_HEADERS = "application_headers"
_MAX_NAMES = 1000


class _Names(dict[bytes, str]):
    """Names of headers, each made once; a sender that makes up new ones all the time does not fill the memory."""

    def __missing__(self, encoded: bytes) -> str:
        name = intern(encoded.decode())
        if len(self) < _MAX_NAMES:
            self[encoded] = name
        return name


_names = _Names()


def properties_of(header: bytes) -> dict[str, Any]:
    """All properties in the payload of a header frame; none if they cannot be read."""
    try:
        properties: dict[str, Any] = decode_properties_basic(header, PROPERTIES_BEGIN)[0]
    except Exception:  # noqa: BLE001  # any sender can put anything there
        return {}
    return properties


def headers_of(header: bytes) -> dict[str, Any]:
    """The headers among the properties; none if they cannot be read.

    A name is the same object in all usual messages: names would be a sixth of what waits in memory.
    """
    try:
        headers = _usual_headers(header)
    except (IndexError, struct.error, UnicodeDecodeError):
        headers = None
    return properties_of(header).get(_APPLICATION_HEADERS, {}) if headers is None else headers


def _usual_headers(header: bytes) -> dict[str, Any] | None:
    """None if there is something else than texts and whole numbers.

    Raises IndexError, struct.error or UnicodeDecodeError for what is damaged.
    """
    flags = header[PROPERTIES_BEGIN]
    if not flags & _HEADERS:
        return None
    position = PROPERTIES_BEGIN + _FLAGS
    for earlier in (_CONTENT_TYPE, _CONTENT_ENCODING):
        if flags & earlier:
            position += 1 + header[position]
    (length,) = _read_length(header, position)
    position += 4
    end = position + length
    headers: dict[str, Any] = {}
    while position < end:
        # A name behind its length, the type of the value, and the value; a text is behind its length.
        value = position + 2 + header[position]
        name = _names[header[position + 1 : value - 1]]
        kind = header[value - 1]
        if kind == _TEXT:
            position = value + 4 + _read_length(header, value)[0]
            headers[name] = header[value + 4 : position].decode()
        elif kind == _INT32:
            (headers[name],) = _read_int32(header, value)
            position = value + 4
        elif kind in _INT64:
            (headers[name],) = _read_int64(header, value)
            position = value + 8
        else:
            return None
    return headers if position == end <= len(header) else None
