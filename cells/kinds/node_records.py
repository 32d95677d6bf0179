"""The record of a node of Nova, with Ganeti's fields (docs/reference/ganeti.md); pure."""

from collections.abc import Sequence

from fleetlight.cells.kinds.nova_capacity import NovaInventory
from fleetlight.resources.fields import Record
from fleetlight.resources.query_fields.definitions import ResultStatus
from fleetlight.resources.units import MIB_PER_GIB

_LIVE = ("ctotal", "mtotal", "mfree", "dtotal", "dfree")


def node_record(
    *,
    name: str,
    address: str | None,
    is_offline: bool,
    is_drained: bool,
    inventories: Sequence[NovaInventory],
    instances: Sequence[str],
    instance_count: int,
) -> Record:
    """The record of a node, read from Nova in any way; it lacks fields that such a cell cannot know.

    is_offline: its service is forced down. is_drained: its service is disabled. inventories: of processors, memory and
    disk. instances: names of the instances on it.
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
        **(dict.fromkeys(_LIVE, ResultStatus.OFFLINE) if is_offline else _live(*inventories)),
    }


def _live(vcpus: NovaInventory, memory: NovaInventory, disk: NovaInventory) -> Record:
    return {
        "ctotal": _known(vcpus.total),
        "mtotal": _known(memory.total),
        "mfree": _free(memory),
        "dtotal": _mib(_known(disk.total)),
        "dfree": _mib(_free(disk)),
    }


def _known(value: int | None) -> int | ResultStatus:
    return ResultStatus.NO_DATA if value is None else value


def _free(inventory: NovaInventory) -> int | ResultStatus:
    """The free amount, which is negative on an overcommitted node."""
    total, used = inventory.total, inventory.used
    return ResultStatus.NO_DATA if total is None or used is None else total - used


def _mib(gib: int | ResultStatus) -> int | ResultStatus:
    return gib if isinstance(gib, ResultStatus) else gib * MIB_PER_GIB
