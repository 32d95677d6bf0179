"""Announcements of changes of a native cell's nodes.

A node changes with its row, its service, its group, the cell's parameters, and observations of it. Code that writes one
of these calls `announce_changed_nodes` in the same transaction, which locks the rows of the nodes before it reads them,
so that their revisions are in commit order.
"""

from collections.abc import Collection, Sequence

from sqlalchemy import ColumnElement, Connection, select, update

from fleetlight.cells.batched import batched
from fleetlight.cells.kinds.native.items.stored_nodes import StoredNode, read_stored_nodes
from fleetlight.cells.kinds.native.outbox import append_event
from fleetlight.cells.payloads.node_payload import to_payload
from fleetlight.cells.tables import compute_nodes
from fleetlight.notifications.event_types import HYPERVISOR_CREATE, HYPERVISOR_DELETE, HYPERVISOR_UPDATE

_AT_ONCE = 500


def announce_new_nodes(connection: Connection, ids: Collection[int], now: int) -> None:
    """Announce nodes that this transaction has added. now: microseconds. Raises PayloadError."""
    for part in batched(sorted(ids), _AT_ONCE):
        _announce(connection, HYPERVISOR_CREATE, read_stored_nodes(connection, compute_nodes.c.id.in_(part)), now)


def announce_changed_nodes(connection: Connection, now: int, *conditions: ColumnElement[bool]) -> None:
    """Announce the nodes that match `conditions`, on `compute_nodes` only, as changed in this transaction.

    now: microseconds. Raises PayloadError.
    """
    for part in _lock(connection, conditions):
        _raise_revisions(connection, part)
        _announce(connection, HYPERVISOR_UPDATE, read_stored_nodes(connection, compute_nodes.c.id.in_(part)), now)


def announce_removed_nodes(connection: Connection, now: int, *conditions: ColumnElement[bool]) -> None:
    """As `announce_changed_nodes`, for nodes that this transaction is about to remove. Raises PayloadError."""
    for part in _lock(connection, conditions):
        _raise_revisions(connection, part)
        removed = read_stored_nodes(connection, compute_nodes.c.id.in_(part))
        _announce(connection, HYPERVISOR_DELETE, removed, now, deleted_at=now)


def _lock(connection: Connection, conditions: Sequence[ColumnElement[bool]]) -> Sequence[Sequence[int]]:
    """Lock the rows in the order in which claims lock them; returns their numbers, in parts."""
    ids = select(compute_nodes.c.id).where(*conditions).order_by(compute_nodes.c.id).with_for_update()
    return list(batched(connection.scalars(ids).all(), _AT_ONCE))


def _raise_revisions(connection: Connection, ids: Sequence[int]) -> None:
    columns = compute_nodes.c
    connection.execute(update(compute_nodes).where(columns.id.in_(ids)).values(revision=columns.revision + 1))


def _announce(
    connection: Connection, event_type: str, nodes: Sequence[StoredNode], now: int, deleted_at: int | None = None
) -> None:
    for node in nodes:
        append_event(
            connection,
            event_type,
            to_payload(node.record, deleted_at=deleted_at),
            publisher_id=f"nova-compute:{node.record['host']}",
            at=now,
            revision=node.revision,
        )
