"""Conversion of a reservation to a real instance on its nodes (contracts/ganeti-reservations, 4)."""

from dataclasses import replace

from fleetlight.cells.kinds.native.items.cluster import read_parameters
from fleetlight.manager.operations.instances.interface_addresses import give_up_interfaces
from fleetlight.manager.operations.jobs.errors import PrerequisiteError, Reason
from fleetlight.manager.operations.jobs.vocabulary import Task
from fleetlight.manager.operations.opcodes.instance_parameters import MIRRORED
from fleetlight.manager.operations.opcodes.instances.checks import (
    check_hypervisor,
    check_hypervisor_parameters,
    check_system,
    check_template,
    known_instance,
)
from fleetlight.manager.operations.opcodes.instances.configuration import Configuration, configuration_of, new_disk
from fleetlight.manager.operations.opcodes.instances.create_parameters import InstanceCreate
from fleetlight.manager.operations.opcodes.instances.interfaces import take_interfaces
from fleetlight.manager.operations.opcodes.instances.node_claims import (
    Places,
    Wanted,
    change_places,
    demand_of_instance,
    mark_forthcoming,
    node_called,
    take_places,
    usable_node,
)
from fleetlight.manager.operations.opcodes.instances.policy import check_policy
from fleetlight.manager.operations.opcodes.parameter_values import check_memory
from fleetlight.manager.operations.opcodes.tags import check_tags
from fleetlight.resources.fields import Record
from fleetlight.resources.power_states import NO_STATE
from fleetlight.resources.query_fields.cluster_parameters import Parameters


def commit_reservation(op: InstanceCreate, task: Task) -> Places:
    """Claim what the request adds to the reservation, and mark its row as real. Raises PrerequisiteError."""
    record = known_instance(op, task)
    if not record["forthcoming"]:
        text = f"Instance '{op.instance_name}' is not forthcoming but --commit was passed"
        raise PrerequisiteError(text, Reason.WRONG_STATE)
    check_tags(op.tags)
    cluster = read_parameters(task.connection)
    before = configuration_of(record)
    after = _merged(op, before, cluster)
    check_system(task, after.os, after.os_parameters, op.osparams_private, op.osparams_secret)
    check_memory(after.filled_backend(cluster))
    _check_complete(op, record, after)
    places = _places_of_reservation(op, task, before, after, cluster)
    if not op.ignore_ipolicy:
        # A reservation without interfaces may become an instance without, unless the request has a list of them.
        nic_count = (len(after.nics) or None) if op.nics is None else len(op.nics)
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
    """Merge the request over the reserved configuration. Raises PrerequisiteError."""
    hypervisor = op.hypervisor or reserved.hypervisor or cluster["enabled_hypervisors"][0]
    check_hypervisor(cluster, hypervisor)
    system = op.os_type or reserved.os
    hvparams = check_hypervisor_parameters(cluster, hypervisor, system, reserved.hypervisor_parameters, op.hvparams)
    disks = reserved.disks
    if op.disks is not None:
        disks = [new_disk(disk) for disk in op.disks]
    template = op.disk_template or reserved.template
    check_template(cluster, template)
    return replace(
        reserved,
        os=system,
        hypervisor=hypervisor,
        template=template,
        backend={**reserved.backend, **op.beparams.values()},
        hypervisor_parameters=hvparams,
        os_parameters={**reserved.os_parameters, **op.osparams},
        disks=disks,
    )


def _check_complete(op: InstanceCreate, record: Record, wanted: Configuration) -> None:
    """Raises PrerequisiteError that names the values which a real instance needs, and this one lacks."""
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
    """Claim the additional resources on the reserved nodes, or choose nodes if there are none yet."""
    record, uuid, template = task.record, task.instance.uuid, after.template or "diskless"
    if record["node"] is None:
        wanted = Wanted(op.pnode, op.snode, op.group_name)
        return take_places(task.connection, uuid, demand_of_instance(after, cluster), wanted, template)
    reserved = {"pnode": record["node"], "snode": before.secondary}
    for name, node in reserved.items():
        given = getattr(op, name)
        if given is not None and (node is None or node_called(task.connection, given).name != node):
            text = f"The reservation has {name} {node}, so it cannot be made real on '{given}'"
            raise PrerequisiteError(text, Reason.WRONG_INPUT)
    if before.secondary is not None and template in MIRRORED:
        usable_node(task.connection, before.secondary, is_primary=False)
    primary = usable_node(task.connection, record["node"], is_primary=True)
    return change_places(task.connection, uuid, primary, before, after, cluster=cluster)


def reserve_again(task: Task) -> None:
    """Turn an instance whose creation failed back into its reservation."""
    task.instance.change(
        "reservation.commit.error",
        {**task.notes["reserved"], "vm_state": "building", "task_state": None, "power_state": NO_STATE},
        task.now,
        request=task.job.request,
    )
    mark_forthcoming(task.connection, task.instance.uuid, is_forthcoming=True)
