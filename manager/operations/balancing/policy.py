"""Check of instances' sizes against the policy of a group. Source: contracts/ganeti-htools, 6."""

from fleetlight.manager.operations.balancing.cluster import ClusterInstance, DiskTemplate, Policy, PolicySize
from fleetlight.manager.operations.balancing.limits import Obstacle
from fleetlight.manager.operations.balancing.node_state import NodeState


def policy_refusal(instance: ClusterInstance, policy: Policy, state: NodeState) -> Obstacle | None:
    """Return the obstacle if the policy forbids the instance on a node."""
    has_exclusive_storage = state.limits.node.has_exclusive_storage
    refusals = [
        _outside(instance, least, 1, has_exclusive_storage=has_exclusive_storage)
        or _outside(instance, greatest, -1, has_exclusive_storage=has_exclusive_storage)
        for least, greatest in policy.bounds
    ]
    if refusals and None not in refusals:
        return refusals[0]
    return None if instance.disk_template in policy.disk_templates else Obstacle.DISK


def _outside(
    instance: ClusterInstance, bound: PolicySize, sign: int, *, has_exclusive_storage: bool
) -> Obstacle | None:
    """Return the resource in which it is below the smallest size (sign 1), or above the largest one (sign -1)."""
    spindles = (instance.disk_spindles or 0) if has_exclusive_storage else instance.spindle_use
    compared = (
        (Obstacle.MEMORY, instance.memory_mib, bound.memory_mib),
        (Obstacle.DISK, instance.disk_mib, bound.disk_mib),
        (Obstacle.PROCESSORS, instance.vcpus, bound.vcpus),
        (Obstacle.SPINDLES, spindles, bound.spindle_use),
    )
    for refusal, value, limit in compared:
        if sign * value < sign * limit:
            return refusal
    if instance.disk_template is not DiskTemplate.DISKLESS and sign < sign * bound.disk_count:
        return Obstacle.DISK_COUNT
    return None
