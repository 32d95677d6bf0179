"""Addresses of the agents of hosts of a native cell; hosts without one are simulated (docs/decisions/0022)."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, or_, select

from fleetlight.cells.tables import compute_nodes, services


@dataclass(frozen=True, slots=True)
class AgentAddress:
    """The address of a host's agent.

    host: its name in services and instances. node: its name in the certificate. address: HOST:PORT.
    is_offline: whether an operator has marked the node offline. is_vm_capable: whether it may have instances.
    """

    host: str
    node: str
    address: str
    is_offline: bool
    is_vm_capable: bool


def read_agents(connection: Connection, hosts: Collection[str] | None = None) -> Sequence[AgentAddress]:
    """The agents of a cell, ordered by node. hosts: only these, by name of the host, or name or uuid of the node."""
    node = compute_nodes.c.hypervisor_hostname
    wanted = (
        [] if hosts is None else [or_(*(column.in_(hosts) for column in (services.c.host, node, compute_nodes.c.uuid)))]
    )
    statement = (
        select(
            services.c.host,
            node,
            compute_nodes.c.agent_address,
            services.c.forced_down,
            compute_nodes.c.vm_capable,
        )
        .join_from(compute_nodes, services, services.c.id == compute_nodes.c.service_id)
        .where(compute_nodes.c.agent_address.is_not(None), *wanted)
        .order_by(node)
    )
    return [AgentAddress(*row) for row in connection.execute(statement)]
