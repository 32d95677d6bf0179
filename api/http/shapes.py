"""What answers look like: which keys in which microversions, and of which type.

A shape is the one list of the keys of a thing. What builds an answer gives values for all of them, and the shape keeps
those of the microversion; the OpenAPI document says the same as JSON Schema. So the two cannot differ.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

JsonSchema = dict[str, Any]


class JsonType(Protocol):
    """The type of a value."""

    def schema(self, minor: int) -> JsonSchema:
        """Its JSON Schema in microversion 2.`minor`."""
        ...


@dataclass(frozen=True, slots=True)
class Type:
    """A type that is the same at every microversion."""

    name: str

    def schema(self, minor: int) -> JsonSchema:
        return {"type": self.name}


TEXT = Type("string")
INTEGER = Type("integer")
NUMBER = Type("number")
BOOL = Type("boolean")
OBJECT = Type("object")
NOTHING = Type("null")


class _Anything:
    """Any JSON."""

    def schema(self, minor: int) -> JsonSchema:
        return {}


ANYTHING = _Anything()


@dataclass(frozen=True, slots=True)
class OneOf:
    """Any of several types."""

    kinds: tuple[JsonType, ...]

    def schema(self, minor: int) -> JsonSchema:
        return {"anyOf": [kind.schema(minor) for kind in self.kinds]}


@dataclass(frozen=True, slots=True)
class ListOf:
    kind: JsonType

    def schema(self, minor: int) -> JsonSchema:
        return {"type": "array", "items": self.kind.schema(minor)}


@dataclass(frozen=True, slots=True)
class MapOf:
    """An object whose keys are data."""

    kind: JsonType

    def schema(self, minor: int) -> JsonSchema:
        return {"type": "object", "additionalProperties": self.kind.schema(minor)}


@dataclass(frozen=True, slots=True)
class TypeSince:
    """A type that another one replaces. kinds: by the microversion 2.N from which each of them counts."""

    kinds: Mapping[int, JsonType]

    def schema(self, minor: int) -> JsonSchema:
        return self.kinds[max(since for since in self.kinds if since <= minor)].schema(minor)


def or_null(kind: JsonType) -> JsonType:
    return OneOf((kind, NOTHING))


@dataclass(frozen=True, slots=True)
class Key:
    """A key that not every answer has. since, until: the microversions 2.N that have it.

    is_optional: whether it can be absent there too.
    """

    kind: JsonType
    since: int = 1
    until: int | None = None
    is_optional: bool = False

    def is_in(self, minor: int) -> bool:
        return self.since <= minor and (self.until is None or minor <= self.until)


class Shape:
    """An object with known keys and no others. keys: by name; a bare kind is a key that is always there."""

    def __init__(self, keys: Mapping[str, JsonType | Key]) -> None:
        self._keys = {name: key if isinstance(key, Key) else Key(key) for name, key in keys.items()}

    def with_keys(self, keys: Mapping[str, JsonType | Key]) -> "Shape":
        return Shape({**self._keys, **keys})

    def of(self, minor: int, values: Mapping[str, Any]) -> dict[str, Any]:
        """Those of `values` that microversion 2.`minor` has. Raises KeyError for a key without a value."""
        return {
            name: values[name]
            for name, key in self._keys.items()
            if key.is_in(minor) and (name in values or not key.is_optional)
        }

    def schema(self, minor: int) -> JsonSchema:
        present = {name: key for name, key in self._keys.items() if key.is_in(minor)}
        return {
            "type": "object",
            "properties": {name: key.kind.schema(minor) for name, key in present.items()},
            "required": [name for name, key in present.items() if not key.is_optional],
            "additionalProperties": False,
        }


@dataclass(frozen=True, slots=True)
class Extended:
    """Some object, and more keys beside its own."""

    kind: JsonType
    keys: Mapping[str, JsonType | Key]

    def schema(self, minor: int) -> JsonSchema:
        return _with_keys(self.kind.schema(minor), Shape(self.keys).schema(minor))


def _with_keys(schema: JsonSchema, more: JsonSchema) -> JsonSchema:
    if "anyOf" in schema:
        return {"anyOf": [_with_keys(each, more) for each in schema["anyOf"]]}
    return {
        **schema,
        "properties": {**schema["properties"], **more["properties"]},
        "required": [*schema["required"], *more["required"]],
    }


def optional(kind: JsonType) -> Key:
    return Key(kind, is_optional=True)


LINK = Shape({"rel": TEXT, "href": TEXT, "type": optional(TEXT)})
LINKS = ListOf(LINK)


def page(collection: str, item: JsonType, links: str | None = None) -> Shape:
    """The answer of a list. links: the key of the link to the next page, if lists of this kind have one."""
    keys: dict[str, JsonType | Key] = {collection: ListOf(item)}
    return Shape(keys if links is None else {**keys, links: optional(LINKS)})
