"""The scheduler's answer for one instance and one host (contracts/nova-selection).

It travels from the scheduler to the conductor only, and is in no notification. A request for one instance is answered
with a list of these: the chosen host first, then alternates.
"""

from typing import ClassVar

from notifications.versioned import VersionedPayload
from notifications.wire_types import Int64, Uuid


class NetworkMetadata(VersionedPayload):
    """Networks that a host can reach without leaving a NUMA node; `physnets` is a set.

    1.0  first version
    """

    VERSION: ClassVar[str] = "1.0"
    physnets: list[str]
    tunneled: bool


class NUMATopologyLimits(VersionedPayload):
    """How far the nodes of a host may be overcommitted.

    1.0  first version
    1.1  + network_metadata
    """

    VERSION: ClassVar[str] = "1.1"
    MAY_BE_ABSENT: ClassVar[frozenset[str]] = frozenset({"network_metadata"})
    cpu_allocation_ratio: float
    ram_allocation_ratio: float
    network_metadata: NetworkMetadata | None = None


class SchedulerLimits(VersionedPayload):
    """What the host may use at most when the instance is claimed there; today only `numa_topology` is ever set.

    1.0  first version
    """

    VERSION: ClassVar[str] = "1.0"
    numa_topology: NUMATopologyLimits | None
    vcpu: Int64 | None
    disk_gb: Int64 | None
    memory_mb: Int64 | None


class Selection(VersionedPayload):
    """A host with everything that is needed to claim it.

    allocation_request: JSON text of one allocation candidate; the text `null` when there is nothing to claim.
    allocation_request_version: the placement microversion of that text.

    1.0  first version
    1.1  + availability_zone
    """

    VERSION: ClassVar[str] = "1.1"
    compute_node_uuid: Uuid
    service_host: str
    nodename: str
    cell_uuid: Uuid
    limits: SchedulerLimits | None
    allocation_request: str | None
    allocation_request_version: str | None
    availability_zone: str | None = None
