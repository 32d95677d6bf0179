"""Lookups of nodes, groups and networks by the names in operations (contracts/ganeti-rapi, 4).

Case does not matter in names of nodes, and the part of a name before a dot finds the node, if it is unique. Groups and
networks have a name and a uuid.
"""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Row, Table, func, or_, select

from fleetlight.cells.tables import compute_nodes, networks, node_groups
from fleetlight.manager.operations.jobs.errors import PrerequisiteError, Reason
from fleetlight.manager.operations.jobs.vocabulary import Task


def nodes_called(connection: Connection, name: str) -> Sequence[Row[Any]]:
    """Return the rows of the nodes that `name` may mean."""
    written = func.lower(compute_nodes.c.hypervisor_hostname)
    wanted = name.lower()
    is_whole, is_begun = written == wanted, written.startswith(f"{wanted}.", autoescape=True)
    found = connection.execute(select(compute_nodes).where(or_(is_whole, is_begun))).all()
    whole = [row for row in found if row.hypervisor_hostname.lower() == wanted]
    return whole or found


def groups_called(connection: Connection, name: str) -> Sequence[Row[Any]]:
    """Return the groups with this name or uuid, the one with the name first."""
    return _called(connection, node_groups, name)


def networks_called(connection: Connection, name: str) -> Sequence[Row[Any]]:
    """Return the networks with this name or uuid, the one with the name first."""
    return _called(connection, networks, name)


def known_node(task: Task, name: str) -> Row[Any]:
    """Return the row of a node. Raises PrerequisiteError if no node, or several, have this name."""
    found = nodes_called(task.connection, name)
    if len(found) != 1:
        raise PrerequisiteError(f"Node '{name}' not known", Reason.UNKNOWN)
    return found[0]


def known_group(task: Task, name: str) -> Row[Any]:
    """Return and lock the row of a group. Raises PrerequisiteError if there is none."""
    found = groups_called(task.connection, name)
    if not found:
        raise PrerequisiteError(f"Node group '{name}' not found", Reason.UNKNOWN)
    return found[0]


def known_network(task: Task, name: str) -> Row[Any]:
    """Return and lock the row of a network. Raises PrerequisiteError if there is none."""
    found = networks_called(task.connection, name)
    if not found:
        raise PrerequisiteError(f"Network '{name}' not found", Reason.UNKNOWN)
    return found[0]


def _called(connection: Connection, table: Table, name: str) -> Sequence[Row[Any]]:
    """Return rows, and lock them for the changes of the same transaction."""
    found = connection.execute(
        select(table).where(or_(table.c.name == name, table.c.uuid == name)).with_for_update()
    ).all()
    return sorted(found, key=lambda row: row.name != name)
