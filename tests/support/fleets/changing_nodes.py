"""A native cell whose nodes change in each of the ways that there are, and are announced."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Engine, select

from fleetlight.bus.bus import Message
from fleetlight.cells.database.engines import writing
from fleetlight.cells.fleet.fleet import Fleet
from fleetlight.cells.kinds.native.relay import Relay
from fleetlight.cells.model import NO_REQUEST, Cell
from fleetlight.cells.settings import RelaySettings
from fleetlight.cells.tables import changes
from fleetlight.manager.operations.cell_worker import new_worker
from fleetlight.manager.operations.hosts.agent_addresses import AgentAddresses
from fleetlight.manager.operations.hosts.cell_nodes import CellNodes, NewHost
from fleetlight.manager.operations.jobs.model import NewJob
from fleetlight.manager.operations.jobs.queue import add_jobs
from fleetlight.manager.operations.nodes.differences import Differences, NodeStatus, Observation
from fleetlight.manager.operations.opcodes.cluster import ClusterSetParams
from fleetlight.manager.operations.opcodes.groups import GroupAdd, GroupAssignNodes, GroupRename, GroupSetParams
from fleetlight.manager.operations.opcodes.nodes import NodeSetParams
from fleetlight.manager.operations.opcodes.opcode import OpCode
from fleetlight.manager.operations.opcodes.tags import TagsDel, TagsSet
from fleetlight.manager.operations.vocabulary import ALL_OPERATIONS
from fleetlight.resources.amount import Amount
from fleetlight.resources.clock import system_clock

SIZE = Amount.of_gib(vcpus=16, memory_mib=65_536, disk_gib=1000)


class ChangingNodes:
    """hosts: names of hosts, each with a node called so."""

    def __init__(self, engine: Engine, fleet: Fleet, cell: Cell, hosts: Sequence[str] = ("host1", "host2")) -> None:
        self._engine = engine
        self._cell = cell
        self._worker = new_worker(engine, fleet, cell)
        self._nodes = CellNodes(engine, cell)
        self.add(*hosts)

    def add(self, *hosts: str) -> None:
        self._nodes.add_hosts([NewHost(host, SIZE) for host in hosts])

    def remove(self, host: str) -> None:
        [service] = self._nodes.services(host=host)
        self._nodes.remove_service(service.uuid)

    def disable(self, host: str, *, disabled: bool) -> None:
        [service] = self._nodes.services(host=host)
        self._nodes.update_service(service.uuid, disabled=disabled)

    def force_down(self, host: str, *, forced_down: bool) -> None:
        [service] = self._nodes.services(host=host)
        self._nodes.update_service(service.uuid, forced_down=forced_down)

    def give_agent(self, host: str, address: str | None) -> None:
        AgentAddresses(self._engine, self._cell).set(host, address)

    def find(self, host: str, status: NodeStatus) -> None:
        """A refresh finds the node so."""
        with writing(self._engine) as connection:
            Differences(connection, self._cell, system_clock()).note(Observation([], {host: (status, None)}))

    def set_node(self, host: str, **values: Any) -> None:
        self._carry_out(NodeSetParams(node_name=host, **values))

    def tag(self, host: str, tag: str) -> None:
        self._carry_out(TagsSet(kind="node", name=host, tags=[tag]))

    def untag(self, host: str, tag: str) -> None:
        self._carry_out(TagsDel(kind="node", name=host, tags=[tag]))

    def add_group(self, name: str) -> None:
        self._carry_out(GroupAdd(group_name=name))

    def assign(self, host: str, group: str) -> None:
        self._carry_out(GroupAssignNodes(group_name=group, nodes=[host]))

    def rename_group(self, name: str, new_name: str) -> None:
        self._carry_out(GroupRename(group_name=name, new_name=new_name))

    def set_group(self, name: str, **ndparams: Any) -> None:
        self._carry_out(GroupSetParams(group_name=name, ndparams=ndparams))

    def set_cell(self, **ndparams: Any) -> None:
        self._carry_out(ClusterSetParams(ndparams=ndparams))

    def announced(self) -> Sequence[tuple[str, int]]:
        """Event type and revision of all that was announced of nodes so far."""
        statement = select(changes.c.event_type, changes.c.revision).order_by(changes.c.id)
        with self._engine.connect() as connection:
            rows = connection.execute(statement.where(changes.c.event_type.startswith("hypervisor."))).all()
        return [(row.event_type, row.revision) for row in rows]

    def publish(self) -> Sequence[Message]:
        """All messages that were not published yet, in their order."""
        published = _Published()
        relay = Relay(self._engine, self._cell, published, RelaySettings())
        while relay.run_once():
            pass
        relay.close()
        return published.messages

    def _carry_out(self, op: OpCode) -> None:
        with writing(self._engine) as connection:
            add_jobs(connection, ALL_OPERATIONS, [NewJob([op.to_operation()], NO_REQUEST)], system_clock())
        while self._worker.run_once():
            pass


class _Published:
    def __init__(self) -> None:
        self.messages: list[Message] = []

    def publish(self, messages: Sequence[Message]) -> None:
        self.messages += messages
