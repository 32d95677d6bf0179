"""Writer of the text files of htools, in the form of `hbal --save`.

Source: contracts/ganeti-htools, 1.
"""

from collections.abc import Iterable
from dataclasses import astuple
from decimal import Decimal

from fleetlight.manager.operations.balancing.cluster import (
    Cluster,
    ClusterInstance,
    ClusterNode,
    NodeGroup,
    Policy,
    PolicySize,
)

_PLAIN_FROM, _PLAIN_BELOW = 0.1, 1e7


def write_cluster(cluster: Cluster) -> str:
    """Write the file of a cluster, from which read_cluster reads the same cluster."""
    policies = [("", cluster.policy), *((group.name, group.policy) for group in cluster.groups)]
    sections = (
        _lines(_group(group) for group in cluster.groups),
        _lines(_node(node) for node in cluster.nodes),
        _lines(_instance(instance) for instance in cluster.instances),
        _lines(cluster.tags),
        _lines(_policy(owner, policy) for owner, policy in policies),
    )
    return "\n".join(sections)


def _lines(lines: Iterable[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def _group(group: NodeGroup) -> str:
    return "|".join((group.name, group.uuid, group.allocation_policy, ",".join(group.tags), ",".join(group.networks)))


def _node(node: ClusterNode) -> str:
    role = "Y" if node.is_offline else "M" if node.is_master else "N"
    return "|".join(
        map(
            str,
            (
                node.name,
                node.total_memory_mib,
                node.own_memory_mib,
                node.free_memory_mib,
                node.total_disk_mib,
                node.free_disk_mib,
                node.cpus,
                role,
                node.group_uuid,
                node.spindles,
                ",".join(node.tags),
                _letter(node.has_exclusive_storage),
                node.free_spindles,
                node.own_vcpus,
                f"{Decimal(repr(float(node.cpu_speed))):f}",
            ),
        )
    )


def _instance(instance: ClusterInstance) -> str:
    return "|".join(
        map(
            str,
            (
                instance.name,
                instance.memory_mib,
                instance.disk_mib,
                instance.vcpus,
                instance.status,
                _letter(instance.is_auto_balanced),
                instance.primary,
                instance.secondary or "",
                instance.disk_template,
                ",".join(instance.tags),
                instance.spindle_use,
                "-" if instance.disk_spindles is None else instance.disk_spindles,
                _letter(instance.is_forthcoming),
            ),
        )
    )


def _policy(owner: str, policy: Policy) -> str:
    sizes = ";".join(_size(size) for pair in policy.bounds for size in pair)
    ratios = (_real(policy.vcpu_ratio), _real(policy.spindle_ratio))
    return "|".join((owner, _size(policy.standard), sizes, ",".join(policy.disk_templates), *ratios))


def _size(size: PolicySize) -> str:
    return ",".join(map(str, astuple(size)))


def _letter(value: bool) -> str:
    return "Y" if value else "N"


def _real(value: float) -> str:
    """Format a number like Haskell: with an exponent below 0.1 and from ten millions on."""
    if value == 0 or _PLAIN_FROM <= abs(value) < _PLAIN_BELOW:
        return repr(float(value))
    shortest = next(text for digits in range(17) if float(text := f"{value:.{digits}e}") == value)
    mantissa, _, exponent = shortest.partition("e")
    return f"{mantissa if '.' in mantissa else mantissa + '.0'}e{int(exponent)}"
