"""Lookups of services and nodes in native cells, and changes of services, which lists show at once."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from fleetlight.api.compute.hosts.host_status import HostStatusCache
from fleetlight.api.http.errors import ConflictError, NotFoundError
from fleetlight.api.shared.fleet_access import FleetAccess, OfCells
from fleetlight.cells.errors import HostInUseError, HostNotFoundError
from fleetlight.cells.kinds.native.nodes import COMPUTE, ComputeNode, ComputeService
from fleetlight.cells.model import Cell
from fleetlight.manager.operations.hosts.agent_addresses import AgentAddresses
from fleetlight.manager.operations.native_cells import nodes_in
from fleetlight.resources.uuids import is_uuid

T = TypeVar("T")

# The largest number of a service or a node has sixteen digits.
_NUMBER = re.compile(r"[0-9]{1,16}", re.ASCII)


@dataclass(frozen=True, slots=True)
class FoundService:
    cell: Cell
    service: ComputeService


@dataclass(frozen=True, slots=True)
class FoundNode:
    cell: Cell
    node: ComputeNode


class FleetHosts:
    """Finds services and nodes; each query asks cells only for the wanted ones.

    Every call raises FleetUnreachableError; lookups of a single object raise CellDownError if it may be in a cell that
    does not answer.
    """

    def __init__(self, access: FleetAccess, statuses: HostStatusCache) -> None:
        self._access = access
        self._statuses = statuses

    async def services(
        self, *, host: str | None = None, binary: str | None = None
    ) -> OfCells[Sequence[ComputeService]]:
        """Read the services of all cells, or those of a host or with a binary."""
        native = self._access.native
        return await self._access.ask_cells(lambda cell: nodes_in(native, cell).services(host=host, binary=binary))

    async def compute_service(self, host: str) -> FoundService | None:
        """Find the compute service of a host."""
        native = self._access.native
        found = await self._access.find_in_cells(
            lambda cell: next(iter(nodes_in(native, cell).services(host=host, binary=COMPUTE)), None)
        )
        return None if found is None else FoundService(*found)

    async def service(self, service_id: str) -> FoundService | None:
        """Find the service with this uuid, or this number in digits."""
        wanted, native = _id(service_id), self._access.native
        if wanted is None:
            return None
        found = await self._access.find_in_cells(lambda cell: nodes_in(native, cell).service(wanted))
        return None if found is None else FoundService(*found)

    async def nodes(self) -> OfCells[Sequence[ComputeNode]]:
        """Read the nodes of all cells."""
        native = self._access.native
        return await self._access.ask_cells(lambda cell: nodes_in(native, cell).nodes())

    async def nodes_named_like(self, part: str) -> OfCells[Sequence[ComputeNode]]:
        """Find the nodes whose hypervisors have `part` in their names."""
        native = self._access.native
        return await self._access.ask_cells(lambda cell: nodes_in(native, cell).nodes_named_like(part))

    async def node(self, node_id: str) -> FoundNode | None:
        """Find the node with this uuid, or this number in digits."""
        wanted, native = _id(node_id), self._access.native
        if wanted is None:
            return None
        found = await self._access.find_in_cells(lambda cell: nodes_in(native, cell).node(wanted))
        return None if found is None else FoundNode(*found)

    async def node_of(self, host: str) -> FoundNode | None:
        """Find the first node of a host."""
        native = self._access.native
        found = await self._access.find_in_cells(lambda cell: next(iter(nodes_in(native, cell).nodes_of([host])), None))
        return None if found is None else FoundNode(*found)

    async def known_hosts(self, cells: Sequence[Cell]) -> Mapping[str, Sequence[str]]:
        """Return the hosts of cells when they last answered, by cell uuid."""
        return await self._access.ask(partial(self._access.fleet.known_hosts.of, [cell.uuid for cell in cells]))

    async def remember(self, of_cells: OfCells[Sequence[ComputeService]]) -> None:
        """Store the hosts of cells, for times when they do not answer."""
        hosts = {cell.uuid: [each.host for each in services] for cell, services in of_cells.answers}
        await self._access.ask(partial(self._access.fleet.known_hosts.remember, hosts))

    async def change(
        self, found: FoundService, *, disabled: bool | None, disabled_reason: str | None, forced_down: bool | None
    ) -> ComputeService:
        """Change a service; None keeps a value. The reason belongs to `disabled`.

        Raises NotFoundError when the service is gone meanwhile, and CellUnreachableError."""
        update = partial(
            nodes_in(self._access.native, found.cell).update_service,
            found.service.uuid,
            disabled=disabled,
            disabled_reason=disabled_reason,
            forced_down=forced_down,
        )
        try:
            changed = await self._access.act(found.cell, partial(self._changed, found, update))
        except HostNotFoundError as error:
            raise NotFoundError(f"Service {found.service.uuid} could not be found.") from error
        self._statuses.forget()
        return changed

    def _changed(self, found: FoundService, change: Callable[[], T]) -> T:
        """Run `change`, and drop the cached state of the host."""
        cell, nodes = found.cell, self._access.nodes
        if nodes is None:
            return change()
        agents = AgentAddresses(self._access.native.engine(cell), cell).of([found.service.host])
        changed = change()
        nodes.forget(cell, [agent.node for agent in agents])
        return changed

    async def remove(self, found: FoundService) -> None:
        """Remove a service. Raises ConflictError while its host has servers, NotFoundError, CellUnreachableError."""
        service = found.service
        try:
            remove = partial(nodes_in(self._access.native, found.cell).remove_service, service.uuid)
            await self._access.act(found.cell, partial(self._changed, found, remove))
        except HostNotFoundError as error:
            raise NotFoundError(f"Service {service.uuid} could not be found.") from error
        except HostInUseError as error:
            raise ConflictError("Unable to delete compute service that is hosting instances.") from error
        fleet = self._access.fleet
        await self._access.ask(partial(fleet.aggregates.forget_host, service.host))
        await self._access.ask(partial(fleet.known_hosts.forget, found.cell.uuid, service.host))
        self._statuses.forget()


def _id(text: str) -> str | int | None:
    """Parse a uuid or a number; None for any other text."""
    if _NUMBER.fullmatch(text):
        return int(text)
    return text if is_uuid(text) else None
