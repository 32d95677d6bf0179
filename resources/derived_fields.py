"""Fields of an instance that are derived from its other fields, and stored so that every store can sort and filter.

No message carries them, so all code that creates or changes a record computes them here. Nova has columns for some of
them (fleetlight.cells.kinds.nova_db).
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from fleetlight.resources.fields import Record
from fleetlight.resources.query_fields.ganeti import DISK_LISTS, kept_cell, own_value
from fleetlight.resources.query_fields.instance import DRBD_METADATA_MIB
from fleetlight.resources.query_fields.parameters import IN_FLAVOR
from fleetlight.resources.units import MIB_PER_GIB

DERIVED_FROM = ("flavor", "image_ref", "block_devices", "ganeti")
# Disk templates that use no disk of a node.
_ELSEWHERE_ALONE = frozenset({"diskless", "blockdev"})
_TOO_LARGE = 2**63

Disk = Mapping[str, Any]


def derived_values(record: Record) -> dict[str, Any]:
    """The derived fields of a record that has at least DERIVED_FROM."""
    flavor = record["flavor"]
    return {
        "flavor_id": flavor.get("flavorid") if flavor else None,
        **{column: _known(partial(_parameter, record, name)) for name, column in IN_FLAVOR.items()},
        "disk_usage": _known(partial(_disk_usage, record)),
    }


def disks_of(record: Record) -> list[Disk]:
    """The disks in the order in which the guest sees them: its own by the flavor, then volumes.

    size: in MiB; None for a volume, which another service stores.
    """
    if (sizes := own_value(record, DISK_LISTS["size"])) is not None:
        return [{"size": size} for size in sizes]
    flavor = record["flavor"] or {}
    own = [] if not record["image_ref"] else [_size(flavor, "root_gb") * MIB_PER_GIB]
    own += [_size(flavor, "ephemeral_gb") * MIB_PER_GIB, _size(flavor, "swap")]
    volumes: Sequence[Mapping[str, Any]] = record["block_devices"] or ()
    return [
        *({"size": size, "uuid": None} for size in own if size),
        *({"size": None, "uuid": volume.get("volume_id")} for volume in volumes),
    ]


def _size(flavor: Mapping[str, Any], name: str) -> float:
    """A size in a flavor; 0 if a damaged flavor has another value, which must not make the instance unreadable."""
    size = flavor.get(name)
    return size if isinstance(size, int | float) else 0


def _parameter(record: Record, name: str) -> Any:
    """A backend parameter that flavors have: from its cluster, else from the flavor, else as set on the instance."""
    said, flavor = record["ganeti"], record["flavor"]
    reported = None if said is None else kept_cell(said, f"be/{name}")
    if reported is not None:
        return reported[1]
    return flavor.get(IN_FLAVOR[name]) if flavor else (own_value(record, "custom_beparams") or {}).get(name)


def _disk_usage(record: Record) -> Any:
    """The MiB that the disks use on each of their nodes; from its cluster, if that reports it."""
    said = record["ganeti"]
    reported = None if said is None else kept_cell(said, "disk_usage")
    if reported is not None:
        return reported[1]
    template = own_value(record, "disk_template")
    if template in _ELSEWHERE_ALONE:
        return 0
    metadata = DRBD_METADATA_MIB if template == "drbd" else 0
    return sum((disk["size"] or 0) + metadata for disk in disks_of(record))


def _known(value_of: Callable[[], Any]) -> int | None:
    """The value if it can be sorted, else None: rows and messages may contain any value, and still are instances."""
    try:
        value = value_of()
    except (LookupError, TypeError, ValueError, AttributeError):
        return None
    return value if type(value) is int and -_TOO_LARGE <= value < _TOO_LARGE else None
