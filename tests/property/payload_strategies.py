"""Random payloads: whatever a sender of any version may send, made from the JSON Schemas of the payload classes."""

from collections.abc import Callable
from datetime import datetime
from functools import cache
from typing import Any

import hypothesis.strategies as st

from fleetlight.notifications.registry import REGISTRY
from fleetlight.notifications.versioned import (
    DATA_KEY,
    NAME_KEY,
    NAMESPACE_KEY,
    VERSION_KEY,
    VersionedPayload,
    parse_version,
    required_fields,
    wire_name,
)

PAYLOADS = {(payload.NAMESPACE, payload.NAME): payload for payload in REGISTRY.newest()}
_TEXT = st.text(st.characters(codec="utf-8"), max_size=8)
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | _TEXT,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(_TEXT, inner, max_size=2),
    max_leaves=4,
)


def _time_text(moment: datetime) -> str:
    return moment.isoformat(timespec="microseconds") + "Z"


# With a fraction, so that Nova's form of a time and ours are the same.
_TIME = st.datetimes(datetime(1970, 1, 2), datetime(2999, 1, 1)).map(  # noqa: DTZ001  # the zone is in the text
    lambda moment: _time_text(moment.replace(microsecond=moment.microsecond or 1))
)


def _values(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Values that a part of a JSON schema allows."""
    match schema:
        case {"const": value}:
            return st.just(value)
        case {"enum": values}:
            return st.sampled_from(values)
        case {"anyOf": options}:
            return st.one_of([_values(option) for option in options])
        case {"examples": examples}:
            return st.sampled_from(examples)
        case {"$ref": reference}:
            return wrapped_payloads(_referenced(reference))
        case {"format": "date-time"}:
            return _TIME
        case {"pattern": _}:
            return st.uuids().map(str)
        case {"type": "string"}:
            return _TEXT
        case {"type": "integer"}:
            return st.integers(-(2**63), 2**63 - 1)
        case {"type": "number"}:
            return st.floats(allow_nan=False, allow_infinity=False)
        case {"type": "boolean"}:
            return st.booleans()
        case {"type": "null"}:
            return st.none()
        case {"type": "array", "items": items}:
            return st.lists(_values(items), max_size=2)
        case {"type": "object", "additionalProperties": dict() as values}:
            return st.dictionaries(_TEXT, _values(values), max_size=2)
        case _:
            return JSON_VALUES if schema.get("type") != "object" else st.dictionaries(_TEXT, JSON_VALUES, max_size=2)


def _referenced(reference: str) -> type[VersionedPayload]:
    name = reference.rpartition("/")[2]
    (payload,) = [payload for (_, other), payload in PAYLOADS.items() if other == name]
    return payload


@cache
def _properties(payload: type[VersionedPayload]) -> dict[str, Any]:
    properties: dict[str, Any] = payload.model_json_schema(by_alias=True)["properties"][DATA_KEY].get("properties", {})
    return properties


@st.composite
def wrapped_payloads(draw: Callable[[st.SearchStrategy[Any]], Any], payload: type[VersionedPayload]) -> dict[str, Any]:
    """A wrapped payload of some version of the current major: older ones lack fields, newer ones have more."""
    major, minor = parse_version(payload.VERSION)
    version = f"{major}.{draw(st.integers(0, minor + 2))}"
    properties = _properties(payload)
    required = {wire_name(payload, name) for name in required_fields(payload, version)}
    data = {
        name: draw(_values(schema)) for name, schema in properties.items() if name in required or draw(st.booleans())
    }
    if parse_version(version) > (major, minor):
        data |= draw(st.dictionaries(st.just("brought_by_a_newer_version"), JSON_VALUES))
    return {
        NAME_KEY: payload.NAME,
        NAMESPACE_KEY: payload.NAMESPACE,
        VERSION_KEY: version,
        DATA_KEY: data,
    }
