"""The description of a cluster: node groups with their policies, nodes, instances. Sizes in MiB.

Values derived for a node (its free memory, whether it can take over its secondaries) are in node_state.
Source: contracts/ganeti-htools, 1.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final


class AllocationPolicy(StrEnum):
    """Whether new instances go to a group."""

    PREFERRED = "preferred"
    LAST_RESORT = "last_resort"
    UNALLOCABLE = "unallocable"


class DiskTemplate(StrEnum):
    """The storage of an instance's disks."""

    DISKLESS = "diskless"
    FILE = "file"
    SHARED_FILE = "sharedfile"
    PLAIN = "plain"
    BLOCK = "blockdev"
    DRBD = "drbd"
    RBD = "rbd"
    EXT = "ext"
    GLUSTER = "gluster"


class InstanceStatus(StrEnum):
    """The actual and wanted state of an instance."""

    RUNNING = "running"
    ADMIN_DOWN = "ADMIN_down"
    ADMIN_OFFLINE = "ADMIN_offline"
    USER_DOWN = "USER_down"
    ERROR_UP = "ERROR_up"
    ERROR_DOWN = "ERROR_down"
    ERROR_WRONG_NODE = "ERROR_wrongnode"
    ERROR_NODE_DOWN = "ERROR_nodedown"
    ERROR_NODE_OFFLINE = "ERROR_nodeoffline"


LOCAL_STORAGE: Final = frozenset({DiskTemplate.DRBD, DiskTemplate.PLAIN})
"""Templates whose disks use the reported disk space of nodes."""
EXTERNALLY_MIRRORED: Final = frozenset(
    {
        DiskTemplate.BLOCK,
        DiskTemplate.SHARED_FILE,
        DiskTemplate.RBD,
        DiskTemplate.EXT,
        DiskTemplate.GLUSTER,
    }
)
"""Templates whose data every node can reach."""
_DOWN: Final = frozenset(
    {
        InstanceStatus.ADMIN_DOWN,
        InstanceStatus.ADMIN_OFFLINE,
        InstanceStatus.USER_DOWN,
        InstanceStatus.ERROR_DOWN,
    }
)


@dataclass(frozen=True, slots=True)
class PolicySize:
    """Limits of an instance policy, or the size of a planned instance."""

    memory_mib: int
    vcpus: int
    disk_mib: int
    disk_count: int
    nic_count: int
    spindle_use: int


@dataclass(frozen=True, slots=True)
class Policy:
    """The policy of a group. bounds: pairs of smallest and largest size; an instance must fit into one."""

    standard: PolicySize
    bounds: tuple[tuple[PolicySize, PolicySize], ...]
    disk_templates: tuple[DiskTemplate, ...]
    vcpu_ratio: float
    spindle_ratio: float


DEFAULT_POLICY: Final = Policy(
    standard=PolicySize(128, 1, 1024, 1, 1, 1),
    bounds=((PolicySize(128, 1, 1024, 1, 1, 1), PolicySize(32768, 8, 1048576, 16, 8, 12)),),
    disk_templates=tuple(DiskTemplate),
    vcpu_ratio=4.0,
    spindle_ratio=32.0,
)


@dataclass(frozen=True, slots=True)
class NodeGroup:
    name: str
    uuid: str
    allocation_policy: AllocationPolicy = AllocationPolicy.PREFERRED
    tags: tuple[str, ...] = ()
    networks: tuple[str, ...] = ()
    policy: Policy = DEFAULT_POLICY


@dataclass(frozen=True, slots=True)
class ClusterNode:
    """A node as it reports itself.

    own_memory_mib: what the node itself needs. free_memory_mib, free_disk_mib, free_spindles: live; reservations do not
    show there. is_offline: also a drained node, and one that is not for instances; nothing goes there.
    cpu_speed: relative to the usual node of the group. own_vcpus: processors that the node itself needs.
    vcpu_ratio: how many of its processors instances may have, where that is not left to the policy. has_agent: whether
    it can take what is on another node with an agent, and nothing of others. Text files can say neither.
    """

    name: str
    group_uuid: str
    total_memory_mib: int
    own_memory_mib: int
    free_memory_mib: int
    total_disk_mib: int
    free_disk_mib: int
    cpus: int
    is_offline: bool = False
    is_master: bool = False
    spindles: int = 1
    tags: tuple[str, ...] = ()
    has_exclusive_storage: bool = False
    free_spindles: int = 0
    own_vcpus: int = 1
    cpu_speed: float = 1.0
    vcpu_ratio: float | None = None
    has_agent: bool = False


@dataclass(frozen=True, slots=True)
class ClusterInstance:
    """An instance, or a reservation (`is_forthcoming`), whose uuid is shown where it has no name.

    claims_disk: the sizes of its disks count on its node whatever they are made of. is_server: the compute API made it,
    and moves it. Neither of these, nor the uuid, is in text files.
    """

    name: str
    memory_mib: int
    disk_mib: int
    vcpus: int
    status: InstanceStatus
    primary: str
    secondary: str | None
    disk_template: DiskTemplate
    is_auto_balanced: bool = True
    tags: tuple[str, ...] = ()
    spindle_use: int = 1
    disk_spindles: int | None = None
    is_forthcoming: bool = False
    claims_disk: bool = False
    is_server: bool = False
    uuid: str | None = None

    @property
    def is_mirrored(self) -> bool:
        """Whether it has a secondary node."""
        return self.disk_template is DiskTemplate.DRBD

    @property
    def uses_local_storage(self) -> bool:
        return self.disk_template in LOCAL_STORAGE or self.claims_disk

    @property
    def uses_spindles(self) -> bool:
        return self.disk_template in LOCAL_STORAGE

    @property
    def uses_memory(self) -> bool:
        """Whether the free memory that its node reports excludes its memory already."""
        return self.status not in _DOWN and not self.is_forthcoming

    @property
    def is_switched_off(self) -> bool:
        """Whether it uses no processors, and no memory on a secondary node."""
        return self.status is InstanceStatus.ADMIN_OFFLINE

    @property
    def needs_failover_memory(self) -> bool:
        """Whether its secondary node must keep memory free for it."""
        return self.is_auto_balanced and not self.is_switched_off


@dataclass(frozen=True, slots=True)
class Cluster:
    """Groups, nodes and instances in the order of the file, which decides between equals, as in htools.

    If nodes share a name, an instance is on the last one.
    """

    groups: tuple[NodeGroup, ...]
    nodes: tuple[ClusterNode, ...]
    instances: tuple[ClusterInstance, ...]
    tags: tuple[str, ...] = ()
    policy: Policy = field(default=DEFAULT_POLICY)

    def moved(self, places: Mapping[int, tuple[str, str | None]]) -> "Cluster":
        """Return the cluster as nodes will report it after moves. places: by index of the instance, its primary and
        secondary node.
        """
        indexes = {node.name: index for index, node in enumerate(self.nodes)}
        memory, disk, spindles = (Counter[int]() for _ in range(3))
        instances = []
        for number, instance in enumerate(self.instances):
            primary, secondary = places.get(number, (instance.primary, instance.secondary))
            after = replace(instance, primary=primary, secondary=secondary)
            for sign, placed in ((1, instance), (-1, after)):
                memory[indexes[placed.primary]] += sign * placed.memory_mib * placed.uses_memory
                if placed.is_forthcoming:
                    continue
                for name in filter(None, (placed.primary, placed.secondary)):
                    disk[indexes[name]] += sign * placed.disk_mib * placed.uses_local_storage
                    spindles[indexes[name]] += sign * (placed.disk_spindles or 0)
            instances.append(after)
        nodes = (
            replace(
                node,
                free_memory_mib=node.free_memory_mib + memory[index],
                free_disk_mib=node.free_disk_mib + disk[index],
                free_spindles=node.free_spindles + spindles[index] * node.has_exclusive_storage,
            )
            for index, node in enumerate(self.nodes)
        )
        return replace(self, nodes=tuple(nodes), instances=tuple(instances))
