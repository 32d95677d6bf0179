"""The fields of nodes, and of their groups."""

from collections.abc import Iterator

from fleetlight.resources.fields import Kind
from fleetlight.resources.query_fields.common import of_every_object
from fleetlight.resources.query_fields.definitions import FieldFlag, QueryField, QueryFields
from fleetlight.resources.query_fields.parameters import node_parameter_fields


def _flags() -> Iterator[QueryField]:
    for name, title, doc in (
        ("offline", "Offline", "Whether the node is marked offline"),
        ("drained", "Drained", "Whether nothing new is placed on the node"),
        ("master_candidate", "MasterC", "Whether the node is a master candidate"),
        ("master_capable", "MasterCapable", "Whether the node may become a master candidate"),
        ("vm_capable", "VMCapable", "Whether the node may run instances"),
        ("master", "IsMaster", "Whether the node is the master"),
        ("powered", "Powered", "Whether the node was last seen powered on"),
    ):
        yield QueryField(name, title, Kind.BOOL, doc)


def _live() -> Iterator[QueryField]:
    yield QueryField("bootid", "BootID", Kind.TEXT, "Identifier that each boot of the node renews")
    for name, title, kind, doc in (
        ("ctotal", "CTotal", Kind.NUMBER, "Logical processors"),
        ("cnos", "CNOs", Kind.NUMBER, "Logical processors that the system of the node uses"),
        ("cnodes", "CNodes", Kind.NUMBER, "NUMA domains"),
        ("csockets", "CSockets", Kind.NUMBER, "Processor sockets"),
        ("mtotal", "MTotal", Kind.UNIT, "Memory of the machine"),
        ("mnode", "MNode", Kind.UNIT, "Memory that the system of the node uses"),
        ("mfree", "MFree", Kind.UNIT, "Memory that is free for instances"),
        ("dtotal", "DTotal", Kind.UNIT, "Size of the storage for instances"),
        ("dfree", "DFree", Kind.UNIT, "Free space of the storage for instances"),
        ("sptotal", "SpTotal", Kind.NUMBER, "Spindles of the storage, where they are given out one by one"),
        ("spfree", "SpFree", Kind.NUMBER, "Spindles that are free, where they are given out one by one"),
    ):
        yield QueryField(name, title, kind, doc)


NODE = QueryFields(
    "node",
    (
        QueryField("name", "Node", Kind.TEXT, "Full name of the node", flags=FieldFlag.HOSTNAME),
        *of_every_object("node"),
        QueryField("pip", "PrimaryIP", Kind.TEXT, "Primary IP address", flags=FieldFlag.IP_ADDRESS),
        QueryField("sip", "SecondaryIP", Kind.TEXT, "Secondary IP address", flags=FieldFlag.IP_ADDRESS),
        *_flags(),
        QueryField(
            "role", "Role", Kind.TEXT, "Role in one letter: master, candidate, regular, drained or offline (MCRDO)"
        ),
        QueryField("group", "Group", Kind.TEXT, "Group of the node"),
        QueryField("group.uuid", "GroupUUID", Kind.TEXT, "Identifier of the group of the node"),
        QueryField("pinst_cnt", "Pinst", Kind.NUMBER, "Number of instances with this primary node"),
        QueryField("sinst_cnt", "Sinst", Kind.NUMBER, "Number of instances with this secondary node"),
        QueryField("pinst_list", "PriInstances", Kind.OTHER, "Names of the instances with this primary node"),
        QueryField("sinst_list", "SecInstances", Kind.OTHER, "Names of the instances with this secondary node"),
        QueryField("ndparams", "NodeParameters", Kind.OTHER, "Parameters of the node, defaults filled in"),
        QueryField("custom_ndparams", "CustomNodeParameters", Kind.OTHER, "Parameters that are set on the node"),
        *node_parameter_fields(),
        QueryField("hv_state", "HypervisorState", Kind.OTHER, "State of its hypervisors, as was declared"),
        QueryField("disk_state", "DiskState", Kind.OTHER, "State of its storage, as was declared"),
        *_live(),
        QueryField("cell", "Cell", Kind.TEXT, "Cell that the node is in"),
    ),
    {},
)

GROUP = QueryFields(
    "group",
    (
        QueryField("name", "Group", Kind.TEXT, "Name of the group"),
        *of_every_object("group"),
        QueryField(
            "alloc_policy",
            "AllocPolicy",
            Kind.TEXT,
            "Whether it is allocated from: preferred, last_resort, unallocable",
        ),
        QueryField("node_cnt", "Nodes", Kind.NUMBER, "Number of nodes"),
        QueryField("node_list", "NodeList", Kind.OTHER, "Names of the nodes"),
        QueryField("pinst_cnt", "Instances", Kind.NUMBER, "Number of instances with a primary node in the group"),
        QueryField("pinst_list", "InstanceList", Kind.OTHER, "Names of the instances with a primary node in the group"),
        QueryField("ipolicy", "InstancePolicy", Kind.OTHER, "Limits for instances, defaults filled in"),
        QueryField("custom_ipolicy", "CustomInstancePolicy", Kind.OTHER, "Limits for instances that are set on it"),
        QueryField("ndparams", "NDParams", Kind.OTHER, "Parameters of its nodes, defaults filled in"),
        QueryField("custom_ndparams", "CustomNDParams", Kind.OTHER, "Parameters of its nodes that are set on it"),
        QueryField("diskparams", "DiskParameters", Kind.OTHER, "Parameters of disks, defaults filled in"),
        QueryField("custom_diskparams", "CustomDiskParameters", Kind.OTHER, "Parameters of disks that are set on it"),
        *node_parameter_fields(),
        QueryField("cell", "Cell", Kind.TEXT, "Cell that the group is in"),
    ),
    {},
)
