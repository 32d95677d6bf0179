"""Which hosts of a native cell have an agent, and where it answers; the others are simulated (docs/decisions/0026)."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, Engine, or_, select, update

from fleetlight.cells.database.engines import cell_failures, writing
from fleetlight.cells.errors import HostNotFoundError
from fleetlight.cells.kinds.native.stored_nodes import announce_changed_nodes
from fleetlight.cells.model import Cell
from fleetlight.cells.tables import compute_nodes, services
from fleetlight.resources.clock import Clock, system_clock


@dataclass(frozen=True, slots=True)
class AgentAddress:
    """Where the agent of a host answers.

    host: as services and instances name it. node: as its certificate names it. address: HOST:PORT.
    is_offline: whether an operator has marked the node so. is_vm_capable: whether it may have instances.
    """

    host: str
    node: str
    address: str
    is_offline: bool
    is_vm_capable: bool


def read_agents(connection: Connection, hosts: Collection[str] | None = None) -> Sequence[AgentAddress]:
    """The agents of a cell by the names of their nodes, or those of some hosts, or nodes called so."""
    node = compute_nodes.c.hypervisor_hostname
    wanted = [] if hosts is None else [or_(services.c.host.in_(hosts), node.in_(hosts))]
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


class AgentAddresses:
    """The agents of one native cell. Every call raises CellUnreachableError when its database does not answer."""

    def __init__(self, engine: Engine, cell: Cell, clock: Clock = system_clock) -> None:
        self._engine = engine
        self._cell = cell
        self._clock = clock

    def all(self) -> Sequence[AgentAddress]:
        with cell_failures(self._cell.name), self._engine.connect() as connection:
            return read_agents(connection)

    def of(self, hosts: Collection[str]) -> Sequence[AgentAddress]:
        """Those of some hosts, or nodes called so; a host without an agent is left out."""
        with cell_failures(self._cell.name), self._engine.connect() as connection:
            return read_agents(connection, hosts)

    def set(self, host: str, address: str | None) -> None:
        """Let the agent at `address` do the work of a host, or (None) let the host be simulated.

        Raises HostNotFoundError.
        """
        is_of_host = compute_nodes.c.service_id.in_(select(services.c.id).where(services.c.host == host))
        statement = update(compute_nodes).where(is_of_host).values(agent_address=address)
        with cell_failures(self._cell.name), writing(self._engine) as connection:
            if not connection.execute(statement).rowcount:
                raise HostNotFoundError(host)
            announce_changed_nodes(connection, self._clock(), is_of_host)
