"""The record of a node of Nova, as Ganeti's words have it (docs/reference/ganeti.md); pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from fleetlight.resources.fields import Record
from fleetlight.resources.query_fields.definitions import CellStatus
from fleetlight.resources.units import MIB_PER_GIB

_LIVE = ("ctotal", "mtotal", "mfree", "dtotal", "dfree")


@dataclass(frozen=True, slots=True)
class NodeSize:
    """What a compute node has, and what is used of it, as it said last; None where that is not known."""

    vcpus: int | None
    memory_mib: int | None
    memory_used_mib: int | None
    disk_gib: int | None
    disk_used_gib: int | None


def node_record(
    *,
    name: str,
    address: str | None,
    is_offline: bool,
    is_drained: bool,
    size: NodeSize,
    instances: Sequence[str],
    instance_count: int,
) -> Record:
    """What is known of every node of Nova, however it is read; the record lacks what such a cell cannot know.

    is_offline: its service is forced down. is_drained: its service is disabled. instances: the names of those on it.
    """
    return {
        "name": name,
        "pip": address,
        "offline": is_offline,
        "drained": is_drained,
        "role": "D" if is_drained else "O" if is_offline else "R",
        "pinst_cnt": instance_count,
        "pinst_list": list(instances),
        # Nova has no secondary nodes.
        "sinst_cnt": 0,
        "sinst_list": [],
        **(dict.fromkeys(_LIVE, CellStatus.OFFLINE) if is_offline else _live(size)),
    }


def _live(size: NodeSize) -> Record:
    return {
        "ctotal": _known(size.vcpus),
        "mtotal": _known(size.memory_mib),
        "mfree": _free(size.memory_mib, size.memory_used_mib),
        "dtotal": _mib(_known(size.disk_gib)),
        "dfree": _mib(_free(size.disk_gib, size.disk_used_gib)),
    }


def _known(value: int | None) -> int | CellStatus:
    return CellStatus.NO_DATA if value is None else value


def _free(total: int | None, used: int | None) -> int | CellStatus:
    """More may be given away than there is."""
    return CellStatus.NO_DATA if total is None or used is None else total - used


def _mib(gib: int | CellStatus) -> int | CellStatus:
    return gib if isinstance(gib, CellStatus) else gib * MIB_PER_GIB
