"""Bodies of requests: what is accepted, and in which words it is refused."""

import asyncio
from typing import Annotated

import pytest
from pydantic import Field
from starlette.requests import Request

from fleetlight.api.bodies.request_body import MAX_BODY_BYTES, Body, BodyBool, BodyInteger, RequestModel, read_json
from fleetlight.api.bodies.versioned_models import Since
from fleetlight.api.http.errors import BadRequestError, BodyFieldError, BodyTooLargeError


class _Flavor(RequestModel):
    name: Annotated[str, Field(min_length=1)]
    ram: Annotated[BodyInteger, Field(ge=1)] = 1
    is_public: BodyBool = True
    description: Annotated[str | None, Since(55)] = None


FLAVOR = Body(_Flavor, "flavor")


def _read(raw: bytes, chunk_size: int = 1000) -> object:
    chunks = [raw[start : start + chunk_size] for start in range(0, len(raw), chunk_size)] or [b""]

    async def receive() -> dict[str, object]:
        return {"type": "http.request", "body": chunks.pop(0), "more_body": bool(chunks)}

    return asyncio.run(read_json(Request({"type": "http", "method": "POST", "headers": []}, receive)))


@pytest.mark.parametrize("word", [True, "true", "True", "TRUE", "on", "On", "ON", "yes", "Yes", "YES", "1"])
def test_words_for_true_are_booleans(word: object) -> None:
    assert FLAVOR.check({"flavor": {"name": "m1", "is_public": word}}, 1).is_public is True


@pytest.mark.parametrize("word", [False, "false", "False", "FALSE", "off", "Off", "OFF", "no", "No", "NO", "0"])
def test_words_for_false_are_booleans(word: object) -> None:
    assert FLAVOR.check({"flavor": {"name": "m1", "is_public": word}}, 1).is_public is False


@pytest.mark.parametrize(("number", "expected"), [(512, 512), ("512", 512), ("0512", 512)])
def test_digits_are_an_integer(number: object, expected: int) -> None:
    assert FLAVOR.check({"flavor": {"name": "m1", "ram": number}}, 1).ram == expected


class _Hints(RequestModel):
    group: Annotated[str, Field(pattern="^[0-9]+$")] | list[Annotated[str, Field(pattern="^[0-9]+$")]]


@pytest.mark.parametrize(("value", "place"), [("a", "group"), ([], None), (["1", "b"], "group"), (["c"], "group")])
def test_place_of_a_mistake_is_one_of_the_document(value: object, place: str | None) -> None:
    body = Body(_Hints)
    if place is None:
        assert body.check({"group": value}, 1).group == value
        return
    with pytest.raises(BodyFieldError, match=f"attribute {place}[.] "):
        body.check({"group": value}, 1)


def test_models_follow_the_microversion() -> None:
    document = {"flavor": {"name": "m1", "description": "small"}}
    assert FLAVOR.check(document, 55).description == "small"
    with pytest.raises(BadRequestError):
        FLAVOR.check(document, 54)


def test_relaxed_endpoint_ignores_unknown_keys() -> None:
    document = {"flavor": {"name": "m1", "color": "red"}, "more": 1}
    assert FLAVOR.check(document, 1, is_relaxed=True).name == "m1"


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"flavor": {"name": "m1"}, "more": 1}, "Additional properties are not allowed ('more' was unexpected)"),
        ({}, "'flavor' is a required property"),
        ([], "[] is not of type 'object'"),
    ],
)
def test_wrong_envelope_is_answered_with_the_complaint_alone(document: object, message: str) -> None:
    with pytest.raises(BadRequestError) as caught:
        FLAVOR.check(document, 1)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("flavor", "place", "value"),
    [
        ({"name": ""}, "flavor.name", "''"),
        ({"name": 7}, "flavor.name", "7"),
        ({"name": "m1", "ram": 0}, "flavor.ram", "0"),
        ({"name": "m1", "ram": "many"}, "flavor.ram", "'many'"),
        ({"name": "m1", "ram": "9" * 5000}, "flavor.ram", "'999"),
        ({"name": "m1", "ram": True}, "flavor.ram", "True"),
        ({"name": "m1", "is_public": "perhaps"}, "flavor.is_public", "'perhaps'"),
        ({"name": "m1", "is_public": 1}, "flavor.is_public", "1"),
        ({}, "flavor", "{}"),
        ({"name": "m1", "color": "red"}, "flavor", "{'name': 'm1', 'color': 'red'}"),
        ("m1", "flavor", "'m1'"),
    ],
)
def test_wrong_value_is_named_and_quoted(flavor: object, place: str, value: str) -> None:
    with pytest.raises(BodyFieldError) as caught:
        FLAVOR.check({"flavor": flavor}, 1)
    assert str(caught.value).startswith(f"Invalid input for field/attribute {place}. Value: {value}")


def test_largest_body_is_read_and_no_larger_one() -> None:
    assert _read(b'"' + b"x" * (MAX_BODY_BYTES - 2) + b'"') == "x" * (MAX_BODY_BYTES - 2)
    with pytest.raises(BodyTooLargeError):
        _read(b'"' + b"x" * (MAX_BODY_BYTES - 1) + b'"')


def test_body_whose_sender_goes_away_is_a_bad_request() -> None:
    messages: list[dict[str, object]] = [
        {"type": "http.request", "body": b"{", "more_body": True},
        {"type": "http.disconnect"},
    ]

    async def receive() -> dict[str, object]:
        return messages.pop(0)

    with pytest.raises(BadRequestError, match="ended"):
        asyncio.run(read_json(Request({"type": "http", "method": "POST", "headers": []}, receive)))


@pytest.mark.parametrize(
    "raw",
    [b"", b"{", b"{'a': 1}", b"\xff", b'"\xff"', b'"\\ud800"', b"NaN", b"1e999", b"[" * 100_000, b'{"a": ["\\u0000"]}'],
)
def test_what_is_no_storable_json_is_malformed(raw: bytes) -> None:
    with pytest.raises(BadRequestError, match="Malformed request body"):
        _read(raw)


@pytest.mark.parametrize(
    "document",
    [{"secret": 7}, {"other": {"hunter2": "hunter2"}}, {"secret": "hunter2", "hunter": "hunter2"}, "hunter2"],
)
def test_refusal_of_a_secret_body_repeats_no_value(document: object) -> None:
    class Secret(RequestModel):
        secret: Annotated[str, Field(max_length=3)]

    with pytest.raises(BadRequestError) as caught:
        Body(Secret, "login", is_secret=True).check({"login": document})
    assert "hunter2" not in str(caught.value)
    assert "7" not in str(caught.value)
