"""A reservation is made real, with the nodes and the room that it has (contracts/ganeti-reservations, 4)."""

from dataclasses import replace

from cells.kinds.native.items.cluster import read_parameters
from cells.kinds.native.nodes import Capacity
from operations.jobs.errors import PrerequisiteError, Reason
from operations.jobs.vocabulary import Task
from operations.opcodes.instances.checks import (
    check_hypervisor_parameters,
    check_template,
    known_instance,
)
from operations.opcodes.instances.configuration import Configuration, configuration_of, new_disk
from operations.opcodes.instances.create_parameters import InstanceCreate
from operations.opcodes.instances.expiry import clear_expiry
from operations.opcodes.instances.interfaces import give_up_interfaces, take_interfaces
from operations.opcodes.instances.parameters import MIRRORED
from operations.opcodes.instances.places import (
    Places,
    Wanted,
    demand_of_instance,
    mark_forthcoming,
    node_called,
    take_more,
    take_places,
    take_secondary,
    usable_node,
)
from operations.opcodes.instances.policy import check_policy
from operations.scheduling.allocations import release
from operations.scheduling.select_destinations import wait_for_several_nodes
from resources.cluster_parameters import Parameters
from resources.fields import Record
from resources.power_states import NO_STATE


def commit_reservation(op: InstanceCreate, task: Task) -> Places:
    """Take what is asked for beyond what is reserved, and let the row say that it is real. Raises PrerequisiteError."""
    record = known_instance(op, task)
    if not record["forthcoming"]:
        text = f"Instance '{op.instance_name}' is not forthcoming but --commit was passed"
        raise PrerequisiteError(text, Reason.WRONG_STATE)
    cluster = read_parameters(task.connection)
    before = configuration_of(record)
    after = _merged(op, before, cluster)
    _check_complete(op, record, after)
    places = _places_of_reservation(op, task, before, after, cluster)
    if not op.ignore_ipolicy:
        nic_count = len(after.nics if op.nics is None else op.nics)
        check_policy(task.connection, after, cluster, places.primary.group_uuid, nic_count=nic_count)
    if op.nics is not None:
        give_up_interfaces(task.connection, task.instance.uuid)
        nics = take_interfaces(
            task.connection,
            task.instance.uuid,
            op.nics,
            mac_prefix=cluster["mac_prefix"],
            group_uuid=places.primary.group_uuid,
        )
        after = replace(after, nics=nics)
    secondary = None if places.secondary is None else places.secondary.name
    after = replace(after, secondary=secondary)
    mark_forthcoming(task.connection, task.instance.uuid, is_forthcoming=False)
    clear_expiry(task.connection, task.instance.uuid)
    task.notes["reserved"] = {
        "display_name": record["display_name"],
        "tags": record["tags"],
        **before.values(cluster, is_forthcoming=True),
    }
    task.instance.change(
        "instance.create.start",
        {
            **after.values(cluster, is_forthcoming=False),
            "tags": sorted({*record["tags"], *op.tags}),
            "host": places.primary.host,
            "node": places.primary.name,
            "availability_zone": places.primary.zone,
            "task_state": "spawning",
        },
        task.now,
        request=task.job.request,
    )
    return places


def _merged(op: InstanceCreate, reserved: Configuration, cluster: Parameters) -> Configuration:
    """What was reserved, with what the request says over it."""
    hypervisor = op.hypervisor or reserved.hypervisor or cluster["enabled_hypervisors"][0]
    check_hypervisor_parameters(cluster, hypervisor, op.hvparams)
    disks = reserved.disks
    if op.disks is not None:
        disks = [new_disk(disk) for disk in op.disks]
    template = op.disk_template or reserved.template
    check_template(cluster, template)
    return replace(
        reserved,
        os=op.os_type or reserved.os,
        hypervisor=hypervisor,
        template=template,
        backend={**reserved.backend, **op.beparams.values()},
        hypervisor_parameters={**reserved.hypervisor_parameters, **op.hvparams},
        os_parameters={**reserved.os_parameters, **op.osparams},
        disks=disks,
    )


def _check_complete(op: InstanceCreate, record: Record, wanted: Configuration) -> None:
    """Raises PrerequisiteError that names what is missing for a real instance."""
    missing = [
        name
        for name, is_missing in (
            ("name", not record["display_name"]),
            ("os_type", wanted.os is None and not op.no_install),
            ("disk_template", wanted.template is None),
            ("disks", wanted.template not in {None, "diskless"} and not wanted.disks),
        )
        if is_missing
    ]
    if missing:
        raise PrerequisiteError(f"Missing to make the reservation real: {', '.join(missing)}", Reason.WRONG_INPUT)


def _places_of_reservation(
    op: InstanceCreate, task: Task, before: Configuration, after: Configuration, cluster: Parameters
) -> Places:
    """The nodes that were reserved, with room for what is asked for beyond; chosen now where there were none."""
    record, uuid, template = task.record, task.instance.uuid, after.template or "diskless"
    demand = demand_of_instance(after, cluster)
    if record["node"] is None:
        return take_places(task.connection, uuid, demand, Wanted(op.pnode, op.snode, op.group_name), template)
    reserved = {"pnode": record["node"], "snode": before.secondary}
    for name, node in reserved.items():
        given = getattr(op, name)
        if given is not None and (node is None or node_called(task.connection, given).name != node):
            text = f"The reservation has {name} {node}, so it cannot be made real on '{given}'"
            raise PrerequisiteError(text, Reason.WRONG_INPUT)
    primary = usable_node(task.connection, record["node"], is_primary=True)
    if template in MIRRORED:
        wait_for_several_nodes(task.connection)
    take_more(task.connection, uuid, primary.name, demand_of_instance(before, cluster), demand)
    if template not in MIRRORED:
        if before.secondary is not None:
            release(task.connection, uuid, before.secondary)
        return Places(primary)
    if before.secondary is None:
        return Places(primary, take_secondary(task.connection, uuid, primary.name, None, demand.disk_gib))
    secondary = usable_node(task.connection, before.secondary, is_primary=False)
    was = Capacity(0, 0, demand_of_instance(before, cluster).disk_gib)
    take_more(task.connection, uuid, secondary.name, was, Capacity(0, 0, demand.disk_gib))
    return Places(primary, secondary)


def reserve_again(task: Task) -> None:
    """What could not be made real is a reservation as before."""
    task.instance.change(
        "reservation.commit.error",
        {**task.notes["reserved"], "vm_state": "building", "task_state": None, "power_state": NO_STATE},
        task.now,
        request=task.job.request,
    )
    mark_forthcoming(task.connection, task.instance.uuid, is_forthcoming=True)
