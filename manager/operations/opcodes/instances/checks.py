"""Checks before operations on instances (contracts/ganeti-rapi, 5; contracts/ganeti-reservations, 7)."""

import re
from collections.abc import Collection
from typing import Protocol

from sqlalchemy import bindparam, select

from fleetlight.cells.database.locks import wait_for_lock
from fleetlight.cells.tables import compute_nodes, instances, operating_systems, services
from fleetlight.manager.operations.actions.steps import origin_in
from fleetlight.manager.operations.jobs.errors import PrerequisiteError, Reason
from fleetlight.manager.operations.jobs.vocabulary import Task
from fleetlight.manager.operations.opcodes.hypervisor_values import check_hypervisor_values
from fleetlight.manager.operations.opcodes.parameter_values import hypervisor_parameters
from fleetlight.resources.fields import Record
from fleetlight.resources.query_fields.cluster_parameters import DEFAULT, HYPERVISOR_GLOBALS, Parameters
from fleetlight.resources.query_fields.cluster_parameters import hypervisor_parameters as filled_hypervisor_parameters
from fleetlight.resources.query_fields.ganeti import is_offline
from fleetlight.resources.uuids import is_uuid

_HOST_NAME = re.compile(
    r"(?=.{1,253}$)[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?(\.[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?)*"
)

_NAME = "of_name"
_SYSTEM = select(operating_systems.c.variants, operating_systems.c.parameters).where(
    operating_systems.c.name == bindparam(_NAME)
)


class NamesInstance(Protocol):
    """An operation on one instance."""

    @property
    def instance_name(self) -> str | None: ...
    @property
    def instance_uuid(self) -> str | None: ...


def known_instance(op: NamesInstance, task: Task) -> Record:
    """Return the record of the operation's instance, and note its origin for later steps.

    Raises PrerequisiteError if the instance does not exist (any more), or has another uuid than the given one.
    """
    if task.about is None or task.record["deleted"]:
        raise PrerequisiteError(f"Instance '{op.instance_name}' not known", Reason.UNKNOWN)
    if op.instance_uuid not in {None, task.instance.uuid}:
        text = f"Instance '{op.instance_name}' has the UUID '{task.instance.uuid}', which does not match the expected"
        raise PrerequisiteError(f"{text} UUID '{op.instance_uuid}'", Reason.NOT_UNIQUE)
    record = task.record
    task.notes["origin"] = origin_in(record)
    return record


def real_instance(op: NamesInstance, task: Task) -> Record:
    """As `known_instance`. Raises PrerequisiteError for a reservation, too."""
    record = known_instance(op, task)
    if record["forthcoming"]:
        text = f"Instance '{op.instance_name}': forthcoming instances not supported for this operation"
        raise PrerequisiteError(text, Reason.WRONG_STATE)
    return record


def check_state(
    op: NamesInstance, record: Record, allowed: Collection[str], what: str, *, may_be_offline: bool = False
) -> None:
    """Raises PrerequisiteError unless the instance is on a node, in an allowed state. what: as in `be started`.

    may_be_offline: whether the operation is allowed for an instance that an operator has marked offline.
    """
    if not may_be_offline:
        check_online(op, record, what)
    state = record["vm_state"]
    if state not in allowed:
        text = f"Instance '{op.instance_name}' is in state '{state}' and cannot {what}"
        raise PrerequisiteError(text, Reason.WRONG_STATE)
    if record["node"] is None:
        raise PrerequisiteError(f"Instance '{op.instance_name}' is on no node, so it cannot {what}", Reason.WRONG_STATE)


def check_online(op: NamesInstance, record: Record, what: str) -> None:
    """Raises PrerequisiteError for an instance that an operator has marked offline. what: see `check_state`."""
    if is_offline(record):
        text = f"Instance '{op.instance_name}' is marked to be offline and cannot {what}; modify it to be online first"
        raise PrerequisiteError(text, Reason.WRONG_STATE)


def check_node_online(task: Task, node: str, *, may_be_drained: bool = True) -> None:
    """Raises PrerequisiteError for a node that is unknown, offline, or, unless `may_be_drained`, drained."""
    statement = (
        select(services.c.forced_down, services.c.disabled)
        .join_from(compute_nodes, services, services.c.id == compute_nodes.c.service_id)
        .where(compute_nodes.c.hypervisor_hostname == node)
    )
    row = task.connection.execute(statement).one_or_none()
    if row is None:
        raise PrerequisiteError(f"Node '{node}' not known", Reason.UNKNOWN)
    if row.forced_down:
        raise PrerequisiteError(f"Can't use offline node {node}", Reason.WRONG_STATE)
    if row.disabled and not may_be_drained:
        raise PrerequisiteError(f"Can't use drained node {node}", Reason.WRONG_STATE)


def check_name_is_free(task: Task, name: str, uuid: str) -> None:
    """Lock a name until the transaction ends. Raises PrerequisiteError if another instance of the cell has it."""
    wait_for_lock(task.connection, f"instance name {name}")
    columns = instances.c
    of_name = columns.display_name == name, columns.deleted.is_(False), columns.uuid != uuid
    if task.connection.execute(select(columns.uuid).where(*of_name).limit(1)).first() is not None:
        raise PrerequisiteError(f"Instance '{name}' is already in the cluster", Reason.EXISTS)


def check_system(task: Task, name: str | None, *parameters: Parameters | None) -> None:
    """Raises PrerequisiteError for an unknown operating system, or an unknown variant or parameter of it.

    parameters: given to the system; not checked if `name` is None.
    """
    if name is None:
        return
    base, _, variant = name.partition("+")
    row = task.connection.execute(_SYSTEM, {_NAME: base}).one_or_none()
    if row is None:
        raise PrerequisiteError(f"OS '{base}' not known in this cell", Reason.WRONG_INPUT)
    if variant and variant not in row.variants:
        raise PrerequisiteError(f"OS '{base}' has no variant '{variant}'", Reason.WRONG_INPUT)
    known = {parameter for parameter, _help in row.parameters}
    if unknown := sorted({parameter for given in parameters for parameter in given or ()} - known):
        raise PrerequisiteError(f"OS '{base}' has no parameter {', '.join(map(repr, unknown))}", Reason.WRONG_INPUT)


def check_template(cluster: Parameters, template: str | None) -> None:
    """Raises PrerequisiteError for a disk template that the cluster has not enabled."""
    if template not in {None, "diskless", *cluster["enabled_disk_templates"]}:
        enabled = ", ".join(cluster["enabled_disk_templates"])
        text = f"Disk template '{template}' is not enabled in cluster. Enabled disk templates are: {enabled}"
        raise PrerequisiteError(text, Reason.WRONG_STATE)


def check_hypervisor(cluster: Parameters, hypervisor: str | None) -> None:
    """Raises PrerequisiteError for a hypervisor that the cluster has not enabled."""
    if hypervisor not in {None, *cluster["enabled_hypervisors"]}:
        enabled = ", ".join(cluster["enabled_hypervisors"])
        text = f"Selected hypervisor ({hypervisor}) not enabled in the cluster ({enabled})"
        raise PrerequisiteError(text, Reason.WRONG_STATE)


def check_hypervisor_parameters(
    cluster: Parameters, hypervisor: str | None, system: str | None, own: Parameters, given: Parameters
) -> Parameters:
    """Merge `given` over the instance's own parameters; the word `default` removes one.

    Raises PrerequisiteError for a parameter that the hypervisor does not have, or has for all instances alike, and for
    values that are invalid, alone or together with the defaults and those of the operating system.
    """
    name = hypervisor or cluster["enabled_hypervisors"][0]
    wanted = {parameter: value for parameter, value in {**own, **given}.items() if value != DEFAULT}
    if unknown := sorted(wanted.keys() - cluster["hvparams"].get(name, {}).keys()):
        text = f"Hypervisor '{name}' has no parameter {', '.join(map(repr, unknown))}"
        raise PrerequisiteError(text, Reason.WRONG_INPUT)
    if of_all := sorted(wanted.keys() & HYPERVISOR_GLOBALS):
        text = f"Hypervisor '{name}' has {', '.join(map(repr, of_all))} for all instances alike: change the cluster"
        raise PrerequisiteError(text, Reason.WRONG_INPUT)
    own = hypervisor_parameters(name, {}, wanted)
    check_hypervisor_values(name, filled_hypervisor_parameters(cluster, name, system, own))
    return own


def check_host_name(name: str) -> None:
    """Raises PrerequisiteError for an invalid host name, and for a uuid (contracts/ganeti-reservations, 6)."""
    if not _HOST_NAME.fullmatch(name) or is_uuid(name):
        raise PrerequisiteError(f"'{name}' is no name of a host", Reason.WRONG_INPUT)
