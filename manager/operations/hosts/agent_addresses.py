"""The addresses of a native cell's agents, which operators set."""

from collections.abc import Collection, Sequence

from sqlalchemy import Engine, select, update

from fleetlight.cells.database.engines import cell_failures, writing
from fleetlight.cells.errors import HostNotFoundError
from fleetlight.cells.kinds.native.agent_addresses import AgentAddress, read_agents
from fleetlight.cells.model import Cell
from fleetlight.cells.tables import compute_nodes, services
from fleetlight.manager.operations.hosts.node_announcements import announce_changed_nodes
from fleetlight.resources.clock import Clock, system_clock


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
        """Return the agents of some hosts, given by host, node name or uuid; leaves out hosts without agent."""
        with cell_failures(self._cell.name), self._engine.connect() as connection:
            return read_agents(connection, hosts)

    def set(self, host: str, address: str | None) -> None:
        """Set the address of a host's agent; None: simulate the host.

        Raises HostNotFoundError for an unknown host.
        """
        is_of_host = compute_nodes.c.service_id.in_(select(services.c.id).where(services.c.host == host))
        statement = update(compute_nodes).where(is_of_host).values(agent_address=address)
        with cell_failures(self._cell.name), writing(self._engine) as connection:
            if not connection.execute(statement).rowcount:
                raise HostNotFoundError(host)
            announce_changed_nodes(connection, self._clock(), is_of_host)
