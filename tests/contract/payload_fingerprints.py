"""Fingerprints of the payload classes: `python -m tests.contract.payload_fingerprints` adds those of new versions.

A fingerprint covers the fields, their types and which are required; not the texts. One that is committed is never
changed: fields that change need a new version, since messages of the old one are out there.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

from fleetlight.notifications.registry import REGISTRY
from fleetlight.notifications.versioned import DATA_KEY, VersionedPayload

PATH = Path(__file__).with_suffix(".json")


def fingerprint(payload: type[VersionedPayload]) -> str:
    schema = payload.model_json_schema(by_alias=True)
    data = schema["properties"][DATA_KEY]
    described = {"properties": _without_texts(data.get("properties", {})), "required": sorted(data["required"])}
    return hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()[:16]


def _without_texts(schema: Any) -> Any:
    match schema:
        case dict():
            return {
                key: _without_texts(value)
                for key, value in schema.items()
                if not (key in ("title", "description") and isinstance(value, str))
            }
        case list():
            return [_without_texts(item) for item in schema]
        case _:
            return schema


def current() -> dict[str, str]:
    """`namespace name version` -> fingerprint, of every payload as it is now."""
    return {
        f"{payload.NAMESPACE} {payload.NAME} {payload.VERSION}": fingerprint(payload) for payload in REGISTRY.newest()
    }


def committed() -> dict[str, str]:
    known: dict[str, str] = json.loads(PATH.read_text(encoding="utf-8")) if PATH.exists() else {}
    return known


if __name__ == "__main__":
    PATH.write_text(json.dumps(current() | committed(), indent=2, sort_keys=True) + "\n", encoding="utf-8")
