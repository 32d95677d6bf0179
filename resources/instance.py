"""The fields of an instance, for filters, orders and answers.

Names are those of Nova's `instances` table, since the sort keys and filters of the compute API are. A cell's columns,
the index's fields and a record's keys all use them; the payload on the wire uses Nova's payload names, as aliases
(fleetlight.notifications.payloads). Fields of kind `other` without `is_list` can only be read.
"""

from fleetlight.resources.fields import Field, ItemType, Kind, Member, Record

_FOR_ADMINS = "OS-EXT-SRV-ATTR:"

INSTANCE_FIELDS = ItemType(
    "instance",
    (
        Field("uuid", "UUID", Kind.TEXT, "Identifier, the same in every cell and for ever", is_constant=True),
        Field("project_id", "Project", Kind.TEXT, "Project that owns the instance", is_constant=True),
        Field("user_id", "User", Kind.TEXT, "User that created the instance", is_constant=True),
        Field("display_name", "Name", Kind.TEXT, "Name shown to people, not unique"),
        Field("display_description", "Description", Kind.TEXT, "Free text of the owner"),
        Field("hostname", "Hostname", Kind.TEXT, "Host name inside the guest"),
        Field("host", "Host", Kind.TEXT, "Compute service that runs the instance"),
        Field("node", "Node", Kind.TEXT, "Hypervisor that runs the instance"),
        Field("launched_on", "LaunchedOn", Kind.TEXT, "Compute service that first ran the instance"),
        Field("availability_zone", "Zone", Kind.TEXT, "Availability zone of the instance"),
        Field("vm_state", "VMState", Kind.TEXT, "Stable state of the instance"),
        Field("task_state", "Task", Kind.TEXT, "What is being done to the instance, null when idle"),
        Field("power_state", "Power", Kind.NUMBER, "Power state as the hypervisor reports it, a number"),
        Field("progress", "Progress", Kind.NUMBER, "Progress of the running task in percent"),
        Field("created_at", "Created", Kind.TIMESTAMP, "Time of creation", is_constant=True),
        Field("updated_at", "Updated", Kind.TIMESTAMP, "Time of the last change, null before the first"),
        Field("launched_at", "Launched", Kind.TIMESTAMP, "Time of the first start"),
        Field("terminated_at", "Terminated", Kind.TIMESTAMP, "Time the guest was destroyed"),
        Field("deleted_at", "DeletedAt", Kind.TIMESTAMP, "Time of deletion, also of a soft one"),
        Field("deleted", "Deleted", Kind.BOOL, "Whether the instance is deleted for good"),
        Field("hidden", "Hidden", Kind.BOOL, "Whether this is the inactive copy of a move between cells"),
        Field("forthcoming", "Forthcoming", Kind.BOOL, "Whether it is a reservation that is not made real yet"),
        Field("locked", "Locked", Kind.BOOL, "Whether the instance refuses changes"),
        Field("locked_by", "LockedBy", Kind.TEXT, "Who locked it, owner or admin"),
        Field("locked_reason", "LockedReason", Kind.TEXT, "Why it was locked"),
        Field(
            "reservation_id",
            "Reservation",
            Kind.TEXT,
            "Identifier shared by instances created in one request",
        ),
        Field("launch_index", "LaunchIndex", Kind.NUMBER, "Position among instances created in one request"),
        Field("instance_type_id", "FlavorNumber", Kind.NUMBER, "Number of the flavor inside its database"),
        Field("flavor_id", "FlavorID", Kind.TEXT, "Public identifier of the flavor", is_derived=True),
        Field("memory_mb", "Memory", Kind.UNIT, "Memory that the instance was given", is_derived=True),
        Field("vcpus", "VCPUs", Kind.NUMBER, "Virtual processors that the instance was given", is_derived=True),
        Field("disk_usage", "DiskUsage", Kind.UNIT, "Space that its disks take on each node", is_derived=True),
        Field("image_ref", "Image", Kind.TEXT, "Image it was created from, empty when booted from a volume"),
        Field("kernel_id", "Kernel", Kind.TEXT, "Kernel image"),
        Field("ramdisk_id", "Ramdisk", Kind.TEXT, "Ramdisk image"),
        Field("key_name", "Key", Kind.TEXT, "Key pair that was injected"),
        Field("os_type", "OSType", Kind.TEXT, "Type of the guest operating system"),
        Field("architecture", "Architecture", Kind.TEXT, "Processor architecture of the guest"),
        Field("root_device_name", "RootDevice", Kind.TEXT, "Device name of the root disk"),
        Field("config_drive", "ConfigDrive", Kind.TEXT, "True with a configuration drive, else empty"),
        Field("auto_disk_config", "DiskConfig", Kind.BOOL, "Whether the disk is partitioned automatically"),
        Field("access_ip_v4", "AccessIPv4", Kind.TEXT, "IPv4 address that the owner declared for access"),
        Field("access_ip_v6", "AccessIPv6", Kind.TEXT, "IPv6 address that the owner declared for access"),
        Field("instance_name", "InstanceName", Kind.TEXT, "Name of the guest on its hypervisor"),
        Field("pinned_availability_zone", "PinnedZone", Kind.TEXT, "Availability zone that was asked for"),
        Field("tags", "Tags", Kind.OTHER, "Tags of the owner", is_list=True),
        Field("user_data", "UserData", Kind.OTHER, "Base64 text handed to the guest at boot"),
        Field("metadata", "Metadata", Kind.OTHER, "Keys and values of the owner"),
        Field("flavor", "Flavor", Kind.OTHER, "Flavor as it was when the instance was created or resized"),
        Field("image_properties", "ImageProperties", Kind.OTHER, "Image properties stored at boot"),
        Field("ip_addresses", "Addresses", Kind.OTHER, "Addresses by network"),
        Field("block_devices", "Volumes", Kind.OTHER, "Volumes that are attached"),
        Field("security_groups", "SecurityGroups", Kind.OTHER, "Names of the security groups"),
        Field("server_groups", "ServerGroups", Kind.OTHER, "Server groups it is a member of"),
        Field("scheduler_hints", "SchedulerHints", Kind.OTHER, "Hints given to the scheduler at creation"),
        Field("trusted_image_certificates", "TrustedCertificates", Kind.OTHER, "Trusted image certificates"),
        Field("keypairs", "KeyPairs", Kind.OTHER, "Key pairs with their public keys"),
        Field("shares", "Shares", Kind.OTHER, "File shares that are attached"),
        Field("fault", "Fault", Kind.OTHER, "Newest fault, with code, message, details and time"),
        Field(
            "ganeti", "Ganeti", Kind.OTHER, "What Ganeti alone has words for (fleetlight.resources.query_fields.ganeti)"
        ),
    ),
    members={
        **{name: Member(name) for name in ("progress", "key_name", "config_drive", "metadata", "fault")},
        "security_groups": Member("security_groups"),
        **{name: Member(f"OS-EXT-STS:{name}") for name in ("task_state", "vm_state", "power_state")},
        **{name: Member(f"OS-SRV-USG:{name}") for name in ("launched_at", "terminated_at")},
        "display_name": Member("name"),
        "project_id": Member("tenant_id", otherwise=""),
        "user_id": Member("user_id", otherwise=""),
        "created_at": Member("created"),
        "updated_at": Member("updated"),
        "access_ip_v4": Member("accessIPv4", otherwise=""),
        "access_ip_v6": Member("accessIPv6", otherwise=""),
        "ip_addresses": Member("addresses"),
        "auto_disk_config": Member("OS-DCF:diskConfig"),
        "availability_zone": Member("OS-EXT-AZ:availability_zone", otherwise=""),
        "block_devices": Member("os-extended-volumes:volumes_attached"),
        "locked": Member("locked", 9, otherwise=False),
        "display_description": Member("description", 19),
        "tags": Member("tags", 26, otherwise=()),
        "trusted_image_certificates": Member("trusted_image_certificates", 63),
        "locked_reason": Member("locked_reason", 73),
        "hostname": Member(f"{_FOR_ADMINS}hostname", 90),
        "pinned_availability_zone": Member("pinned_availability_zone", 96),
        "scheduler_hints": Member("scheduler_hints", 100),
        "host": Member(f"{_FOR_ADMINS}host", is_for_admins=True),
        "node": Member(f"{_FOR_ADMINS}hypervisor_hostname", is_for_admins=True),
        "instance_name": Member(f"{_FOR_ADMINS}instance_name", is_for_admins=True, otherwise=""),
        **{
            name: Member(f"{_FOR_ADMINS}{name}", 3, is_for_admins=True)
            for name in ("kernel_id", "launch_index", "ramdisk_id", "reservation_id", "root_device_name", "user_data")
        },
    },
)

DERIVED_FIELDS = frozenset(name for name, field in INSTANCE_FIELDS.items() if field.is_derived)
_NEVER_NULL = {"deleted": False, "forthcoming": False, "hidden": False, "locked": False}
BLANK_INSTANCE: Record = {
    name: [] if field.is_list else _NEVER_NULL.get(name) for name, field in INSTANCE_FIELDS.items()
}
"""The record of an instance whose fields are all unknown."""

DEFAULT_ZONE = "nova"
"""The availability zone of hosts that no operator has put into another one."""
