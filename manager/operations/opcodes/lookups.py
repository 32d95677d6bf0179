"""Nodes, groups and networks of a cell by the names that operations use (contracts/ganeti-rapi, 4).

A node is found by its name in any case, or by what begins it up to a dot if that begins no other; a group and a network
by its name or its uuid.
"""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Row, Table, func, or_, select

from fleetlight.cells.tables import compute_nodes, networks, node_groups
from fleetlight.manager.operations.jobs.errors import PrerequisiteError, Reason
from fleetlight.manager.operations.jobs.vocabulary import Task


def nodes_called(connection: Connection, name: str) -> Sequence[Row[Any]]:
    """The rows of the nodes that `name` may mean."""
    written = func.lower(compute_nodes.c.hypervisor_hostname)
    wanted = name.lower()
    is_whole, is_begun = written == wanted, written.startswith(f"{wanted}.", autoescape=True)
    found = connection.execute(select(compute_nodes).where(or_(is_whole, is_begun))).all()
    whole = [row for row in found if row.hypervisor_hostname.lower() == wanted]
    return whole or found


def groups_called(connection: Connection, name: str) -> Sequence[Row[Any]]:
    """The row of the group with this name or uuid, if there is one."""
    return _called(connection, node_groups, name)


def networks_called(connection: Connection, name: str) -> Sequence[Row[Any]]:
    """The row of the network with this name or uuid, if there is one."""
    return _called(connection, networks, name)


def known_node(task: Task, name: str) -> Row[Any]:
    """Raises PrerequisiteError for a name of no node, or of several."""
    found = nodes_called(task.connection, name)
    if len(found) != 1:
        raise PrerequisiteError(f"Node '{name}' not known", Reason.UNKNOWN)
    return found[0]


def known_group(task: Task, name: str) -> Row[Any]:
    """Raises PrerequisiteError."""
    found = groups_called(task.connection, name)
    if not found:
        raise PrerequisiteError(f"Node group '{name}' not found", Reason.UNKNOWN)
    return found[0]


def known_network(task: Task, name: str) -> Row[Any]:
    """Raises PrerequisiteError."""
    found = networks_called(task.connection, name)
    if not found:
        raise PrerequisiteError(f"Network '{name}' not found", Reason.UNKNOWN)
    return found[0]


def _called(connection: Connection, table: Table, name: str) -> Sequence[Row[Any]]:
    """Locked until the transaction ends: what follows from the row is written in the same one."""
    found = connection.execute(
        select(table).where(or_(table.c.name == name, table.c.uuid == name)).with_for_update()
    ).all()
    return sorted(found, key=lambda row: row.name != name)
