"""The fields of instances: those of Ganeti's Query2, and all of our own (fleetlight.resources.instance)."""

from collections.abc import Iterator

from fleetlight.resources.fields import Kind
from fleetlight.resources.instance import INSTANCE_FIELDS
from fleetlight.resources.query_fields.common import of_every_object
from fleetlight.resources.query_fields.definitions import FieldFlag, QueryField, QueryFields
from fleetlight.resources.query_fields.parameters import backend_fields, hypervisor_fields

MAX_DISKS = 16
MAX_NICS = 8
DRBD_METADATA_MIB = 128
"""The space for metadata of a DRBD disk, beside its size."""

_TEENS = {11, 12, 13}
_ENDINGS = {1: "st", 2: "nd", 3: "rd"}


def _text(name: str, title: str, doc: str, flags: FieldFlag = FieldFlag.NONE) -> QueryField:
    return QueryField(name, title, Kind.TEXT, doc, flags=flags)


def _other(name: str, title: str, doc: str) -> QueryField:
    return QueryField(name, title, Kind.OTHER, doc)


def _bool(name: str, title: str, doc: str) -> QueryField:
    return QueryField(name, title, Kind.BOOL, doc)


_CONFIGURED = (
    _text("name", "Instance", "Full name of the instance", FieldFlag.HOSTNAME),
    *of_every_object("instance"),
    _text("os", "OS", "Operating system that was installed"),
    _text("hypervisor", "Hypervisor", "Type of the hypervisor"),
    _text("disk_template", "Disk_template", "Template of its disks, diskless without any and mixed with several"),
    _other("network_port", "Network_port", "Port of the console, where one is allocated"),
    _text("admin_state", "InstanceState", "State that is wanted, one of up, down and offline"),
    _text("admin_state_source", "InstanceStateSource", "Who wanted this state, admin or user"),
    _bool("admin_up", "Autostart", "Whether the instance is wanted to run"),
    _bool("disks_active", "DisksActive", "Whether its disks are wanted to be active"),
    _bool("forthcoming", "Forthcoming", "Whether it is a reservation that is not made real yet"),
)
_NODES = (
    _text("pnode", "Primary_node", "Primary node", FieldFlag.HOSTNAME),
    _text("pnode.group", "PrimaryNodeGroup", "Group of the primary node"),
    _text("pnode.group.uuid", "PrimaryNodeGroupUUID", "Identifier of the group of the primary node"),
    _other("snodes", "Secondary_Nodes", "Secondary nodes"),
    _other("snodes.group", "SecondaryNodesGroups", "Groups of the secondary nodes"),
    _other("snodes.group.uuid", "SecondaryNodesGroupsUUID", "Identifiers of the groups of the secondary nodes"),
)
_LIVE = (
    _other("console", "Console", "How to reach the console"),
    _bool("oper_state", "Running", "Whether a node says that it runs"),
    QueryField("oper_ram", "Memory", Kind.UNIT, "Memory in use, as its hypervisor says"),
    QueryField("oper_vcpus", "VCPUs", Kind.NUMBER, "Virtual processors in use, as its hypervisor says"),
    _text("status", "Status", "State in one word, of what is wanted and what its node says"),
)
_PARAMETERS = (
    _other("hvparams", "HypervisorParameters", "Hypervisor parameters, defaults filled in"),
    _other("beparams", "BackendParameters", "Backend parameters, defaults filled in"),
    _other("osparams", "OpSysParameters", "Parameters of the operating system, defaults filled in"),
    _other("custom_hvparams", "CustomHypervisorParameters", "Hypervisor parameters that are set on the instance"),
    _other("custom_beparams", "CustomBackendParameters", "Backend parameters that are set on the instance"),
    _other("custom_osparams", "CustomOpSysParameters", "Operating system parameters that are set on the instance"),
    _other("custom_nicparams", "CustomNicParameters", "Network parameters that are set on its interfaces"),
)


def ordinal(number: int) -> str:
    """`1st`, `2nd`, `3rd`, `4th` …"""
    ending = "th" if number % 100 in _TEENS else _ENDINGS.get(number % 10, "th")
    return f"{number}{ending}"


def _disk_fields() -> Iterator[QueryField]:
    yield QueryField("disk_usage", "DiskUsage", Kind.UNIT, "Space that its disks take on each of their nodes")
    yield QueryField("disk.count", "Disks", Kind.NUMBER, "Number of disks")
    for name, title, doc in (
        ("disk.sizes", "Disk_sizes", "Sizes of the disks in MiB"),
        ("disk.spindles", "Disk_spindles", "Spindles of the disks"),
        ("disk.names", "Disk_names", "Names of the disks"),
        ("disk.uuids", "Disk_UUIDs", "Identifiers of the disks"),
    ):
        yield _other(name, title, doc)
    for index in range(MAX_DISKS):
        disk = f"{ordinal(index + 1)} disk"
        yield QueryField(f"disk.size/{index}", f"Disk/{index}", Kind.UNIT, f"Size of the {disk}")
        yield QueryField(f"disk.spindles/{index}", f"DiskSpindles/{index}", Kind.NUMBER, f"Spindles of the {disk}")
        yield _text(f"disk.name/{index}", f"DiskName/{index}", f"Name of the {disk}")
        yield _text(f"disk.uuid/{index}", f"DiskUUID/{index}", f"Identifier of the {disk}")


# Of a network interface: name of one field, name of the list, and meaning.
NIC_FIELDS = (
    ("ip", "IP", "ips", "IPs", "IP address"),
    ("mac", "MAC", "macs", "MACs", "MAC address"),
    ("name", "Name", "names", "Names", "Name"),
    ("uuid", "UUID", "uuids", "UUIDs", "Identifier"),
    ("mode", "Mode", "modes", "modes", "Mode"),
    ("link", "Link", "links", "links", "Link"),
    ("bridge", "Bridge", "bridges", "bridges", "Bridge"),
    ("vlan", "VLAN", "vlans", "VLANs", "VLAN"),
    ("network", "Network", "networks", "networks", "Identifier of the network"),
    ("network.name", "NetworkName", "networks.names", "networks_names", "Name of the network"),
)
_WITH_FLAG = {"ip": FieldFlag.IP_ADDRESS}


def _nic_fields() -> Iterator[QueryField]:
    yield QueryField("nic.count", "NICs", Kind.NUMBER, "Number of network interfaces")
    for one, title, several, titles, doc in NIC_FIELDS:
        yield _other(f"nic.{several}", f"NIC_{titles}", f"{doc} of each network interface")
        for index in range(MAX_NICS):
            of_one = f"{doc} of the {ordinal(index + 1)} network interface"
            yield _text(f"nic.{one}/{index}", f"Nic{title}/{index}", of_one, _WITH_FLAG.get(one, FieldFlag.NONE))


def _aliases() -> dict[str, str]:
    aliases = {
        "vcpus": "be/vcpus",
        "be/memory": "be/maxmem",
        "memory_mb": "be/maxmem",
        "sda_size": "disk.size/0",
        "sdb_size": "disk.size/1",
        "project": "project_id",
        "user": "user_id",
        "image": "image_ref",
        "zone": "availability_zone",
    }
    for name in ("ip", "mac", "bridge"):
        aliases[name] = f"nic.{name}/0"
    for name in ("mode", "link", "network"):
        aliases[f"nic_{name}"] = f"nic.{name}/0"
    # The names in the source document of Query2.
    for index in range(MAX_DISKS):
        aliases |= {f"disk{index}.{name}": f"disk.{name}/{index}" for name in ("size", "spindles", "name", "uuid")}
    for index in range(MAX_NICS):
        aliases |= {f"nic{index}.{name}": f"nic.{name}/{index}" for name, *_ in NIC_FIELDS}
    return aliases


def _own_fields() -> Iterator[QueryField]:
    """Our own fields that Ganeti does not have."""
    yield _text("cell", "Cell", "Cell that the instance is in")
    # Ganeti has other names for these.
    taken = {"uuid", "tags", "forthcoming", "ganeti", "memory_mb", "vcpus", "disk_usage"}
    for field in INSTANCE_FIELDS.values():
        if field.name not in taken:
            yield QueryField(
                field.name, field.title, field.kind, field.doc, field.is_list, field.is_constant, field.is_derived
            )


INSTANCE = QueryFields(
    "instance",
    (
        *_CONFIGURED,
        *_NODES,
        *_LIVE,
        *_PARAMETERS,
        *backend_fields(),
        *hypervisor_fields(),
        *_disk_fields(),
        *_nic_fields(),
        *_own_fields(),
    ),
    _aliases(),
)
