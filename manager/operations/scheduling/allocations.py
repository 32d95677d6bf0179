"""Claims of instances on nodes: rows of `allocations`, written and removed in the transactions of their steps.

They alone decide what is claimed; a claim locks the node first (`hosts.py`).
"""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, delete, insert, select
from sqlalchemy.dialects import postgresql, sqlite

from fleetlight.cells.tables import SIZES, allocations, compute_nodes
from fleetlight.manager.operations.scheduling.request_spec import demand_of
from fleetlight.resources.amount import Amount
from fleetlight.resources.fields import Record
from fleetlight.resources.query_fields.ganeti import own_value

_RESIZED = "resized"


def _replacing(new: sqlite.Insert | postgresql.Insert) -> sqlite.Insert | postgresql.Insert:
    """Replace an existing claim, which may remain from a resize that ended with a reset of the state."""
    others = {name: new.excluded[name] for name in (*SIZES, "is_forthcoming")}
    return new.on_conflict_do_update(index_elements=list(allocations.primary_key), set_=others)


_ALLOCATE = {
    "sqlite": _replacing(sqlite.insert(allocations)),
    "postgresql": _replacing(postgresql.insert(allocations)),
}


def allocate(
    connection: Connection, instance_uuid: str, node_id: int, demand: Amount, *, is_forthcoming: bool = False
) -> None:
    """Claim `demand` of a locked node for an instance, and replace its earlier claim there."""
    allocate_each(connection, {instance_uuid: node_id}, demand, is_forthcoming=is_forthcoming)


def allocate_each(
    connection: Connection, node_ids: Mapping[str, int], demand: Amount, *, is_forthcoming: bool = False
) -> None:
    """As `allocate`, for several instances. node_ids: number of the locked node, by instance."""
    values = [
        {**_allocation(uuid, node_id, demand), "is_forthcoming": is_forthcoming} for uuid, node_id in node_ids.items()
    ]
    connection.execute(_ALLOCATE[connection.dialect.name], values)


def claimed_among(connection: Connection, instance_uuids: Sequence[str]) -> Sequence[str]:
    """Return the instances with claims in the cell, ordered by uuid."""
    columns = allocations.c
    known = select(columns.instance_uuid).where(columns.instance_uuid.in_(instance_uuids)).distinct()
    return connection.scalars(known.order_by(columns.instance_uuid)).all()


def release_except(connection: Connection, instance_uuid: str, *nodes: str | None) -> None:
    """Release the claims of an instance on all nodes except these."""
    statement = delete(allocations).where(allocations.c.instance_uuid == instance_uuid)
    names = [node for node in nodes if node is not None]
    if names:
        kept = select(compute_nodes.c.id).where(compute_nodes.c.hypervisor_hostname.in_(names))
        statement = statement.where(allocations.c.node_id.not_in(kept))
    connection.execute(statement)


def release(connection: Connection, instance_uuid: str, node: str) -> None:
    """Release the claim of an instance on `node`."""
    of_node = select(compute_nodes.c.id).where(compute_nodes.c.hypervisor_hostname == node)
    connection.execute(
        delete(allocations).where(allocations.c.instance_uuid == instance_uuid, allocations.c.node_id.in_(of_node))
    )


def give_back_claims(connection: Connection, record: Record) -> None:
    """Release the claims of an instance's unfinished action; a resized instance keeps both of its claims.

    An instance with mirrored disks also keeps the claim on its secondary node.
    """
    if record["vm_state"] != _RESIZED:
        secondaries: Sequence[str] = own_value(record, "snodes") or ()
        release_except(connection, record["uuid"], record["node"], *secondaries)


def allocate_on_their_nodes(connection: Connection, records: Sequence[Record]) -> None:
    """Claim the sizes of placed instances on their nodes."""
    names = {record["node"] for record in records if record["node"] is not None}
    statement = select(compute_nodes.c.hypervisor_hostname, compute_nodes.c.id).where(
        compute_nodes.c.hypervisor_hostname.in_(names)
    )
    ids = {row.hypervisor_hostname: row.id for row in connection.execute(statement)} if names else {}
    values = [
        _allocation(record["uuid"], ids[record["node"]], demand_of(record["flavor"]))
        for record in records
        if record["node"] in ids and not record["deleted"]
    ]
    if values:
        connection.execute(insert(allocations), values)


def _allocation(instance_uuid: str, node_id: int, demand: Amount) -> dict[str, Any]:
    return {
        "instance_uuid": instance_uuid,
        "node_id": node_id,
        "vcpus": demand.vcpus,
        "memory_mib": demand.memory_mib,
        "disk_gib": demand.disk_gib,
    }
