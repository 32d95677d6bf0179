"""OP_INSTANCE_PLACE: change all nodes of a reservation in one step (contracts/ganeti-reservations, 8).

An operation of Fleetlight, since Ganeti changes one node at a time. It calls no node, since nodes have no reservations.
"""

from dataclasses import replace

from fleetlight.cells.kinds.native.items.cluster import read_parameters
from fleetlight.manager.operations.jobs.errors import PrerequisiteError, Reason
from fleetlight.manager.operations.jobs.vocabulary import Operation, Step, Task
from fleetlight.manager.operations.opcodes.building import instance_lock, operation
from fleetlight.manager.operations.opcodes.instance_parameters import MIRRORED
from fleetlight.manager.operations.opcodes.instances.checks import known_instance
from fleetlight.manager.operations.opcodes.instances.configuration import configuration_of
from fleetlight.manager.operations.opcodes.instances.node_claims import (
    Wanted,
    demand_of_instance,
    node_called,
    take_places,
)
from fleetlight.manager.operations.opcodes.opcode import InstanceOpCode
from fleetlight.manager.operations.scheduling.allocations import release_except


class InstancePlace(InstanceOpCode):
    """Place a reservation. secondary_node: for mirrored disks only."""

    OP_ID = "OP_INSTANCE_PLACE"

    primary_node: str
    secondary_node: str | None = None


def _check(op: InstancePlace, task: Task) -> None:
    record = known_instance(op, task)
    if not record["forthcoming"]:
        text = f"Instance '{op.instance_name}' is no reservation: it is moved by migration or failover"
        raise PrerequisiteError(text, Reason.WRONG_STATE)
    if (configuration_of(record).template in MIRRORED) != (op.secondary_node is not None):
        text = f"Instance '{op.instance_name}': mirrored disks need a secondary node, and others have none"
        raise PrerequisiteError(text, Reason.WRONG_INPUT)


def _is_elsewhere(task: Task) -> bool:
    op = InstancePlace.read(task.parameters)
    wanted = (op.primary_node, op.secondary_node)
    return (task.record["node"], configuration_of(task.record).secondary) != wanted


def _place(task: Task) -> None:
    """Replace the claims by those of the new nodes. Raises PrerequisiteError, without changes, if there is no room."""
    record, uuid = task.record, task.instance.uuid
    configuration = configuration_of(record)
    cluster = read_parameters(task.connection)
    template = configuration.template or "diskless"
    release_except(task.connection, uuid, None)
    op = InstancePlace.read(task.parameters)
    wanted = Wanted(primary=op.primary_node, secondary=op.secondary_node)
    demand = demand_of_instance(configuration, cluster)
    found = take_places(task.connection, uuid, demand, wanted, template, is_forthcoming=True)
    node = node_called(task.connection, found.primary.name)
    placed = {"host": node.host, "node": node.name, "availability_zone": node.zone}
    if record["ganeti"] is not None:
        secondary = None if found.secondary is None else found.secondary.name
        placed |= replace(configuration, secondary=secondary).values(cluster, is_forthcoming=True)
    task.instance.change("reservation.move.end", placed, task.now, request=task.job.request)


PLACE: tuple[tuple[str, Operation], ...] = (
    operation(InstancePlace, _check, Step(_place, _is_elsewhere), locks=instance_lock),
)
