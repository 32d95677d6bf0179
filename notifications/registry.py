"""Which payloads can be read, by namespace, name and major version.

The rule for readers: any minor version of a known major one is read, and what a newer one brought is kept; a newer
major version is refused by name. Schemas for programs in other languages are written from the same classes.
"""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from fleetlight.notifications.errors import (
    EnvelopeError,
    PayloadError,
    Problem,
    UnknownPayloadError,
    UnsupportedVersionError,
)
from fleetlight.notifications.payloads import fleetlight, instance, parts, request_spec, resources, selection
from fleetlight.notifications.versioned import NAME_KEY, NAMESPACE_KEY, VERSION_KEY, VersionedPayload, parse_version


class Registry:
    """Payload classes by (namespace, name) and major version."""

    def __init__(self, payloads: Iterable[type[VersionedPayload]] = ()) -> None:
        self._payloads: dict[tuple[str, str], dict[int, type[VersionedPayload]]] = {}
        for payload in payloads:
            self.register(payload)

    def register(self, payload: type[VersionedPayload]) -> None:
        """Read `payload` from now on, in all its major versions. Raises ValueError if one of them is taken."""
        majors = self._payloads.setdefault((payload.NAMESPACE, payload.NAME), {})
        for major in range(payload.OLDEST_MAJOR, parse_version(payload.VERSION)[0] + 1):
            if major in majors:
                raise ValueError(f"{payload.NAMESPACE} {payload.NAME} {major}.x is registered already")
            majors[major] = payload

    def find(self, namespace: str, name: str, version: str) -> type[VersionedPayload]:
        """The class that reads `version`. Raises UnknownPayloadError, UnsupportedVersionError, PayloadError."""
        majors = self._payloads.get((namespace, name))
        if majors is None:
            known = sorted(known for space, known in self._payloads if space == namespace)
            raise UnknownPayloadError(namespace, name, known)
        try:
            return majors[parse_version(version)[0]]
        except ValueError:
            raise PayloadError(name, [Problem(VERSION_KEY, f"must be MAJOR.MINOR, not {version!r}")]) from None
        except KeyError:
            newest = majors[max(majors)]
            raise UnsupportedVersionError(namespace, name, version, newest.VERSION) from None

    def parse(self, wrapped: Mapping[str, Any]) -> VersionedPayload:
        """Read the wrapped form of any registered payload.

        Raises EnvelopeError when it is not wrapped at all; UnknownPayloadError, UnsupportedVersionError, PayloadError.
        """
        try:
            namespace, name, version = wrapped[NAMESPACE_KEY], wrapped[NAME_KEY], wrapped[VERSION_KEY]
        except KeyError as missing:
            raise EnvelopeError("payload", f"is not a versioned object: {missing.args[0]} is missing") from None
        if not (isinstance(namespace, str) and isinstance(name, str) and isinstance(version, str)):
            raise EnvelopeError("payload", "is not a versioned object: namespace, name and version must be text")
        return self.find(namespace, name, version).unwrap(wrapped)

    def newest(self) -> Iterable[type[VersionedPayload]]:
        """The newest class of each payload, by namespace and name."""
        return [majors[max(majors)] for _, majors in sorted(self._payloads.items())]


def _payloads_of(*modules: ModuleType) -> Iterable[type[VersionedPayload]]:
    for module in modules:
        for value in vars(module).values():
            if isinstance(value, type) and issubclass(value, VersionedPayload) and value.__module__ == module.__name__:
                yield value


REGISTRY = Registry(_payloads_of(parts, instance, resources, request_spec, selection, fleetlight))
"""Every payload that is read here."""

parse_payload = REGISTRY.parse


def json_schema(payload: type[VersionedPayload]) -> dict[str, Any]:
    """The JSON Schema (2020-12) of the wrapped form of `payload` at its VERSION."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **payload.model_json_schema(by_alias=True)}


def export_schemas(directory: Path) -> list[Path]:
    """Write one schema file per payload, `<namespace>/<name>-<version>.json`, and return their paths."""
    written = []
    for payload in REGISTRY.newest():
        path = directory / payload.NAMESPACE / f"{payload.NAME}-{payload.VERSION}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(json_schema(payload), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        written.append(path)
    return written
