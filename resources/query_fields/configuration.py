"""Fields of a cluster's items other than instances, nodes and jobs: networks, operating systems, exports, filters."""

from fleetlight.resources.fields import Kind
from fleetlight.resources.query_fields.common import of_every_object
from fleetlight.resources.query_fields.definitions import FieldFlag, QueryField, QueryFields


def _text(name: str, title: str, doc: str) -> QueryField:
    return QueryField(name, title, Kind.TEXT, doc)


def _number(name: str, title: str, doc: str) -> QueryField:
    return QueryField(name, title, Kind.NUMBER, doc)


def _other(name: str, title: str, doc: str) -> QueryField:
    return QueryField(name, title, Kind.OTHER, doc)


NETWORK = QueryFields(
    "network",
    (
        _text("name", "Network", "Name of the network"),
        *of_every_object("network"),
        _text("network", "Subnet", "IPv4 subnet"),
        _other("gateway", "Gateway", "IPv4 gateway"),
        _other("network6", "IPv6Subnet", "IPv6 subnet"),
        _other("gateway6", "IPv6Gateway", "IPv6 gateway"),
        _other("mac_prefix", "MacPrefix", "What MAC addresses in the network begin with"),
        _number("free_count", "FreeCount", "Number of addresses that are free"),
        _number("reserved_count", "ReservedCount", "Number of addresses that are taken"),
        _text("map", "Map", "Addresses of the subnet in order, X for one that is taken"),
        _text("external_reservations", "ExternalReservations", "Addresses that are taken by others than instances"),
        _other("group_list", "GroupList", "Groups it is connected to, each with mode, link and VLAN"),
        _number("group_cnt", "NodeGroups", "Number of groups it is connected to"),
        _other("inst_list", "InstanceList", "Names of the instances in the network"),
        _number("inst_cnt", "Instances", "Number of instances in the network"),
        _text("cell", "Cell", "Cell that the network is in"),
    ),
    {},
)

OPERATING_SYSTEM = QueryFields(
    "os",
    (
        _text("name", "Name", "Name of the operating system"),
        QueryField("valid", "Valid", Kind.BOOL, "Whether it can be installed by every node that answers"),
        QueryField("hidden", "Hidden", Kind.BOOL, "Whether it is left out of lists"),
        QueryField("blacklisted", "Blacklisted", Kind.BOOL, "Whether it must not be installed"),
        QueryField("trusted", "Trusted", Kind.BOOL, "Whether its scripts are trusted"),
        _other("variants", "Variants", "Variants that every node has"),
        _other("api_versions", "ApiVersions", "Versions of the interface that every node has"),
        _other("parameters", "Parameters", "Parameters that it takes, each with its help"),
        _other("node_status", "NodeStatus", "What each node has of it"),
        _other("os_hvp", "OsHypervisorParams", "Hypervisor parameters for it, by name and variant"),
        _other("osparams", "OsParameters", "Parameters for it, by name and variant"),
        _text("cell", "Cell", "Cell that the operating system is in"),
    ),
    {},
    unique="name",
)

EXPORT = QueryFields(
    "export",
    (
        QueryField("node", "Node", Kind.TEXT, "Node that has the export", flags=FieldFlag.HOSTNAME),
        _text("export", "Export", "Name of the export"),
        _text("cell", "Cell", "Cell that the export is in"),
    ),
    {},
    unique="export",
    name_field="node",
)

JOB_FILTER = QueryFields(
    "filter",
    (
        _other("watermark", "Watermark", "Newest job when the filter was made"),
        _other("priority", "Priority", "Place among the filters, the lowest first"),
        _other("predicates", "Predicates", "What is true of the jobs that it is about"),
        _other("action", "Action", "What happens to these jobs"),
        _other("reason_trail", "ReasonTrail", "Why it was made, and by whom"),
        _other("uuid", "UUID", "Identifier of the filter"),
        _text("cell", "Cell", "Cell that the filter is in"),
    ),
    {},
    name_field="uuid",
)
