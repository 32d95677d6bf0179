"""Hosts of a cell with room for an amount, in the scheduler's order; and the release of programs' claims."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, Engine, delete, exists, select

from fleetlight.cells.database.engines import cell_failures, writing
from fleetlight.cells.model import Cell
from fleetlight.cells.tables import allocations, instances, node_traits
from fleetlight.manager.operations.scheduling.hosts import Host, HostQuery, read_best_hosts
from fleetlight.manager.operations.scheduling.request_spec import RequestSpec
from fleetlight.resources.amount import Amount


@dataclass(frozen=True, slots=True)
class HostCandidate:
    """A node with room, and its traits."""

    host: Host
    traits: Sequence[str]


def read_candidates(
    engine: Engine, cell: Cell, demand: Amount, spec: RequestSpec, *, limit: int
) -> Sequence[HostCandidate]:
    """Read the best nodes of a cell, at most `limit`. Raises CellUnreachableError."""
    with cell_failures(cell.name), engine.connect() as connection:
        hosts = read_best_hosts(connection, HostQuery(demand, spec), limit=limit)
        traits = _traits_of(connection, [host.node_id for host in hosts])
    return [HostCandidate(host, traits.get(host.node_id, ())) for host in hosts]


def release_claims(engine: Engine, cell: Cell, instance_uuid: str) -> bool:
    """Release a program's claims for an instance that does not exist; returns whether there were any.

    Claims of existing instances stay. Raises CellUnreachableError.
    """
    is_claim = allocations.c.instance_uuid == instance_uuid
    is_instance = exists().where(instances.c.uuid == instance_uuid)
    with cell_failures(cell.name), writing(engine) as connection:
        return connection.execute(delete(allocations).where(is_claim, ~is_instance)).rowcount > 0


def _traits_of(connection: Connection, node_ids: Sequence[int]) -> Mapping[int, Sequence[str]]:
    statement = select(node_traits).where(node_traits.c.node_id.in_(node_ids)).order_by(node_traits.c.trait)
    found: dict[int, list[str]] = {}
    for row in connection.execute(statement):
        found.setdefault(row.node_id, []).append(row.trait)
    return found
