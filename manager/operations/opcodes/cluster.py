"""Operations of Ganeti on a cell as a whole."""

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal

from pydantic import Field
from sqlalchemy import select, update

from fleetlight.cells.kinds.native.items.cluster import read_parameters
from fleetlight.cells.tables import cluster_parameters, instances
from fleetlight.manager.operations.hosts.node_announcements import announce_changed_nodes
from fleetlight.manager.operations.jobs.errors import PrerequisiteError, Reason
from fleetlight.manager.operations.jobs.model import Lock
from fleetlight.manager.operations.jobs.nodes import NodeCall
from fleetlight.manager.operations.jobs.vocabulary import Operation, Task
from fleetlight.manager.operations.nodes.host_calls import FORGET
from fleetlight.manager.operations.nodes.refreshing import ALL_NODES
from fleetlight.manager.operations.opcodes.building import operation
from fleetlight.manager.operations.opcodes.configuration_changes import configuring
from fleetlight.manager.operations.opcodes.groups import refuse_states
from fleetlight.manager.operations.opcodes.hypervisor_values import check_hypervisor_values
from fleetlight.manager.operations.opcodes.opcode import OpCode
from fleetlight.manager.operations.opcodes.parameter_values import (
    backend_parameters,
    check_mac_prefix,
    check_memory,
    disk_parameters,
    hypervisor_parameters,
    instance_policy,
    nic_parameters,
    node_parameters,
    object_of,
    wrong,
)
from fleetlight.resources.query_fields.cluster_parameters import (
    CLUSTER_DEFAULTS,
    DEFAULT,
    DISK_TEMPLATES,
    HYPERVISOR_DEFAULTS,
    Parameters,
    filled,
    filled_cluster,
)

Count = Annotated[int, Field(ge=1)]
Object = dict[str, Any]
ListChange = tuple[Literal["add", "remove"], str]


class RedistributeConfiguration(OpCode):
    """Do nothing, since every process of a cell reads its configuration from the database."""

    OP_ID = "OP_CLUSTER_REDIST_CONF"


class ClusterSetParams(OpCode):
    """Change the given parameters only. hidden_os, blacklisted_os: systems to add and remove.

    Parameters of instances, nodes and disks change one by one; the word `default` removes one.
    """

    OP_ID = "OP_CLUSTER_SET_PARAMS"

    force: bool = False
    beparams: Object | None = None
    hvparams: dict[str, Object] | None = None
    os_hvp: dict[str, dict[str, Object]] | None = None
    osparams: dict[str, Object] | None = None
    nicparams: Object | None = None
    ndparams: Object | None = None
    diskparams: dict[str, Object] | None = None
    ipolicy: Object | None = None
    hv_state: Object | None = None
    disk_state: Object | None = None
    hidden_os: list[ListChange] | None = None
    blacklisted_os: list[ListChange] | None = None
    enabled_hypervisors: Annotated[list[str], Field(min_length=1)] | None = None
    enabled_disk_templates: Annotated[list[str], Field(min_length=1)] | None = None
    candidate_pool_size: Count | None = None
    max_running_jobs: Count | None = None
    max_tracked_jobs: Count | None = None
    mac_prefix: str | None = None
    default_iallocator: str | None = None
    default_iallocator_params: Object | None = None
    vg_name: str | None = None
    drbd_helper: str | None = None
    reserved_lvs: list[str] | None = None
    file_storage_dir: str | None = None
    shared_file_storage_dir: str | None = None
    gluster_storage_dir: str | None = None
    master_netdev: str | None = None
    master_netmask: Annotated[int, Field(ge=1, le=128)] | None = None
    use_external_mip_script: bool | None = None
    maintain_node_health: bool | None = None
    prealloc_wipe_disks: bool | None = None
    enabled_user_shutdown: bool | None = None
    install_image: str | None = None
    zeroing_image: str | None = None
    instance_communication_network: str | None = None
    uid_pool: list[tuple[int, int]] | None = None
    add_uids: list[tuple[int, int]] | None = None
    remove_uids: list[tuple[int, int]] | None = None
    enabled_data_collectors: dict[str, bool] | None = None
    data_collector_interval: dict[str, int] | None = None


_OF_ALL = frozenset(OpCode.model_fields)
# Stored unchanged, under the same names.
_PLAIN = """
    candidate_pool_size max_running_jobs max_tracked_jobs default_iallocator default_iallocator_params reserved_lvs
    file_storage_dir shared_file_storage_dir gluster_storage_dir master_netdev master_netmask use_external_mip_script
    maintain_node_health prealloc_wipe_disks enabled_user_shutdown install_image zeroing_image
    instance_communication_network
"""
_AS_GIVEN = {
    **{name: name for name in _PLAIN.split()},
    "drbd_helper": "drbd_usermode_helper",
    "vg_name": "volume_group_name",
}
Merge = Callable[[ClusterSetParams, Parameters], Any]


def _plan(op: ClusterSetParams, task: Task) -> Parameters:
    """Return the parameters to store as set. Raises PrerequisiteError for invalid ones."""
    given = {name for name in type(op).model_fields if name not in _OF_ALL and getattr(op, name) is not None}
    if not given - {"force"}:
        raise wrong("Please pass at least one modification")
    refuse_states(op.hv_state, op.disk_state)
    own: Parameters = task.connection.scalar(select(cluster_parameters.c.parameters).with_for_update()) or {}
    merged = {**own, **{stored: getattr(op, name) for name, stored in _AS_GIVEN.items() if name in given}}
    merged |= {name: merge(op, own) for name, merge in _MERGED.items() if name in given}
    if given & {"uid_pool", "add_uids", "remove_uids"}:
        merged["uid_pool"] = _uids(op, own)
    _check(op, task, filled_cluster(merged))
    return merged


def _carry_out(parameters: Parameters, task: Task) -> None:
    of = cluster_parameters.c
    before = read_parameters(task.connection)
    values = {"parameters": parameters, "serial_no": of.serial_no + 1, "updated_at": task.now}
    task.connection.execute(update(cluster_parameters).values(**values))
    if filled_cluster(parameters)["ndparams"] != before["ndparams"]:
        announce_changed_nodes(task.connection, task.now)


def _check(op: ClusterSetParams, task: Task, cluster: Parameters) -> None:
    check_memory(cluster["beparams"][DEFAULT])
    check_mac_prefix(op.mac_prefix)
    if unknown := [name for name in cluster["enabled_hypervisors"] if name not in HYPERVISOR_DEFAULTS]:
        raise wrong(f"Enabled hypervisors contains invalid entries: '{unknown[0]}'")
    if unknown := [name for name in cluster["enabled_disk_templates"] if name not in DISK_TEMPLATES]:
        raise wrong(f"Enabled disk templates contains invalid entries: '{unknown[0]}'")
    for name in {*(op.hvparams or ()), *(op.enabled_hypervisors or ())}:
        check_hypervisor_values(name, cluster["hvparams"][name])
    for of_system in cluster["os_hvp"].values() if op.os_hvp else ():
        for name, values in of_system.items():
            check_hypervisor_values(name, filled(cluster["hvparams"][name], values))
    for name in ("enabled_data_collectors", "data_collector_interval"):
        if unknown := sorted(set(getattr(op, name) or ()) - set(CLUSTER_DEFAULTS[name])):
            raise wrong(f"Unknown data collector '{unknown[0]}'")
    for what, enabled in (("hypervisor", "enabled_hypervisors"), ("disk_template", "enabled_disk_templates")):
        if getattr(op, enabled) is not None and (used := sorted(_used(task, what) - set(cluster[enabled]))):
            text = f"Cannot disable {what.replace('_', ' ')} '{used[0]}', as there are instances that use it"
            raise PrerequisiteError(text, Reason.WRONG_STATE)


def _used(task: Task, name: str) -> set[str]:
    """Return the values of a field in the instances' own parameters."""
    statement = select(instances.c.ganeti).where(instances.c.deleted.is_(False), instances.c.ganeti.is_not(None))
    found = {kept["values"].get(name) for kept in task.connection.scalars(statement)}
    return {value for value in found if value is not None}


def _of_default(name: str, merge: Callable[[Parameters, Parameters], Parameters]) -> Merge:
    """Return the merge of parameters that a cluster stores under the key `default`; requests may omit the key."""

    def run(op: ClusterSetParams, own: Parameters) -> Parameters:
        given = getattr(op, name)
        inside = object_of(given[DEFAULT], name) if set(given) == {DEFAULT} else given
        return {DEFAULT: merge(own.get(name, {}).get(DEFAULT, {}), inside)}

    return run


def _each_hypervisor(own: Parameters, given: Mapping[str, Parameters]) -> Parameters:
    return {**own, **{name: hypervisor_parameters(name, own.get(name, {}), values) for name, values in given.items()}}


def _hypervisors_of_systems(op: ClusterSetParams, own: Parameters) -> Parameters:
    before = own.get("os_hvp", {})
    after = {name: _each_hypervisor(before.get(name, {}), given) for name, given in (op.os_hvp or {}).items()}
    return {**before, **after}


def _systems(op: ClusterSetParams, own: Parameters) -> Parameters:
    """Return the parameters by operating system. Raises PrerequisiteError for a value that is no text."""
    merged = dict(own.get("osparams", {}))
    for system, given in (op.osparams or {}).items():
        values = {**merged.get(system, {}), **given}
        kept = {name: value for name, value in values.items() if value != "default"}
        if wrong_ones := [name for name, value in kept.items() if not isinstance(value, str)]:
            raise wrong(f"Parameter '{wrong_ones[0]}' of operating system '{system}' has to be a text")
        merged[system] = kept
    return {system: values for system, values in merged.items() if values}


def _listed(name: str) -> Merge:
    def run(op: ClusterSetParams, own: Parameters) -> list[str]:
        listed = list(own.get(name, ()))
        for action, system in getattr(op, name):
            if action == "add" and system not in listed:
                listed.append(system)
            elif action == "remove" and system in listed:
                listed.remove(system)
        return sorted(listed)

    return run


def _uids(op: ClusterSetParams, own: Parameters) -> list[list[int]]:
    pool = [tuple(each) for each in (own.get("uid_pool", ()) if op.uid_pool is None else op.uid_pool)]
    for added in op.add_uids or ():
        if any(added[0] <= high and low <= added[1] for low, high in pool):
            raise wrong(f"User ids {added[0]} to {added[1]} are in the pool already")
        pool.append(added)
    for removed in op.remove_uids or ():
        if removed not in pool:
            raise wrong(f"User ids {removed[0]} to {removed[1]} are not in the pool")
        pool.remove(removed)
    if backwards := [each for each in pool if each[0] > each[1]]:
        raise wrong(f"User ids {backwards[0][0]} to {backwards[0][1]} are no range")
    return [list(each) for each in sorted(pool)]


_MERGED: Mapping[str, Merge] = {
    "beparams": _of_default("beparams", backend_parameters),
    "nicparams": _of_default("nicparams", nic_parameters),
    "ndparams": lambda op, own: node_parameters(own.get("ndparams", {}), op.ndparams or {}),
    "diskparams": lambda op, own: disk_parameters(own.get("diskparams", {}), op.diskparams or {}),
    "ipolicy": lambda op, own: instance_policy(own.get("ipolicy", {}), op.ipolicy or {}, is_of_group=False),
    "hvparams": lambda op, own: _each_hypervisor(own.get("hvparams", {}), op.hvparams or {}),
    "os_hvp": _hypervisors_of_systems,
    "osparams": _systems,
    "hidden_os": _listed("hidden_os"),
    "blacklisted_os": _listed("blacklisted_os"),
    "enabled_hypervisors": lambda op, _own: op.enabled_hypervisors,
    "enabled_disk_templates": lambda op, _own: op.enabled_disk_templates,
    "mac_prefix": lambda op, _own: op.mac_prefix,
    "enabled_data_collectors": lambda op, own: {
        **filled_cluster(own)["enabled_data_collectors"],
        **(op.enabled_data_collectors or {}),
    },
    "data_collector_interval": lambda op, own: {
        **filled_cluster(own)["data_collector_interval"],
        **(op.data_collector_interval or {}),
    },
}


def _forget(task: Task) -> NodeCall | None:
    """Return the call that drops the cached state of all nodes, if what nodes report depends on a changed parameter."""
    op = ClusterSetParams.read(task.parameters)
    is_about_nodes = op.enabled_hypervisors is not None or op.vg_name is not None
    return NodeCall(ALL_NODES, FORGET) if is_about_nodes else None


CLUSTER: tuple[tuple[str, Operation], ...] = (
    operation(RedistributeConfiguration, lambda _op, _task: None),
    configuring(
        ClusterSetParams,
        _plan,
        _carry_out,
        locks=lambda _op, _instance_uuid: (Lock("cluster", "cluster"),),
        call=_forget,
    ),
)
