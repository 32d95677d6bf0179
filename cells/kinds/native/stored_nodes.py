"""The nodes of a native cell as they are stored (fleetlight.resources.node), and the announcement of each change of
one.

A node changes with its row, its service, its group, the parameters of the cell, and what it was found to be. What
writes one of these calls `announce_changed_nodes` in the same transaction: the rows of the nodes are locked there, so
that their revisions are in commit order, and read after that.
"""

from collections.abc import Collection, Sequence
from typing import Any

import msgspec
from sqlalchemy import ColumnElement, Connection, RowMapping, and_, select, update

from fleetlight.cells.batched import batched
from fleetlight.cells.kinds.native.items.cluster import read_parameters
from fleetlight.cells.kinds.native.items.json_columns import as_text, decoded_or, is_number
from fleetlight.cells.kinds.native.outbox import append_event
from fleetlight.cells.model import ItemRow
from fleetlight.cells.tables import compute_nodes, node_groups, observed_statuses, services
from fleetlight.notifications.errors import PayloadError
from fleetlight.notifications.event_types import HYPERVISOR_CREATE, HYPERVISOR_DELETE, HYPERVISOR_UPDATE
from fleetlight.notifications.payloads.fleetlight import HypervisorPayload
from fleetlight.resources.cluster_parameters import Parameters
from fleetlight.resources.fields import Record, from_microseconds, to_microseconds
from fleetlight.resources.node import NODE_FIELDS
from fleetlight.resources.query_fields.definitions import CellStatus

OBSERVED_NODE = "node"
"""The kind of the rows of `observed_statuses` that are about nodes."""

_AT_ONCE = 500
_OF_SERVICE = services.c.id == compute_nodes.c.service_id
_TIMES = ("created_at", "updated_at", "status_since")


class StoredNode(msgspec.Struct, frozen=True):
    """id: of the row. revision: +1 with each change, assigned under the row lock. record: of
    fleetlight.resources.node.
    """

    id: int
    revision: int
    record: Record


def node_parameters(cluster: Parameters, of_group: Parameters, of_node: Parameters) -> Parameters:
    """The parameters of a node with what its group, and then the cell, fill in."""
    return {**cluster["ndparams"], **of_group, **of_node}


def read_stored_nodes(connection: Connection, *conditions: ColumnElement[bool]) -> Sequence[StoredNode]:
    """Every node that fulfils the conditions on `compute_nodes` and `services`, in the order in which they joined."""
    columns = compute_nodes.c
    observed = observed_statuses.c
    is_observed = and_(observed.kind == OBSERVED_NODE, observed.name == columns.hypervisor_hostname)
    statement = (
        select(
            columns.id,
            columns.revision,
            columns.uuid,
            columns.hypervisor_hostname,
            services.c.host,
            columns.host_ip,
            columns.secondary_ip,
            columns.agent_address,
            node_groups.c.name.label("group"),
            node_groups.c.uuid.label("group_uuid"),
            services.c.forced_down,
            services.c.disabled,
            columns.master_candidate,
            columns.master_capable,
            columns.vm_capable,
            as_text(columns.ndparams),
            as_text(node_groups.c.ndparams).label("ndparams_of_group"),
            columns.vcpus,
            columns.memory_mib,
            columns.disk_gib,
            as_text(columns.tags),
            columns.serial_no,
            columns.created_at,
            columns.updated_at,
            services.c.updated_at.label("service_updated_at"),
            observed.status,
            observed.observed_at,
        )
        .join_from(compute_nodes, services, _OF_SERVICE)
        .outerjoin(node_groups, node_groups.c.uuid == columns.group_uuid)
        .outerjoin(observed_statuses, is_observed)
        .where(*conditions)
        .order_by(columns.id)
    )
    cluster = read_parameters(connection)
    return [StoredNode(row.id, row.revision, _record(row._mapping, cluster)) for row in connection.execute(statement)]


def announce_new_nodes(connection: Connection, ids: Collection[int], now: int) -> None:
    """Announce nodes that this transaction has added. now: microseconds. Raises PayloadError."""
    for part in batched(sorted(ids), _AT_ONCE):
        _announce(connection, HYPERVISOR_CREATE, read_stored_nodes(connection, compute_nodes.c.id.in_(part)), now)


def announce_changed_nodes(connection: Connection, now: int, *conditions: ColumnElement[bool]) -> None:
    """Announce that nodes have changed in this transaction: those that fulfil conditions on `compute_nodes` alone.

    now: microseconds. Raises PayloadError.
    """
    for part in _lock(connection, conditions):
        _raise_revisions(connection, part)
        _announce(connection, HYPERVISOR_UPDATE, read_stored_nodes(connection, compute_nodes.c.id.in_(part)), now)


def announce_removed_nodes(connection: Connection, now: int, *conditions: ColumnElement[bool]) -> None:
    """As `announce_changed_nodes`, of nodes that this transaction removes after that."""
    for part in _lock(connection, conditions):
        _raise_revisions(connection, part)
        removed = read_stored_nodes(connection, compute_nodes.c.id.in_(part))
        _announce(connection, HYPERVISOR_DELETE, removed, now, deleted_at=now)


def to_payload(stored: Record, *, deleted_at: int | None = None) -> HypervisorPayload:
    """The payload of a stored node. Raises PayloadError where a damaged row has what the contract does not allow."""
    times = {name: _moment(stored[name]) for name in _TIMES}
    deleted = {"deleted": deleted_at is not None, "deleted_at": _moment(deleted_at)}
    return HypervisorPayload(**{**stored, **times, **deleted})


def from_payload(payload: HypervisorPayload) -> Record:
    """The stored node, with whether and when it was deleted."""
    record: dict[str, Any] = {name: getattr(payload, name) for name in (*NODE_FIELDS, "deleted", "deleted_at")}
    for name in (*_TIMES, "deleted_at"):
        if record[name] is not None:
            record[name] = to_microseconds(record[name])
    return record


def read_node_rows(connection: Connection) -> Sequence[ItemRow]:
    """Every node as its announcement would tell of it."""
    return [_item_row(node) for node in read_stored_nodes(connection)]


def _item_row(node: StoredNode) -> ItemRow:
    uuid = node.record["uuid"]
    try:
        return ItemRow(uuid, node.revision, from_payload(to_payload(node.record)))
    except PayloadError as error:
        return ItemRow(uuid, node.revision, None, str(error))


def _moment(value: int | None) -> Any:
    return None if value is None or isinstance(value, CellStatus) else from_microseconds(value)


def _lock(connection: Connection, conditions: Sequence[ColumnElement[bool]]) -> Sequence[Sequence[int]]:
    """The numbers of the rows, in parts, locked in the order in which claims lock them."""
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


def _record(row: RowMapping, cluster: Parameters) -> Record:
    own = decoded_or(row["ndparams"], {})
    return {
        **{name: row[name] for name in _AS_THEY_ARE},
        "offline": row["forced_down"],
        "drained": row["disabled"],
        "ndparams": node_parameters(cluster, decoded_or(row["ndparams_of_group"], {}), own),
        "custom_ndparams": own,
        "tags": decoded_or(row["tags"], []),
        "updated_at": _latest(row["updated_at"], row["created_at"], row["service_updated_at"]),
        "status_since": row["observed_at"],
    }


_COMPUTED = frozenset({"offline", "drained", "ndparams", "custom_ndparams", "tags", "updated_at", "status_since"})
_AS_THEY_ARE = [name for name in NODE_FIELDS if name not in _COMPUTED]


def _latest(*moments: int | None) -> int:
    """The last of some times; CellStatus.NO_DATA, which is a number too, where there is none."""
    return max((moment for moment in moments if moment is not None and is_number(moment)), default=CellStatus.NO_DATA)
