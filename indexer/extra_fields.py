"""Fields of a newer minor version of a payload, which this program does not know; pure but for the folder.

The document keeps them as they came. Those with a JSON Schema can be searched for by equality: each value becomes one
term, `name=value`, so that a new field needs no new mapping, and cannot contradict another field's mapping
(docs/decisions/0006). A value that contradicts its schema, or has none, is only kept.
"""

import math
from collections.abc import Collection, Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec

from fleetlight.notifications.versioned import DATA_KEY, VersionedPayload

SCHEMA_KEY = "nova_object.schema"
"""A key beside `nova_object.data`, with JSON Schemas of fields by name, for receivers that do not know them."""
NO_KIND = "-"
"""Stands in `Extra.fields` for the kind of a field that has no schema, or one that cannot be searched by."""
SCHEMA_VIOLATION = "!"
"""Precedes the kind in `Extra.fields` if the field's value contradicts it, and so is only kept."""

# Lucene's limit for a term is 32,766 bytes.
_MAX_TERM_LENGTH = 8000
# The limit of whole numbers in stores, and in other programs' JSON.
_TOO_LARGE = 2**63
_KINDS = {"string": "text", "integer": "integer", "number": "number", "boolean": "boolean"}
_LIST = "list"


class Extra(msgspec.Struct, frozen=True):
    """The unknown fields of a document.

    payload: namespace, name and version of the payload that last brought some; may be empty. kinds: of the fields with
    a schema, by name; other fields cannot be searched for.
    """

    payload: str
    values: dict[str, Any]
    kinds: dict[str, str]

    @property
    def terms(self) -> list[str]:
        """The terms by which searches find the document."""
        return [f"{name}={text}" for name, kind in self.kinds.items() for text in _texts(kind, self.values[name]) or ()]

    @property
    def fields(self) -> list[str]:
        """Name and kind of every field."""
        schema_violations = self.schema_violations
        return [
            f"{name}:{SCHEMA_VIOLATION if name in schema_violations else ''}{self.kinds.get(name, NO_KIND)}"
            for name in self.values
        ]

    @property
    def schema_violations(self) -> frozenset[str]:
        """Names of the fields whose values contradict their schemas."""
        return frozenset(name for name, kind in self.kinds.items() if _texts(kind, self.values[name]) is None)


def read_extra(payload: VersionedPayload, schemas: object) -> Extra | None:
    """The fields of `payload` that its class does not know; None if there are none.

    schemas: those in the message under SCHEMA_KEY.
    """
    values = payload.unknown_fields
    if not values:
        return None
    described = schemas if isinstance(schemas, Mapping) else {}
    name = f"{payload.NAMESPACE}/{payload.NAME}-{payload.sent_version}"
    return Extra(name, values, _kinds(values, described))


def merged(old: Extra | None, new: Extra | None) -> Extra | None:
    """Merge the known fields with those of a notification that has only some."""
    if old is None or new is None:
        return new or old
    kinds = {name: kind for name, kind in old.kinds.items() if name not in new.values}
    return Extra(new.payload or old.payload, old.values | new.values, kinds | new.kinds)


def described(extra: Extra, folder: Path) -> Extra:
    """Add kinds from the payload's schema in `folder` for fields that came without one."""
    properties = _properties(folder / f"{extra.payload}.json")
    unknown = {name: value for name, value in extra.values.items() if name not in extra.kinds}
    return Extra(extra.payload, extra.values, extra.kinds | _kinds(unknown, properties)) if properties else extra


def search_terms(name: str, value: str) -> list[str]:
    """The terms for a value of the field `name`, one for each kind that the field may have."""
    texts = {value}
    with suppress(ValueError, OverflowError):
        texts.add(_number(float(value)))
    return sorted(f"{name}={text}" for text in texts)


def _kinds(names: Collection[str], schemas: Mapping[str, Any]) -> dict[str, str]:
    return {name: kind for name in names if (kind := _kind(schemas.get(name))) is not None}


def _kind(schema: object) -> str | None:
    """The kind of a field, which may also be null; None if it cannot be searched for by equality."""
    if not isinstance(schema, Mapping):
        return None
    choices = schema.get("anyOf") or schema.get("oneOf")
    if isinstance(choices, list):
        kinds = {_kind(choice) for choice in choices if choice != {"type": "null"}}
        return kinds.pop() if len(kinds) == 1 else None
    types = schema.get("type")
    if isinstance(types, list):
        types = next((each for each in types if each != "null"), None) if len(types) <= 2 else None
    if types == "array":
        return _LIST if _kind(schema.get("items")) == "text" else None
    return _KINDS.get(types) if isinstance(types, str) else None


def _texts(kind: str, value: Any) -> list[str] | None:
    """The texts of a value in terms; None if it contradicts its kind."""
    if value is None:
        return []
    texts: list[str] | None = None
    match kind, value:
        case "boolean", bool():
            texts = ["true" if value else "false"]
        case "integer" | "number", bool():
            return None
        case "integer" | "number", int() if abs(value) < _TOO_LARGE:
            texts = [str(value)]
        case "number", float():
            texts = [_number(value)]
        case "text", str():
            texts = [value]
        case "list", list() if all(isinstance(item, str) for item in value):
            texts = value
    if texts is None or any(len(text) > _MAX_TERM_LENGTH for text in texts):
        return None
    return texts


def _number(value: float) -> str:
    return str(int(value)) if math.isfinite(value) and value == int(value) else repr(value)


def _properties(path: Path) -> Mapping[str, Any]:
    """The fields of a schema in the form of `fleetlight notifications schemas`; empty without such a file."""
    try:
        return _read(path, path.stat().st_mtime_ns)
    except OSError:
        return {}


@lru_cache(maxsize=64)
def _read(path: Path, _changed_at: int) -> Mapping[str, Any]:
    try:
        properties = msgspec.json.decode(path.read_bytes())["properties"][DATA_KEY]["properties"]
    except (msgspec.MsgspecError, KeyError, TypeError):
        return {}
    return properties if isinstance(properties, Mapping) else {}
