"""The quotas that a microversion shows, and their names."""

from collections.abc import Mapping

from fleetlight.api.http.shapes import JsonType, Key, Shape
from fleetlight.cells.fleet.compute.quotas import UNLIMITED

_ALWAYS = ("instances", "cores", "ram", "metadata_items", "key_pairs", "server_groups", "server_group_members")
_FILES = ("injected_files", "injected_file_content_bytes", "injected_file_path_bytes")
# Quotas of the network service, which this API never limits.
NETWORK = ("floating_ips", "fixed_ips", "security_groups", "security_group_rules")
NETWORK_UNTIL = 35
IMAGE_METADATA_UNTIL = 38
FILES_UNTIL = 56
_CLASSES_CHANGED = 50
CLASS_NETWORK_UNTIL = _CLASSES_CHANGED - 1


def shape_of_limits(value: JsonType, *, classes: bool = False) -> Shape:
    """Make the shape of limits, each a `value`. classes: use the microversions at which quota classes changed."""
    keys: dict[str, JsonType | Key] = dict.fromkeys(_ALWAYS, value)
    if classes:
        keys |= dict.fromkeys(("server_groups", "server_group_members"), Key(value, since=_CLASSES_CHANGED))
    keys |= dict.fromkeys(_FILES, Key(value, until=FILES_UNTIL))
    return Shape(keys | dict.fromkeys(NETWORK, Key(value, until=CLASS_NETWORK_UNTIL if classes else NETWORK_UNTIL)))


def shown_limits(limits: Mapping[str, int]) -> dict[str, int]:
    """Return the limits of every resource that any microversion shows."""
    return {resource: limits[resource] for resource in (*_ALWAYS, *_FILES)} | dict.fromkeys(NETWORK, UNLIMITED)
