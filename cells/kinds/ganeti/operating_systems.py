"""Operating systems, as a cluster lists them: their names, and in newer versions what is known of each; pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from fleetlight.cells.errors import UpstreamError
from fleetlight.cells.kinds.ganeti.values import stored
from fleetlight.resources.fields import Record
from fleetlight.resources.query_fields.configuration import OPERATING_SYSTEM

_BEFORE_VARIANT = "+"
_LISTED = frozenset({"name", "valid", "variants", "parameters", "api_versions", "blacklisted", "hidden", "trusted"})


def operating_systems_of(listed: Sequence[Any]) -> Sequence[Record]:
    """Records of the operating systems. Raises UpstreamError for what no cluster says."""
    if all(isinstance(each, str) for each in listed):
        return _named(listed)
    if not all(isinstance(each, Mapping) and isinstance(each.get("name"), str) for each in listed):
        raise UpstreamError("the cluster lists an operating system that has no name")
    return [
        {name: stored(OPERATING_SYSTEM[name], value) for name, value in each.items() if name in _LISTED}
        for each in listed
    ]


def _named(names: Sequence[str]) -> Sequence[Record]:
    """Only names are known, each with a variant where there are some; those that cannot be installed are left out."""
    variants: dict[str, list[str]] = {}
    for each in names:
        name, _, variant = each.partition(_BEFORE_VARIANT)
        variants.setdefault(name, []).extend([variant] if variant else [])
    return [{"name": name, "variants": found} for name, found in variants.items()]
