"""Creation of the row of an instance or reservation, with its claims and addresses."""

from dataclasses import replace
from typing import Any

from fleetlight.cells.fleet.fleet import InstanceMapping
from fleetlight.cells.kinds.native import outbox
from fleetlight.cells.kinds.native.instance_rows import add_rows
from fleetlight.cells.kinds.native.items.cluster import read_parameters
from fleetlight.cells.model import FIRST_REVISION, InstanceRow
from fleetlight.manager.operations.actions.new_instance import new_record
from fleetlight.manager.operations.jobs.errors import PrerequisiteError, Reason
from fleetlight.manager.operations.jobs.vocabulary import Task
from fleetlight.manager.operations.opcodes.instance_parameters import MIRRORED
from fleetlight.manager.operations.opcodes.instances.checks import (
    check_host_name,
    check_hypervisor,
    check_hypervisor_parameters,
    check_name_is_free,
    check_system,
    check_template,
)
from fleetlight.manager.operations.opcodes.instances.configuration import Configuration, new_disk
from fleetlight.manager.operations.opcodes.instances.create_parameters import InstanceCreate
from fleetlight.manager.operations.opcodes.instances.interfaces import take_interfaces
from fleetlight.manager.operations.opcodes.instances.node_claims import Places, Wanted, demand_of_instance, take_places
from fleetlight.manager.operations.opcodes.instances.policy import check_policy
from fleetlight.manager.operations.opcodes.instances.reservation_expiries import set_expiry
from fleetlight.manager.operations.opcodes.parameter_values import check_memory
from fleetlight.manager.operations.opcodes.tags import check_tags
from fleetlight.resources.power_states import NO_STATE
from fleetlight.resources.query_fields.cluster_parameters import DEFAULT, Parameters, filled
from fleetlight.resources.units import MICROSECONDS_PER_SECOND


def add_instance(op: InstanceCreate, task: Task, uuid: str | None) -> Places | None:
    """Add an instance; returns its nodes, or None for a reservation without. Raises PrerequisiteError, LookupError."""
    if uuid is None:
        raise LookupError("a job that makes an instance has its uuid")
    cluster = read_parameters(task.connection)
    if op.instance_name is not None:
        check_host_name(op.instance_name)
        check_name_is_free(task, op.instance_name, uuid)
    check_tags(op.tags)
    check_system(task, op.os_type, op.osparams, op.osparams_private, op.osparams_secret)
    configuration = _configuration(op, cluster)
    places = _places(op, task, uuid, configuration, cluster)
    group = None if places is None else places.primary.group_uuid
    if not op.ignore_ipolicy:
        # A reservation may get its interfaces later.
        nic_count = None if op.forthcoming and not op.nics else len(op.nics or ())
        check_policy(task.connection, configuration, cluster, group, nic_count=nic_count)
    nics = take_interfaces(task.connection, uuid, op.nics or (), mac_prefix=cluster["mac_prefix"], group_uuid=group)
    secondary = None if places is None or places.secondary is None else places.secondary.name
    configuration = replace(configuration, nics=nics, secondary=secondary)
    _add_row(op, task, uuid, configuration.values(cluster, is_forthcoming=op.forthcoming), places)
    return places


def _configuration(op: InstanceCreate, cluster: Parameters) -> Configuration:
    """Return the requested configuration, without nodes and addresses. Raises PrerequisiteError."""
    hypervisor = op.hypervisor or (None if op.forthcoming else cluster["enabled_hypervisors"][0])
    check_hypervisor(cluster, hypervisor)
    hvparams = check_hypervisor_parameters(cluster, hypervisor, op.os_type, {}, op.hvparams)
    template = op.disk_template
    if template is None and (op.disks or not op.forthcoming):
        template = cluster["enabled_disk_templates"][0] if op.disks else "diskless"
    check_template(cluster, template)
    if not op.forthcoming and not op.os_type and not op.no_install:
        raise PrerequisiteError("No guest OS or OS image specified", Reason.WRONG_INPUT)
    check_memory(filled(cluster["beparams"][DEFAULT], op.beparams.values()))
    return Configuration(
        os=op.os_type,
        hypervisor=hypervisor,
        template=template,
        backend=op.beparams.values(),
        hypervisor_parameters=hvparams,
        os_parameters=op.osparams,
        disks=[new_disk(disk) for disk in op.disks or ()],
    )


def _places(
    op: InstanceCreate, task: Task, uuid: str, configuration: Configuration, cluster: Parameters
) -> Places | None:
    """Claim nodes for the instance; returns None for a reservation without resources. Raises PrerequisiteError."""
    says_nothing = not (op.disks or op.beparams.values() or op.pnode or op.iallocator or op.group_name)
    if op.forthcoming and says_nothing:
        return None
    wanted = Wanted(op.pnode, op.snode, op.group_name, is_temporary=op.opportunistic_locking)
    demand = demand_of_instance(configuration, cluster)
    if configuration.template in MIRRORED and op.pnode is not None and op.snode is None:
        raise PrerequisiteError("The networked disk templates need a mirror node", Reason.WRONG_INPUT)
    template = configuration.template or "diskless"
    return take_places(task.connection, uuid, demand, wanted, template, is_forthcoming=op.forthcoming)


def _add_row(op: InstanceCreate, task: Task, uuid: str, values: dict[str, Any], places: Places | None) -> None:
    """Add the row of the instance, its mapping and its announcement."""
    request = task.job.request
    record = new_record(
        {
            **values,
            "uuid": uuid,
            "display_name": op.instance_name,
            "project_id": request.project_id,
            "user_id": request.user_id,
            "tags": sorted(set(op.tags)),
            "image_ref": "",
            "host": None if places is None else places.primary.host,
            "node": None if places is None else places.primary.name,
            "availability_zone": None if places is None else places.primary.zone,
            "vm_state": "building",
            "task_state": None if op.forthcoming else "spawning",
            "power_state": NO_STATE,
            "launched_at": None,
            "launched_on": None,
        },
        task.now,
    )
    row = InstanceRow(task.cell.uuid, FIRST_REVISION, record)
    if not op.dry_run:
        # The mapping comes before the commit, since no API finds an instance without one.
        task.fleet.add_mappings([InstanceMapping.of(row, task.now)])
    add_rows(task.connection, [row])
    event_type = "reservation.create.end" if op.forthcoming else "instance.create.start"
    outbox.append(task.connection, outbox.announcements(task.cell, event_type, [row], task.now, request=request))
    if op.expires_at is not None:
        set_expiry(task.connection, uuid, op.expires_at * MICROSECONDS_PER_SECOND)
