"""The stored part of a node, for which no host has to be asked: in the row of its cell, in notifications, and in the
index.

A stored node is a record with the names of NODE_FIELDS. What of it a question sees is made here, so that the answer is
the same whether a cell or the index has it.
"""

from fleetlight.resources.fields import Record
from fleetlight.resources.query_fields.definitions import ResultStatus
from fleetlight.resources.query_fields.node import NODE
from fleetlight.resources.query_fields.parameters import node_parameter_values
from fleetlight.resources.units import MIB_PER_GIB

AGENT_ADDRESS = "agent_address"
"""What a record says beside the fields that can be asked for: where the agent of the node answers, if it has one."""

NODE_FIELDS = (
    "uuid",
    "hypervisor_hostname",
    "host",
    "host_ip",
    "secondary_ip",
    AGENT_ADDRESS,
    "group",
    "group_uuid",
    "offline",
    "drained",
    "master_candidate",
    "master_capable",
    "vm_capable",
    "ndparams",
    "custom_ndparams",
    "vcpus",
    "memory_mib",
    "disk_gib",
    "tags",
    "serial_no",
    "created_at",
    "updated_at",
    "status",
    "status_since",
)
"""Times are microseconds. ndparams: with what the group and the cell fill in. status: `up`, `down` or `offline`, as the
node was found when it was asked last, since `status_since`; null while it is `up`."""

NOT_STORED = frozenset({"mfree", "dfree", "pinst_cnt", "pinst_list", "sinst_cnt", "sinst_list"})
"""Fields that depend on the instances of a node, each of which would make a change of the node too."""

STORED_NODE_FIELDS = frozenset(NODE) - NOT_STORED
"""Fields of which a stored node says all that its cell knows."""


_SIZES = ("ctotal", "mtotal", "dtotal", "cnos", "mnode", "cnodes", "csockets")


def shown_node(stored: Record) -> Record:
    """The values of STORED_NODE_FIELDS that a cell knows, and AGENT_ADDRESS."""
    filled, is_offline = stored["ndparams"], stored["offline"]
    return {
        "name": stored["hypervisor_hostname"],
        "uuid": stored["uuid"],
        "serial_no": stored["serial_no"],
        "tags": stored["tags"],
        "ctime": stored["created_at"],
        "mtime": stored["updated_at"],
        "pip": stored["host_ip"],
        "sip": stored["secondary_ip"] or stored["host_ip"],
        AGENT_ADDRESS: stored[AGENT_ADDRESS],
        "offline": is_offline,
        "drained": stored["drained"],
        "master_candidate": stored["master_candidate"],
        "master_capable": stored["master_capable"],
        "vm_capable": stored["vm_capable"],
        # Its database leads a native cell, and none of its nodes.
        "master": False,
        "role": _role(stored["master_candidate"], is_drained=stored["drained"], is_offline=is_offline),
        "group": stored["group"],
        "group.uuid": stored["group_uuid"],
        "ndparams": filled,
        "custom_ndparams": stored["custom_ndparams"],
        **node_parameter_values(filled),
        **_sizes(stored),
    }


def has_size(stored: Record) -> bool:
    """Whether the row has numbers for what the node is made of, as it has unless it is damaged."""
    return all(type(stored[name]) is int for name in ("vcpus", "memory_mib", "disk_gib"))


def _sizes(stored: Record) -> Record:
    """What a node without an agent is made of; one with an agent says so itself.

    A simulated host is one machine with one processor package, and needs nothing of either for itself.
    """
    if stored["offline"]:
        return dict.fromkeys(_SIZES, ResultStatus.OFFLINE)
    if not has_size(stored):
        return dict.fromkeys(_SIZES, ResultStatus.NO_DATA)
    sizes = stored["vcpus"], stored["memory_mib"], stored["disk_gib"] * MIB_PER_GIB
    return dict(zip(_SIZES, (*sizes, 0, 0, 1, 1), strict=True))


def _role(is_candidate: bool, *, is_drained: bool, is_offline: bool) -> str:
    """The letter of the role (contracts/ganeti-rapi, 6)."""
    if is_candidate:
        return "C"
    if is_drained:
        return "D"
    return "O" if is_offline else "R"
