"""From rows of a query to Prometheus targets: the address, and fields as labels; pure functions.

Source: https://prometheus.io/docs/prometheus/latest/http_sd/
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv6Address
from typing import Any

import msgspec

from fleetlight.api.http.errors import ParameterError
from fleetlight.api.http.query_string import QueryString

_PREFIX = "__meta_fleetlight_"
COMPLETE, AGE = f"{_PREFIX}complete", f"{_PREFIX}age_seconds"
_NO_LABEL = re.compile(r"[^A-Za-z0-9_]")
_TYPES, _VERSIONS, _LARGEST_PORT = ("fixed", "floating"), ("4", "6"), 65_535

TargetGroup = dict[str, Any]
"""One of the objects of an answer: `targets` and `labels`."""


@dataclass(frozen=True, slots=True)
class WantedAddress:
    """The scraped address of an instance: the first of this type, IP version and network, with this port.

    network: its label; None for any.
    """

    port: int
    type: str = "fixed"
    version: str = "4"
    network: str | None = None

    @classmethod
    def of(cls, query: QueryString) -> "WantedAddress":
        """Parse the parameters. Raises ParameterError for a malformed value."""
        port = query.last("port") or ""
        if not (port.isascii() and port.isdigit() and len(port) <= 5 and 1 <= int(port) <= _LARGEST_PORT):
            raise ParameterError("port", port, f"Must be the port to scrape, 1 to {_LARGEST_PORT}.")
        kind, version = _one_of(query, "address", _TYPES), _one_of(query, "version", _VERSIONS)
        return cls(int(port), kind, version, query.last("network"))

    def target_of(self, addresses: Sequence[Mapping[str, Any]]) -> str | None:
        """Return the target of an instance; None if it has no such address."""
        for address in addresses:
            if (
                (address.get("type") or "fixed") == self.type
                and str(address.get("version")) == self.version
                and self.network in {None, address.get("label")}
            ):
                return f"{_host(str(address['address']))}:{self.port}"
        return None


def group_of(target: str, values: Mapping[str, Any]) -> TargetGroup:
    """Make the target of an instance, with the values of its fields as labels."""
    return {"targets": [target], "labels": dict(_labels(values))}


def marked(groups: Sequence[TargetGroup], *, age_s: int | None) -> bytes:
    """Encode an answer. age_s: age of the last complete answer; None for one that is complete as of now."""
    said = {COMPLETE: "true"} if age_s is None else {COMPLETE: "false", AGE: str(age_s)}
    return msgspec.json.encode([{**each, "labels": {**each["labels"], **said}} for each in groups])


def _labels(values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, value in values.items():
        label = _PREFIX + _NO_LABEL.sub("_", name)
        if isinstance(value, dict):
            yield from ((f"{label}_{_NO_LABEL.sub('_', key)}", _text(each)) for key, each in value.items())
        elif value is not None:
            yield label, _text(value)


def _text(value: Any) -> str:
    """Format a label. A list has commas around each member, as in other discoveries, to match `.*,member,.*`."""
    if isinstance(value, list) and all(isinstance(each, str | int | float) for each in value):
        return f",{','.join(map(_text, value))},"
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _host(address: str) -> str:
    try:
        return f"[{IPv6Address(address)}]"
    except ValueError:
        return address


def _one_of(query: QueryString, name: str, known: Sequence[str]) -> str:
    value = query.last(name) or known[0]
    if value not in known:
        raise ParameterError(name, value, f"Must be one of {', '.join(known)}.")
    return value
