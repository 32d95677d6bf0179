"""Reading the JSON body of a request into a model (contracts/nova-rest, section 0).

A model is closed: an unknown key gets 400 with Nova's message. A model is strict: it takes no text for a number, except
in fields of type `BodyBool` or `BodyInteger`, where the contract says so. Fields are marked with their microversions
(fleetlight.api.bodies.versioned_models). Most bodies are one object under one key:

    class _Keypair(RequestModel):
        name: Annotated[str, Field(min_length=1, max_length=255)]
        type: Annotated[Literal["ssh", "x509"], Since(2)] = "ssh"

    KEYPAIR = Body(_Keypair, "keypair")

    async def handler(request: ApiRequest) -> Response:
        keypair = await KEYPAIR.read(request)
"""

from collections.abc import Sequence
from typing import Annotated, Any, Generic, Protocol, Self, TypeVar, cast, overload

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    RootModel,
    ValidationError,
    WithJsonSchema,
    create_model,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError, core_schema
from starlette.requests import ClientDisconnect, Request

from fleetlight.api.bodies.versioned_models import model_at
from fleetlight.api.http.errors import BadRequestError, BodyFieldError, BodyTooLargeError
from fleetlight.api.limits.large_bodies import MAX_PARTS_OF_CHANGE, CountedParts, decoded, made_aside
from fleetlight.resources.malformed_json import MALFORMED_JSON
from fleetlight.resources.secret_names import HIDDEN, is_secret_name

MAX_BODY_BYTES = 114_688
_MAX_DEPTH = 100
MAX_INTEGER = 2**31 - 1
_TRUE_TEXTS = ("true", "True", "TRUE", "on", "On", "ON", "yes", "Yes", "YES", "1")
_FALSE_TEXTS = ("false", "False", "FALSE", "off", "Off", "OFF", "no", "No", "NO", "0")
BOOLEANS: dict[Any, bool] = dict.fromkeys(_TRUE_TEXTS, True) | dict.fromkeys(_FALSE_TEXTS, False)
_BOOL_SCHEMA = {"enum": [True, False, *_TRUE_TEXTS, *_FALSE_TEXTS]}
_INTEGER_SCHEMA = {"anyOf": [{"type": "integer"}, {"type": "string", "pattern": "^-?[0-9]+$"}]}
# int() reads at most about so many digits, by Python's limit.
_MAX_DIGITS = 4_000


class RequestModel(BaseModel):
    """A JSON object of a request: closed, strict, never changed."""

    # Deferred: most processes and commands use few of them (docs/decisions/0027).
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, hide_input_in_errors=True, defer_build=True)


class ActionModel(RequestModel):
    """An object with exactly one of its keys, the name of an action."""

    model_config = ConfigDict(json_schema_extra={"minProperties": 1, "maxProperties": 1})

    @model_validator(mode="after")
    def _has_one_key(self) -> Self:
        if len(self.model_fields_set) != 1:
            names = ", ".join(type(self).model_fields)
            raise PydanticCustomError("not_one_action", "Exactly one of {names} must be given", {"names": names})
        return self


RootT = TypeVar("RootT")


class RootRequestModel(RootModel[RootT]):
    """A JSON object of a request whose keys are data, such as `{key: value}`."""

    model_config = ConfigDict(strict=True, frozen=True, hide_input_in_errors=True, defer_build=True)


def _to_bool(value: object) -> object:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value in BOOLEANS:
        return BOOLEANS[value]
    raise PydanticCustomError("not_a_boolean", "is not a boolean")


def _to_integer(value: object) -> object:
    if isinstance(value, str):
        digits = value.removeprefix("-")
        if not (digits.isascii() and digits.isdigit() and len(digits) <= _MAX_DIGITS):
            raise PydanticCustomError("not_an_integer", "is not an integer")
        return int(value)
    # JSON has one kind of number, so 1.0 is an integer.
    return int(value) if isinstance(value, float) and value.is_integer() else value


BodyBool = Annotated[bool, BeforeValidator(_to_bool), WithJsonSchema(_BOOL_SCHEMA)]
"""True or false, or one of the words that Nova accepts for them."""

BodyInteger = Annotated[int, BeforeValidator(_to_integer), WithJsonSchema(_INTEGER_SCHEMA)]
"""A number or its digits; bounds come from a `Field` around it."""


class _NoNull:
    """Refuses null, also in the document of the API."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_before_validator_function(_refuse_null, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        made = handler(schema)
        kinds = [kind for kind in made["anyOf"] if kind != {"type": "null"}]
        return kinds[0] if len(kinds) == 1 else {**made, "anyOf": kinds}


def _refuse_null(value: object) -> object:
    if value is None:
        raise PydanticCustomError("null", "must not be null")
    return value


T = TypeVar("T")
IfGiven = Annotated[T | None, _NoNull()]
"""A field that a body may leave out, and is None then; null in the body is refused."""


class _Asked(Protocol):
    """The part of a fleetlight.api.shared.endpoint.ApiRequest that reading a body needs."""

    @property
    def minor(self) -> int: ...
    @property
    def is_relaxed(self) -> bool: ...
    @property
    def http(self) -> Request: ...


class _Envelope(RequestModel):
    """A body with one key; `content` is its value."""

    content: Any


class Body(Generic[T]):
    """The form of a request's body.

    kind: the model of the body, or of the value under `key`, its only key. is_secret: error messages repeat no value of
    the body. max_parts: largest number of parts (fleetlight.api.limits.large_bodies).
    """

    @overload
    def __init__(
        self,
        kind: type[T],
        key: str | None = None,
        *,
        is_secret: bool = False,
        max_parts: int = MAX_PARTS_OF_CHANGE,
    ) -> None: ...

    @overload
    def __init__(
        self, kind: Any, key: str | None = None, *, is_secret: bool = False, max_parts: int = MAX_PARTS_OF_CHANGE
    ) -> None: ...

    def __init__(
        self, kind: Any, key: str | None = None, *, is_secret: bool = False, max_parts: int = MAX_PARTS_OF_CHANGE
    ) -> None:
        self._key = key
        self._is_secret = is_secret
        self._max_parts = max_parts
        model: Any = kind
        if key is not None:
            content: Any = (kind, Field(alias=key))
            name = f"{kind.__name__}Body" if isinstance(kind, type) else key
            model = create_model(name, __base__=_Envelope, content=content)
        self._model: type[BaseModel] = model

    def model(self, minor: int) -> type[BaseModel]:
        """Return the model of microversion 2.`minor`."""
        return model_at(self._model, minor)

    async def read(self, request: _Asked) -> T:
        """Read the body of `request`. Raises BodyTooLargeError, BadRequestError, BodyFieldError, TooManyListsError."""
        document, parts = await _read(request.http, self._max_parts)
        return await made_aside(parts, lambda: self.check(document, request.minor, is_relaxed=request.is_relaxed))

    def check(self, document: object, minor: int = 1, *, is_relaxed: bool = False) -> T:
        """Check `document` by the model of microversion 2.`minor`. is_relaxed: ignore unknown keys (`/v2`).

        Raises BadRequestError for a malformed document, and BodyFieldError for a wrong field.
        """
        if not isinstance(document, dict):
            raise BadRequestError(f"{HIDDEN if self._is_secret else _shown(document)} is not of type 'object'")
        try:
            read: Any = self.model(minor).model_validate(document, extra="ignore" if is_relaxed else None)
        except ValidationError as error:
            raise _refusal(error, document, is_secret=self._is_secret) from None
        return cast(T, read if self._key is None else read.content)


async def read_json(http: Request) -> object:
    """Read the JSON value of a request's body.

    Raises BodyTooLargeError, TooManyListsError, and BadRequestError for a body that is no JSON, has too many parts, or
    holds a NUL character, which cannot be stored.
    """
    document, _ = await _read(http, MAX_PARTS_OF_CHANGE)
    return document


async def _read(http: Request, max_parts: int) -> tuple[object, int]:
    """Return the JSON value of a body, and the number of its parts."""
    raw = await read_bytes(http)
    counted = CountedParts(max_parts)
    counted.add(raw)
    try:
        document = await decoded(raw, counted.count)
    except MALFORMED_JSON:
        raise BadRequestError("Malformed request body") from None
    await made_aside(counted.count, lambda: _check_texts(document, 0))
    return document, counted.count


async def read_bytes(http: Request) -> bytes:
    """Read the bytes of a body. Raises BodyTooLargeError, and BadRequestError when the caller has disconnected."""
    chunks: list[bytes] = []
    size = 0
    try:
        async for chunk in http.stream():
            size += len(chunk)
            if size > MAX_BODY_BYTES:
                raise BodyTooLargeError(MAX_BODY_BYTES)
            chunks.append(chunk)
    except ClientDisconnect:
        raise BadRequestError("The body ended before all of it had come.") from None
    return b"".join(chunks)


def _check_texts(value: object, depth: int) -> None:
    """Raise BadRequestError for a NUL character, and for a value that is nested too deep."""
    if depth > _MAX_DEPTH:
        raise BadRequestError(f"Malformed request body: it is nested deeper than {_MAX_DEPTH} levels")
    match value:
        case str():
            if "\0" in value:
                raise BadRequestError("Malformed request body: it must not contain NUL characters")
        case dict():
            for name, item in value.items():
                _check_texts(name, depth)
                _check_texts(item, depth + 1)
        case list():
            for item in value:
                _check_texts(item, depth + 1)


def _refusal(error: ValidationError, document: object, *, is_secret: bool) -> BadRequestError:
    """Make the error of the first fault, with Nova's message: without a place if a whole key is missing or unknown."""
    details = error.errors(include_url=False)[0]
    *parents, name = details["loc"] or ("",)
    if details["type"] == "extra_forbidden":
        complaint = f"Additional properties are not allowed ({name!r} was unexpected)"
    elif details["type"] == "missing":
        complaint = f"{name!r} is a required property"
    else:
        place, _ = _place_in(document, details["loc"])
        if not place:
            return BadRequestError(details["msg"])
        is_secret = is_secret or any(is_secret_name(str(step)) for step in details["loc"])
        return BodyFieldError(place, HIDDEN if is_secret else _shown(details["input"]), details["msg"])
    place, value = _place_in(document, parents)
    if not place:
        return BadRequestError(complaint)
    return BodyFieldError(place, HIDDEN if is_secret else _shown(value), complaint)


def _shown(value: object) -> str:
    """Format `value` for an error message, without secrets: clients and proxies log error messages."""

    def public(value: object) -> object:
        match value:
            case dict():
                return {name: HIDDEN if is_secret_name(str(name)) else public(item) for name, item in value.items()}
            case list():
                return [public(item) for item in value]
            case _:
                return value

    return repr(public(value))


def _place_in(document: object, steps: Sequence[int | str]) -> tuple[str, object]:
    """Follow `steps` into a document; returns the place and its value. Ignores the steps that a union type adds."""
    taken: list[str] = []
    for step in steps:
        match document:
            case dict() if step in document:
                document = document[step]
            case list() if isinstance(step, int) and step < len(document):
                document = document[step]
            case _:
                continue
        taken.append(str(step))
    return ".".join(taken), document
