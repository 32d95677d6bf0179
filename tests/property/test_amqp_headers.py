"""Headers are what py-amqp reads, whatever a sender has put there (bus.amqp_headers)."""

from struct import pack
from typing import Any

from amqp.basic_message import Message  # type: ignore[import-untyped]  # as kombu, which it belongs to
from hypothesis import given
from hypothesis import strategies as st

from bus.amqp_headers import headers_of, properties_of

_NAMES = st.text(max_size=20)
_NUMBERS = st.integers(-(2**63), 2**63 - 1)
_USUAL = st.text(max_size=40) | _NUMBERS
_OTHERS = st.recursive(
    st.none() | st.booleans() | st.binary(max_size=5) | st.floats(allow_nan=False) | _USUAL,
    lambda values: st.lists(values, max_size=3) | st.dictionaries(_NAMES, values, max_size=3),
    max_leaves=5,
)
_PROPERTIES = st.fixed_dictionaries(
    {},
    optional={
        "content_type": st.text("a/é", max_size=20),
        "content_encoding": st.text("u8", max_size=9),
        "delivery_mode": st.integers(1, 2),
        "priority": st.integers(0, 9),
        "timestamp": st.integers(0, 2**40),
        "app_id": st.text(max_size=9),
    },
)


def _header(headers: dict[str, Any], properties: dict[str, Any]) -> bytes:
    """The payload of a header frame."""
    message = Message(b"", application_headers=headers, **properties)
    return pack(">HHQ", 60, 0, 0) + bytes(message._serialize_properties())


def _read_by_library(header: bytes) -> dict[str, Any]:
    headers: dict[str, Any] = properties_of(header).get("application_headers", {})
    return headers


@given(st.dictionaries(_NAMES, _USUAL, max_size=6), _PROPERTIES)
def test_texts_and_whole_numbers(headers: dict[str, Any], properties: dict[str, Any]) -> None:
    header = _header(headers, properties)
    assert headers_of(header) == headers == _read_by_library(header)


@given(st.dictionaries(_NAMES, _OTHERS, max_size=6), _PROPERTIES)
def test_whatever_can_be_sent(headers: dict[str, Any], properties: dict[str, Any]) -> None:
    header = _header(headers, properties)
    assert headers_of(header) == _read_by_library(header)


@given(st.dictionaries(_NAMES, _USUAL, min_size=1, max_size=6), _PROPERTIES, st.data())
def test_what_was_damaged_is_read_as_the_library_reads_it_or_not_at_all(
    headers: dict[str, Any], properties: dict[str, Any], data: st.DataObject
) -> None:
    header = bytearray(_header(headers, properties))
    header[data.draw(st.integers(12, len(header) - 1), "place")] = data.draw(st.integers(0, 255), "octet")
    header = header[: data.draw(st.integers(12, len(header)), "length")]
    # Properties behind the headers may be what the library cannot read; then it reads no headers either.
    expected = _read_by_library(bytes(header))
    assert headers_of(bytes(header)) == expected or not properties_of(bytes(header))


def test_names_are_the_same_objects_in_all_messages() -> None:
    one, other = (headers_of(_header({"fleetlight-sequence": number}, {})) for number in (1, 2**40))
    assert next(iter(one)) is next(iter(other))
