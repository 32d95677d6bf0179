"""The instance policy of a group: the allowed sizes of instances on its nodes (contracts/ganeti-reservations, 5)."""

from collections.abc import Iterator, Mapping
from typing import Any

from sqlalchemy import Connection, bindparam, select

from fleetlight.cells.kinds.native.items.json_columns import as_text, decoded_or
from fleetlight.cells.tables import node_groups
from fleetlight.manager.operations.jobs.errors import PrerequisiteError, Reason
from fleetlight.manager.operations.opcodes.instances.configuration import Configuration
from fleetlight.resources.query_fields.cluster_parameters import Parameters, filled

_UUID = "of_group"
_GROUP = select(node_groups.c.name, as_text(node_groups.c.ipolicy)).where(node_groups.c.uuid == bindparam(_UUID))


def check_policy(
    connection: Connection,
    configuration: Configuration,
    cluster: Parameters,
    group_uuid: str | None,
    *,
    nic_count: int | None,
) -> None:
    """Raises PrerequisiteError for an instance that the policy of its group does not allow.

    group_uuid: None before it has a node; then the policy of the cluster applies. nic_count: how many interfaces it
        has; None: not checked.
    """
    policy, where = _policy(connection, cluster, group_uuid)
    template = configuration.template
    if template is not None and template not in policy["disk-templates"]:
        raise _violation(where, [f"disk template {template} is not allowed (allowed: {policy['disk-templates']})"])
    sizes = _sizes(configuration, cluster, nic_count)
    found = [list(_violations(sizes, limits)) for limits in policy["minmax"]]
    # One of the ranges has to allow all sizes.
    if found and all(found):
        raise _violation(where, min(found, key=len))


def _policy(connection: Connection, cluster: Parameters, group_uuid: str | None) -> tuple[Parameters, str]:
    row = None if group_uuid is None else connection.execute(_GROUP, {_UUID: group_uuid}).one_or_none()
    if row is None:
        return cluster["ipolicy"], "the cluster"
    return filled(cluster["ipolicy"], decoded_or(row.ipolicy, {})), f"group {group_uuid} ({row.name})"


def _sizes(configuration: Configuration, cluster: Parameters, nic_count: int | None) -> Mapping[str, list[int]]:
    """Return the sizes by their names in policies; a reservation may lack some."""
    backend = configuration.filled_backend(cluster)
    sizes = {
        "memory-size": [backend["maxmem"]],
        "cpu-count": [backend["vcpus"]],
        "spindle-use": [backend["spindle_use"]],
        "disk-size": [disk["size"] for disk in configuration.disks],
    }
    if nic_count is not None:
        sizes["nic-count"] = [nic_count]
    if configuration.disks:
        sizes["disk-count"] = [len(configuration.disks)]
    return sizes


def _violations(sizes: Mapping[str, list[int]], limits: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    for name, values in sizes.items():
        least, most = limits["min"].get(name), limits["max"].get(name)
        for value in values:
            if (least is not None and value < least) or (most is not None and value > most):
                yield f"{name} value {value} is not in range [{least}, {most}]"


def _violation(where: str, problems: list[str]) -> PrerequisiteError:
    text = f"Instance allocation to {where} violates policy: {', '.join(problems)}"
    return PrerequisiteError(text, Reason.WRONG_INPUT)
