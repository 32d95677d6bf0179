"""Versioned objects: pydantic models that know the `nova_object.*` wrapping of oslo.versionedobjects.

A payload class is the one place that lists its fields. The docstring is its version history, and is read: the lines
`1.8  + locked_reason` say which fields a sender of an older version does not have yet. So the history cannot be wrong.

Reading is one pass of pydantic over the wrapped structure: one Python call for each object, none for a field. What an
object was sent with stays with it: its version, unknown fields, which fields were absent and which null. Writing it
again gives an equal message (contract, section 4).
"""

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, ClassVar, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    GetJsonSchemaHandler,
    ModelWrapValidatorHandler,
    SerializerFunctionWrapHandler,
    ValidationError,
    model_serializer,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, ErrorDetails, InitErrorDetails, PydanticCustomError

from fleetlight.notifications.errors import PayloadError, Problem, UnsupportedVersionError

NAME_KEY = "nova_object.name"
NAMESPACE_KEY = "nova_object.namespace"
VERSION_KEY = "nova_object.version"
DATA_KEY = "nova_object.data"
Wrapped = dict[str, Any]
Version = tuple[int, int]

_UNSUPPORTED = "unsupported_version"
_VERSION = re.compile(r"([0-9]{1,6})\.([0-9]{1,6})")
_HISTORY_LINE = re.compile(r"^ *([0-9]+\.[0-9]+)  (.+)$", re.MULTILINE)
_ADDED = re.compile(r"\+ ([a-z0-9_, ]+)")


def parse_version(text: str) -> Version:
    """Parse `"1.10"` to (1, 10), which is newer than 1.9. Raises ValueError for anything else."""
    match = _VERSION.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a version: MAJOR.MINOR is needed")
    return int(match[1]), int(match[2])


class VersionedPayload(BaseModel):
    """Base of everything that travels wrapped.

    NAMESPACE, NAME (the class name unless given), VERSION: what the wrapper says.
    OLDEST_MAJOR: the oldest major version that reads as this class; its own unless a major only removed fields.
    MAY_BE_ABSENT: fields that a sender of any version may leave out.

    Create one with every field that VERSION has, by Python names; nested objects as objects. Raises PayloadError.
    """

    # Deferred: most processes and commands use few of them (docs/decisions/0027).
    model_config = ConfigDict(
        strict=True, extra="allow", frozen=True, validate_by_name=True, validate_by_alias=True, defer_build=True
    )

    NAMESPACE: ClassVar[str] = "nova"
    NAME: ClassVar[str]
    VERSION: ClassVar[str]
    OLDEST_MAJOR: ClassVar[int]
    MAY_BE_ABSENT: ClassVar[frozenset[str]] = frozenset()
    ADDED_IN: ClassVar[Mapping[str, Version]]
    """Field -> version that brought it, from the history; the other fields are there since the first."""

    def __init__(self, **fields: Any) -> None:
        cls = type(self)
        unknown = sorted(fields.keys() - cls.model_fields.keys())
        if unknown:
            raise PayloadError(cls.NAME, [Problem(name, f"{cls.VERSION} has no such field") for name in unknown])
        wrapped = {NAME_KEY: cls.NAME, NAMESPACE_KEY: cls.NAMESPACE, VERSION_KEY: cls.VERSION, DATA_KEY: fields}
        try:
            cls.__pydantic_validator__.validate_python(wrapped, self_instance=self, by_alias=False, by_name=True)
        except ValidationError as error:
            raise _failure_of(cls, error) from error

    # As in pydantic's RootModel: without the mark every object that is read would go through __init__.
    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        cls.NAME = cls.__dict__.get("NAME", cls.__name__)
        cls.OLDEST_MAJOR = cls.__dict__.get("OLDEST_MAJOR", parse_version(cls.VERSION)[0])
        cls.ADDED_IN = _read_history(cls)

    @classmethod
    def unwrap(cls, wrapped: object) -> Self:
        """Read an object of this class from its wrapped form. Raises PayloadError, UnsupportedVersionError."""
        try:
            payload: Self = cls.__pydantic_validator__.validate_python(wrapped, by_alias=True, by_name=False)
        except ValidationError as error:
            raise _failure_of(cls, error) from error
        return payload

    def wrap(self) -> Wrapped:
        """The wrapped form, ready for JSON: equal to what this was read from."""
        return self.model_dump(mode="json", by_alias=True, exclude_unset=True)

    def at_version(self, version: str) -> Self:
        """This object as a sender of `version`, an older minor one, would have sent it: without what came later.

        Nested objects stay what they are: they have versions of their own. Raises UnsupportedVersionError, ValueError.
        """
        own, wanted = parse_version(self.VERSION), parse_version(version)
        if wanted[0] != own[0] or wanted > own:
            raise UnsupportedVersionError(self.NAMESPACE, self.NAME, version, self.VERSION)
        fields = {
            wire_name(type(self), name): getattr(self, name)
            for name in type(self).model_fields
            if name in self.model_fields_set and self.ADDED_IN.get(name, wanted) <= wanted
        }
        return self.unwrap({NAME_KEY: self.NAME, NAMESPACE_KEY: self.NAMESPACE, VERSION_KEY: version, DATA_KEY: fields})

    @property
    def sent_version(self) -> str:
        """The version that the sender put on the wrapper; VERSION for objects made here."""
        return str((self.__pydantic_extra__ or {}).get(VERSION_KEY, self.VERSION))

    @property
    def unknown_fields(self) -> dict[str, Any]:
        """What a newer minor version brought, as it came."""
        return {name: value for name, value in (self.__pydantic_extra__ or {}).items() if name != VERSION_KEY}

    @model_validator(mode="wrap")
    @classmethod
    def _unwrap(cls, value: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        if type(value) is not dict:
            if isinstance(value, cls):
                return value
            raise PydanticCustomError("wrapper", "an object wrapped as {name} is needed", {"name": cls.NAME})
        try:
            name, namespace, version = value[NAME_KEY], value[NAMESPACE_KEY], value[VERSION_KEY]
            data = value[DATA_KEY]
        except KeyError as missing:
            raise PydanticCustomError(
                "wrapper", "the wrapper of {name} lacks {key}", {"name": cls.NAME, "key": missing.args[0]}
            ) from None
        if name != cls.NAME or namespace != cls.NAMESPACE:
            raise PydanticCustomError(
                "wrapper",
                "{namespace} {name} is needed, not {other}",
                {"namespace": cls.NAMESPACE, "name": cls.NAME, "other": f"{namespace} {name}"},
            )
        if type(version) is not str:
            raise PydanticCustomError("wrapper", "{key} must be text, MAJOR.MINOR", {"key": VERSION_KEY})
        required = _required_fields(cls, version)
        payload = handler(data)
        if not required <= payload.__pydantic_fields_set__:
            raise _missing(cls, required - payload.__pydantic_fields_set__, data)
        if version != cls.VERSION and payload.__pydantic_extra__ is not None:
            # Beside the unknown fields, so that copies, comparison and pickles have it too.
            payload.__pydantic_extra__[VERSION_KEY] = version
        return payload

    @model_serializer(mode="wrap")
    def _wrap(self, handler: SerializerFunctionWrapHandler) -> Wrapped:
        data = handler(self)
        version = data.pop(VERSION_KEY, self.VERSION)
        return {NAME_KEY: self.NAME, NAMESPACE_KEY: self.NAMESPACE, VERSION_KEY: version, DATA_KEY: data}

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """The schema of the wrapped form, for messages of the current version."""
        reference = handler(schema)
        resolved = handler.resolve_ref_schema(reference)
        data = {**resolved}
        history = data.pop("description", "")
        required = required_fields(cls, cls.VERSION)
        data["required"] = [wire_name(cls, name) for name in cls.model_fields if name in required]
        resolved.clear()
        resolved.update(
            title=f"{cls.NAMESPACE} {cls.NAME}",
            description=history,
            type="object",
            properties={
                NAME_KEY: {"const": cls.NAME},
                NAMESPACE_KEY: {"const": cls.NAMESPACE},
                VERSION_KEY: {"type": "string", "pattern": rf"^{parse_version(cls.VERSION)[0]}\.[0-9]+$"},
                DATA_KEY: data,
            },
            required=[NAME_KEY, NAMESPACE_KEY, VERSION_KEY, DATA_KEY],
        )
        return reference


def wire_name(payload: type[VersionedPayload], field: str) -> str:
    """The name on the wire of the Python attribute `field`."""
    return payload.model_fields[field].alias or field


def required_fields(payload: type[VersionedPayload], version: str) -> frozenset[str]:
    """Attributes that a sender of `version` must have set. Raises UnsupportedVersionError, ValueError."""
    sent, own = parse_version(version), parse_version(payload.VERSION)
    if not payload.OLDEST_MAJOR <= sent[0] <= own[0]:
        raise UnsupportedVersionError(payload.NAMESPACE, payload.NAME, version, payload.VERSION)
    newer = {name for name, added in payload.ADDED_IN.items() if added > sent}
    return frozenset(payload.model_fields) - payload.MAY_BE_ABSENT - newer


@lru_cache(maxsize=1024)
def _required_fields(payload: type[VersionedPayload], version: str) -> frozenset[str]:
    try:
        return required_fields(payload, version)
    except ValueError as error:
        raise PydanticCustomError("wrapper", "{key} {reason}", {"key": VERSION_KEY, "reason": str(error)}) from None
    except UnsupportedVersionError as error:
        # Through pydantic, which knows where in the message this payload is.
        refused = {"name": error.name, "namespace": error.namespace, "sent": version, "supported": error.supported}
        raise PydanticCustomError(_UNSUPPORTED, "{name} {sent} is not supported", refused) from None


def _read_history(payload: type[VersionedPayload]) -> dict[str, Version]:
    """Read the docstring's history; raises ValueError when it does not fit the class."""
    lines = _HISTORY_LINE.findall(payload.__doc__ or "")
    if not lines or lines[-1][0] != payload.VERSION:
        raise ValueError(f"{payload.__name__}: the history in the docstring must end with {payload.VERSION}")
    attributes = {wire_name(payload, name): name for name in payload.model_fields}
    added: dict[str, Version] = {}
    for version, change in lines:
        for names in _ADDED.findall(change):
            for name in names.split(","):
                if name.strip() not in attributes:
                    raise ValueError(f"{payload.__name__}: its history adds {name.strip()!r}, which is no field")
                added[attributes[name.strip()]] = parse_version(version)
    return added


def _missing(payload: type[VersionedPayload], fields: frozenset[str], data: Any) -> ValidationError:
    details = [InitErrorDetails(type="missing", loc=(wire_name(payload, name),), input=data) for name in sorted(fields)]
    return ValidationError.from_exception_data(payload.NAME, details)


_EXPECTED = {
    "missing": "is missing, and this version requires it",
    "string_type": "must be text",
    "int_type": "must be a whole number",
    "greater_than_equal": "must be a number of 64 bits",
    "less_than": "must be a number of 64 bits",
    "float_type": "must be a number",
    "bool_type": "must be true or false",
    "list_type": "must be a list",
    "dict_type": "must be an object",
    "model_type": "must be an object",
    "string_pattern_mismatch": "must be a uuid such as 7a1d5a0a-90b1-4f36-8f6e-1e2d3c4b5a69",
    "wire_time": "must be a time with its zone such as 2026-11-21T10:00:00Z",
}


def _failure_of(payload: type[VersionedPayload], error: ValidationError) -> PayloadError | UnsupportedVersionError:
    """What pydantic found, in our words. A version that is not read says more than what else does not fit."""
    for details in error.errors(include_url=False):
        if details["type"] == _UNSUPPORTED:
            refused, where = details["ctx"], _path((*details["loc"], VERSION_KEY))
            return UnsupportedVersionError(
                refused["namespace"], refused["name"], refused["sent"], refused["supported"], where=where
            )
    return PayloadError(payload.NAME, _problems_of(error))


def _problems_of(error: ValidationError) -> Sequence[Problem]:
    """What pydantic found, in the names of the wire."""
    return [Problem(_path(details["loc"]), _explain(details)) for details in error.errors(include_url=False)]


def _path(location: Sequence[str | int]) -> str:
    path = ""
    for step in location:
        path += f"[{step}]" if isinstance(step, int) else f".{step}" if path else step
    return path or "nova_object"


def _explain(details: ErrorDetails) -> str:
    expected = _EXPECTED.get(details["type"])
    if details["type"] == "missing" and expected:
        return expected
    if details["type"] == "wrapper":
        return details["msg"]  # the whole object, which is what was found, would say nothing
    if details["type"] == "literal_error":
        expected = f"must be one of {details['ctx']['expected']}"
    shown = repr(details["input"])
    return f"{expected or details['msg']}, not {shown if len(shown) <= 80 else shown[:77] + '...'}"
