"""The nodes of a native cell as they are stored (fleetlight.resources.node).

fleetlight.manager.operations.hosts.node_announcements announces each change of one.
"""

from collections.abc import Sequence

import msgspec
from sqlalchemy import ColumnElement, Connection, RowMapping, and_, select

from fleetlight.cells.kinds.native.items.cluster import read_parameters
from fleetlight.cells.kinds.native.items.json_columns import as_text, decoded_or, is_number
from fleetlight.cells.model import ItemRow
from fleetlight.cells.payloads.node_payload import from_payload, to_payload
from fleetlight.cells.tables import compute_nodes, node_groups, observed_statuses, services
from fleetlight.notifications.errors import PayloadError
from fleetlight.resources.fields import Record
from fleetlight.resources.node import NODE_FIELDS
from fleetlight.resources.query_fields.cluster_parameters import Parameters
from fleetlight.resources.query_fields.definitions import ResultStatus

OBSERVED_NODE = "node"
"""The kind of the rows of `observed_statuses` that are about nodes."""

_OF_SERVICE = services.c.id == compute_nodes.c.service_id


class StoredNode(msgspec.Struct, frozen=True):
    """A node. id: of the row. revision: +1 with each change, assigned under the row lock. record: as in
    fleetlight.resources.node.
    """

    id: int
    revision: int
    record: Record


def node_parameters(cluster: Parameters, of_group: Parameters, of_node: Parameters) -> Parameters:
    """The parameters of a node, with missing ones from its group, then from the cell."""
    return {**cluster["ndparams"], **of_group, **of_node}


def read_stored_nodes(connection: Connection, *conditions: ColumnElement[bool]) -> Sequence[StoredNode]:
    """The nodes that fulfil the conditions on `compute_nodes` and `services`, in the order in which they joined."""
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
        .join(node_groups, node_groups.c.uuid == columns.group_uuid)
        .outerjoin(observed_statuses, is_observed)
        .where(*conditions)
        .order_by(columns.id)
    )
    cluster = read_parameters(connection)
    return [StoredNode(row.id, row.revision, _record(row._mapping, cluster)) for row in connection.execute(statement)]


def read_node_rows(connection: Connection) -> Sequence[ItemRow]:
    """Every node as its announcement would carry it."""
    return [_item_row(node) for node in read_stored_nodes(connection)]


def _item_row(node: StoredNode) -> ItemRow:
    uuid = node.record["uuid"]
    try:
        return ItemRow(uuid, node.revision, from_payload(to_payload(node.record)))
    except PayloadError as error:
        return ItemRow(uuid, node.revision, None, str(error))


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
    """The latest of some times; ResultStatus.NO_DATA, which is a number, too, if there is none."""
    return max((moment for moment in moments if moment is not None and is_number(moment)), default=ResultStatus.NO_DATA)
