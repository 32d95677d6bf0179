"""Differences between reports of nodes and the rows of their cell, stored so that each change is announced once."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from sqlalchemy import Connection, delete, insert, select, update

from fleetlight.cells.kinds.native import outbox
from fleetlight.cells.kinds.native.items.stored_nodes import OBSERVED_NODE
from fleetlight.cells.model import Cell
from fleetlight.cells.tables import compute_nodes, instances, job_operations, observed_statuses
from fleetlight.manager.operations.hosts.node_announcements import announce_changed_nodes
from fleetlight.notifications.event_types import INSTANCE_STATUS_UPDATE, NODE_STATUS_UPDATE
from fleetlight.notifications.payloads.fleetlight import InstanceStatusPayload, NodeStatusPayload
from fleetlight.notifications.versioned import VersionedPayload
from fleetlight.resources.fields import from_microseconds

NodeStatus = Literal["up", "down", "offline"]
NODE_UP: NodeStatus = "up"
NODE_DOWN: NodeStatus = "down"
NODE_OFFLINE: NodeStatus = "offline"

_NODE_STATUSES: Mapping[str, NodeStatus] = {each: each for each in (NODE_UP, NODE_DOWN, NODE_OFFLINE)}
_NODE, _INSTANCE = OBSERVED_NODE, "instance"
# Largest number of placeholders in one statement.
_AT_ONCE = 500


@dataclass(frozen=True, slots=True)
class Observation:
    """The result of asking nodes; JSON.

    results: for the job, [node, ok, text] each. nodes: by name, the status, and why the node does not answer.
    instances: by uuid, `revision`, `is_wrong`, `status` and the evidence, for each that is wrong now or was before.
    is_of_all: whether all nodes with an agent were asked.
    """

    results: Sequence[Sequence[Any]]
    nodes: Mapping[str, tuple[NodeStatus, str | None]] = field(default_factory=dict)
    instances: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    is_of_all: bool = False

    def to_json(self) -> Mapping[str, Any]:
        return asdict(self)


def read_known_instances(connection: Connection) -> Collection[str]:
    """Read the uuids of the instances that were wrong at the last observation."""
    return set(_known(connection, _INSTANCE))


class Differences:
    """Stores changes since the last observation, in the transaction of `connection`, and announces them."""

    def __init__(self, connection: Connection, cell: Cell, now: int) -> None:
        self._connection = connection
        self._cell = cell
        self._now = now

    def note(self, found: Observation) -> None:
        self._note_nodes(found)
        self._note_instances(found)

    def _note_nodes(self, found: Observation) -> None:
        known = _known(self._connection, _NODE)
        changed: set[str] = set()
        for name, (status, reason) in found.nodes.items():
            before = _NODE_STATUSES.get(known.get(name, NODE_UP), NODE_UP)
            if status == before:
                continue
            self._keep(_NODE, name, None if status == NODE_UP else status, is_known=name in known)
            self._announce(
                NODE_STATUS_UPDATE,
                NodeStatusPayload(
                    cell_uuid=self._cell.uuid,
                    node=name,
                    status=status,
                    previous_status=before,
                    reason=reason,
                    at=from_microseconds(self._now),
                ),
            )
            changed.add(name)
        if found.is_of_all:
            changed |= (gone := known.keys() - found.nodes.keys())
            self._forget(_NODE, gone)
        for part in _parts(changed):
            announce_changed_nodes(self._connection, self._now, compute_nodes.c.hypervisor_hostname.in_(part))

    def _note_instances(self, found: Observation) -> None:
        known = _known(self._connection, _INSTANCE)
        unchanged = self._unchanged(found.instances)
        for uuid in sorted(unchanged):
            each = found.instances[uuid]
            status, before = each["status"], known.get(uuid)
            if (status if each["is_wrong"] else None) == before:
                continue
            self._keep(_INSTANCE, uuid, status if each["is_wrong"] else None, is_known=before is not None)
            self._announce(
                INSTANCE_STATUS_UPDATE,
                InstanceStatusPayload(
                    cell_uuid=self._cell.uuid,
                    uuid=uuid,
                    tenant_id=each["project_id"],
                    display_name=each["display_name"],
                    node=each["node"],
                    status=status,
                    previous_status=before,
                    at=from_microseconds(self._now),
                ),
            )
        self._forget(_INSTANCE, known.keys() - self._observable(known))

    def _unchanged(self, seen: Mapping[str, Mapping[str, Any]]) -> Collection[str]:
        """Return the instances that have not changed, and are not changing, since before their nodes were asked."""
        found: set[str] = set()
        for uuids in _parts(seen):
            rows = self._connection.execute(
                select(instances.c.uuid, instances.c.revision).where(instances.c.uuid.in_(uuids))
            )
            found |= {row.uuid for row in rows if row.revision == seen[row.uuid]["revision"]}
            columns = job_operations.c
            busy = select(columns.instance_uuid).where(columns.instance_uuid.in_(uuids), columns.ended_at.is_(None))
            found -= set(self._connection.scalars(busy))
        return found

    def _observable(self, known: Mapping[str, str]) -> Collection[str]:
        """Return the existing instances on nodes with an agent."""
        found: set[str] = set()
        of_node = compute_nodes.c.hypervisor_hostname == instances.c.node
        for uuids in _parts(known):
            statement = (
                select(instances.c.uuid)
                .join_from(instances, compute_nodes, of_node)
                .where(instances.c.uuid.in_(uuids), instances.c.deleted.is_(False))
                .where(compute_nodes.c.agent_address.is_not(None))
            )
            found |= set(self._connection.scalars(statement))
        return found

    def _keep(self, kind: str, name: str, status: str | None, *, is_known: bool) -> None:
        if status is None:
            self._forget(kind, [name])
            return
        columns = observed_statuses.c
        values = {"status": status, "observed_at": self._now}
        if is_known:
            of_it = (columns.kind == kind, columns.name == name)
            self._connection.execute(update(observed_statuses).where(*of_it).values(values))
        else:
            self._connection.execute(insert(observed_statuses).values(kind=kind, name=name, **values))

    def _forget(self, kind: str, names: Collection[str]) -> None:
        columns = observed_statuses.c
        for part in _parts(names):
            self._connection.execute(delete(observed_statuses).where(columns.kind == kind, columns.name.in_(part)))

    def _announce(self, event_type: str, payload: VersionedPayload) -> None:
        publisher_id = f"fleetlight-cell:{self._cell.name}"
        outbox.append_event(self._connection, event_type, payload, publisher_id=publisher_id, at=self._now)


def _known(connection: Connection, kind: str) -> Mapping[str, str]:
    columns = observed_statuses.c
    rows = connection.execute(select(columns.name, columns.status).where(columns.kind == kind))
    return {row.name: row.status for row in rows}


def _parts(names: Collection[str]) -> Sequence[Sequence[str]]:
    ordered = sorted(names)
    return [ordered[begin : begin + _AT_ONCE] for begin in range(0, len(ordered), _AT_ONCE)]
