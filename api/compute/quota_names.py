"""Which quotas a microversion shows, and under which names."""

from collections.abc import Mapping

from cells.quotas import UNLIMITED

_ALWAYS = ("instances", "cores", "ram", "metadata_items", "key_pairs", "server_groups", "server_group_members")
_FILES = ("injected_files", "injected_file_content_bytes", "injected_file_path_bytes")
# Of the network service, which is not ours: never limited here.
NETWORK = ("floating_ips", "fixed_ips", "security_groups", "security_group_rules")
NETWORK_UNTIL = 35
IMAGE_METADATA_UNTIL = 38
FILES_UNTIL = 56


def stored_resources(minor: int) -> tuple[str, ...]:
    """The resources whose limits are kept."""
    return _ALWAYS + (_FILES if minor <= FILES_UNTIL else ())


def shown_limits(limits: Mapping[str, int], minor: int) -> dict[str, int]:
    shown = {resource: limits[resource] for resource in stored_resources(minor)}
    return shown | (dict.fromkeys(NETWORK, UNLIMITED) if minor <= NETWORK_UNTIL else {})
