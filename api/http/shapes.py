"""Shapes of answers: their keys by microversion, and the type of each.

A shape is the only list of an object's keys. A handler gives values for all keys, and the shape keeps those of the
microversion; the OpenAPI document shows the same shape as JSON Schema. So the two cannot differ.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

JsonSchema = dict[str, Any]


class JsonType(Protocol):
    """The type of a value."""

    def schema(self, minor: int) -> JsonSchema:
        """Return its JSON Schema in microversion 2.`minor`."""
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
    """A type that changes. kinds: the types, by the microversion 2.N from which each applies."""

    kinds: Mapping[int, JsonType]

    def schema(self, minor: int) -> JsonSchema:
        return self.kinds[max(since for since in self.kinds if since <= minor)].schema(minor)


def or_null(kind: JsonType) -> JsonType:
    return OneOf((kind, NOTHING))


@dataclass(frozen=True, slots=True)
class Key:
    """A key that not every answer has. since, until: first and last microversion 2.N with it.

    is_optional: whether it can be absent in these, too.
    """

    kind: JsonType
    since: int = 1
    until: int | None = None
    is_optional: bool = False

    def is_in(self, minor: int) -> bool:
        return self.since <= minor and (self.until is None or minor <= self.until)


class Shape:
    """An object with exactly these keys. keys: by name; a bare type stands for a key that is always there."""

    def __init__(self, keys: Mapping[str, JsonType | Key]) -> None:
        self._keys = {name: key if isinstance(key, Key) else Key(key) for name, key in keys.items()}

    def with_keys(self, keys: Mapping[str, JsonType | Key]) -> "Shape":
        return Shape({**self._keys, **keys})

    def of(self, minor: int, values: Mapping[str, Any]) -> dict[str, Any]:
        """Keep the values that microversion 2.`minor` has. Raises KeyError for a key without a value."""
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
    """An object with further keys."""

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
    """Make the shape of a list. links: the key of the link to the next page, if such lists have one."""
    keys: dict[str, JsonType | Key] = {collection: ListOf(item)}
    return Shape(keys if links is None else {**keys, links: optional(LINKS)})
