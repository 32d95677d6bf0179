"""What only the relay of a cell can make."""

from dataclasses import replace
from typing import Any

import pytest

from fleetlight.bus.bus import Message
from fleetlight.bus.signatures import SigningKey, is_signed, key_id_of, signed
from fleetlight.bus.topology import (
    CELL_HEADER,
    EPOCH_HEADER,
    RESOURCE_HEADER,
    REVISION_HEADER,
    SEQUENCE_HEADER,
    SIGNATURE_HEADER,
)

KEY = SigningKey("k1", b"s" * 32)
SAID: dict[str, int | str] = {
    CELL_HEADER: "cell",
    EPOCH_HEADER: "first",
    SEQUENCE_HEADER: 7,
    REVISION_HEADER: 3,
    RESOURCE_HEADER: "instance",
}


@pytest.fixture
def message() -> Message:
    return signed(Message(b"body", "versioned_notifications.info", SAID), KEY)


def test_message_is_as_its_signer_has_made_it(message: Message) -> None:
    assert key_id_of(message.headers) == "k1"
    assert is_signed(message.headers, message.body, KEY)
    assert is_signed({**message.headers, "traceparent": "00-1"}, message.body, KEY), "what says nothing of the cell"


@pytest.mark.parametrize("header", SAID)
@pytest.mark.parametrize("wrong", ["other", 8, "7", None])
def test_message_of_which_a_header_is_another_one_is_not_signed(message: Message, header: str, wrong: Any) -> None:
    assert not is_signed({**message.headers, header: wrong}, message.body, KEY)


@pytest.mark.parametrize("header", SAID)
def test_message_without_one_of_its_headers_is_not_signed(message: Message, header: str) -> None:
    headers = {name: value for name, value in message.headers.items() if name != header}
    assert not is_signed(headers, message.body, KEY)


def test_another_body_or_another_key_does_not_fit(message: Message) -> None:
    assert not is_signed(message.headers, b"Body", KEY)
    assert not is_signed(message.headers, message.body, replace(KEY, secret=b"t" * 32))
    assert not is_signed(message.headers, message.body, replace(KEY, id="k2"))


@pytest.mark.parametrize("signature", [None, 5, "", ":", "k1", "k1:", "k1:AAAA", "\u00e4:\ud800", b"k1:"])
def test_anything_else_in_the_place_of_a_signature_is_none(message: Message, signature: Any) -> None:
    headers = {**message.headers, SIGNATURE_HEADER: signature}
    assert not is_signed(headers, message.body, KEY)
    assert key_id_of(headers) in {None, "", "k1", "\u00e4"}


def test_secret_is_not_shown() -> None:
    assert repr(KEY) == "SigningKey(k1)"
