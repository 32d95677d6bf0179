"""What the scheduler of Nova is asked, and tasks that failed before a host was found (section 8)."""

from typing import Any, ClassVar, Literal

from pydantic import Field

from fleetlight.notifications.payloads.parts import ExceptionPayload, FlavorPayload
from fleetlight.notifications.payloads.resources import ServerGroupPayload
from fleetlight.notifications.versioned import VersionedPayload
from fleetlight.notifications.wire_types import Int64, Uuid, VmState, WireTime


class VirtCPUTopologyPayload(VersionedPayload):
    """How the processors of a guest are laid out.

    1.0  first version
    """

    VERSION: ClassVar[str] = "1.0"
    sockets: Int64 | None
    cores: Int64 | None
    threads: Int64 | None


class InstanceNUMACellPayload(VersionedPayload):
    """One NUMA node of a guest; `memory` in MiB, `pagesize` in KiB.

    1.0  first version
    1.1  + pcpuset
    1.2  cpu_policy may be `mixed`
    """

    VERSION: ClassVar[str] = "1.2"
    id: Int64
    cpuset: list[Int64]
    pcpuset: list[Int64] = Field(default=[])
    cpuset_reserved: list[Int64] | None
    memory: Int64
    pagesize: Int64 | None
    cpu_topology: VirtCPUTopologyPayload | None
    cpu_pinning_raw: dict[str, Int64] | None
    cpu_policy: Literal["dedicated", "shared", "mixed"] | None
    cpu_thread_policy: Literal["prefer", "isolate", "require"] | None


class InstanceNUMATopologyPayload(VersionedPayload):
    """The NUMA nodes of a guest.

    1.0  first version
    """

    VERSION: ClassVar[str] = "1.0"
    instance_uuid: Uuid
    cells: list[InstanceNUMACellPayload]
    emulator_threads_policy: Literal["isolate", "share"] | None


class InstancePCIRequestPayload(VersionedPayload):
    """Devices of one kind that an instance asks for.

    1.0  first version
    1.1  numa_policy may be `socket`
    """

    VERSION: ClassVar[str] = "1.1"
    count: Int64
    spec: list[dict[str, Any]]
    alias_name: str | None
    request_id: Uuid | None
    numa_policy: str | None


class InstancePCIRequestsPayload(VersionedPayload):
    """All devices that an instance asks for.

    1.0  first version
    """

    VERSION: ClassVar[str] = "1.0"
    instance_uuid: Uuid
    requests: list[InstancePCIRequestPayload]


class CellMappingPayload(VersionedPayload):
    """A cell of Nova. 1.x carried the addresses of its database and bus, with passwords; it is not read.

    2.0  first version that is read here, - database_connection, transport_url
    """

    VERSION: ClassVar[str] = "2.0"
    uuid: Uuid
    name: str | None
    disabled: bool


class DestinationPayload(VersionedPayload):
    """Where a request insists to go; what it does not insist on is absent.

    1.0  first version
    """

    VERSION: ClassVar[str] = "1.0"
    MAY_BE_ABSENT: ClassVar[frozenset[str]] = frozenset({"host", "node", "cell", "aggregates"})
    host: str | None = None
    node: str | None = None
    cell: CellMappingPayload | None = None
    aggregates: list[str] | None = None


class SchedulerRetriesPayload(VersionedPayload):
    """Hosts that were tried already.

    1.0  first version
    """

    VERSION: ClassVar[str] = "1.0"
    num_attempts: Int64
    hosts: list[str]


class ImageMetaPropsPayload(VersionedPayload):
    """Properties of an image: only those that are set, each kept as it comes, for the list grows with every release.

    1.0  first version
    1.19  more properties
    """

    VERSION: ClassVar[str] = "1.19"


class ImageMetaPayload(VersionedPayload):
    """An image; `size`, `virtual_size` in bytes, `min_ram` in MiB, `min_disk` in GiB.

    1.0  first version
    """

    VERSION: ClassVar[str] = "1.0"
    id: Uuid | None
    name: str | None
    status: str | None
    visibility: str | None
    protected: bool | None
    checksum: str | None
    owner: str | None
    size: Int64 | None
    virtual_size: Int64 | None
    container_format: str | None
    disk_format: str | None
    created_at: WireTime | None
    updated_at: WireTime | None
    tags: list[str] | None
    direct_url: str | None
    min_ram: Int64 | None
    min_disk: Int64 | None
    properties: ImageMetaPropsPayload | None


class RequestSpecPayload(VersionedPayload):
    """What was asked for; of several instances created at once only the first is named.

    1.0  first version
    1.1  + force_hosts, force_nodes, ignore_hosts, image_meta, instance_group, requested_destination, retry
    1.1  + scheduler_hints, security_groups
    """

    VERSION: ClassVar[str] = "1.1"
    MAY_BE_ABSENT: ClassVar[frozenset[str]] = frozenset({"image_meta"})
    instance_uuid: Uuid
    project_id: str | None
    user_id: str | None
    availability_zone: str | None
    flavor: FlavorPayload | None
    image: ImageMetaPayload | None
    image_meta: Any = None
    numa_topology: InstanceNUMATopologyPayload | None
    pci_requests: InstancePCIRequestsPayload | None
    num_instances: Int64
    force_hosts: str | None = None
    force_nodes: str | None = None
    ignore_hosts: list[str] | None = None
    instance_group: ServerGroupPayload | None = None
    requested_destination: DestinationPayload | None = None
    retry: SchedulerRetriesPayload | None = None
    scheduler_hints: dict[str, list[str]] | None = None
    security_groups: list[str] = Field(default=[])


class ComputeTaskPayload(VersionedPayload):
    """A task of the conductor that failed; for a failed boot perhaps the only message about the instance.

    1.0  first version
    """

    VERSION: ClassVar[str] = "1.0"
    instance_uuid: Uuid
    request_spec: RequestSpecPayload | None
    vm_state: VmState | None = Field(alias="state")
    reason: ExceptionPayload
