"""The stored part of a node, which needs no query to its host: in the row of its cell, in notifications and the index.

A stored node is a record with the fields NODE_FIELDS. This module converts it to the fields of queries, so that cells
and the index give the same answer.
"""

from fleetlight.resources.fields import Record
from fleetlight.resources.query_fields.definitions import ResultStatus
from fleetlight.resources.query_fields.node import NODE
from fleetlight.resources.query_fields.parameters import node_parameter_values
from fleetlight.resources.units import MIB_PER_GIB

AGENT_ADDRESS = "agent_address"
"""A field of records that queries do not have: the address of the node's agent, if it has one."""

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
"""Times are microseconds. ndparams: with defaults of group and cell filled in. status: `up`, `down` or `offline`, by
the last query to the node; status_since: since when, null while it is `up`."""

NOT_STORED = frozenset({"mfree", "dfree", "pinst_cnt", "pinst_list", "sinst_cnt", "sinst_list"})
"""Fields that depend on the instances of a node; each change of an instance would change the node as well."""

STORED_NODE_FIELDS = frozenset(NODE) - NOT_STORED
"""Fields for which a stored node has everything that its cell knows."""


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
        # A native cell has its database instead of a master node.
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
    """Whether the row has numbers for the resources of the node; False if it is damaged."""
    return all(type(stored[name]) is int for name in ("vcpus", "memory_mib", "disk_gib"))


def _sizes(stored: Record) -> Record:
    """The resources of a simulated node; a node with an agent reports them itself.

    A simulated host is one machine with one processor package, and uses no processors or memory itself.
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
