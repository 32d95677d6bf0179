"""Aggregates and the zones of their hosts (contracts/nova-rest, 4.7).

The zone of a host is stored with its service, where claims read it. An aggregate with a zone brings its hosts into that
zone; a host that leaves the last such aggregate returns to the default zone. A host outside of the default zone cannot
get a second zone, and a host with instances cannot change its zone.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from fleetlight.cells.errors import (
    CellUnreachableError,
    HostInUseError,
    HostNotFoundError,
    ResourceNotFoundError,
    ZoneTakenError,
)
from fleetlight.cells.fan_out.native_cells import NativeCells
from fleetlight.cells.fleet.compute.aggregates import ZONE_KEY, Aggregate
from fleetlight.cells.fleet.fleet import Fleet
from fleetlight.cells.kinds.native.nodes import ComputeNode
from fleetlight.cells.model import Cell
from fleetlight.manager.operations.native_cells import nodes_in
from fleetlight.resources.instance import DEFAULT_ZONE

_LOCK = "aggregates"


@dataclass(frozen=True, slots=True)
class _Host:
    cell: Cell
    node: ComputeNode

    @property
    def zone(self) -> str:
        return self.node.service.availability_zone


class HostZones:
    """Changes of aggregates that concern hosts.

    Calls block, and raise CellUnreachableError when a cell that may have one of the hosts does not answer. Hosts change
    their zone before the aggregate is written, so that an interrupted change can be repeated.
    """

    def __init__(self, fleet: Fleet, native: NativeCells) -> None:
        self._fleet = fleet
        self._aggregates = fleet.aggregates
        self._native = native

    def add_host(self, number: int, host: str) -> Aggregate:
        """Add a host. Raises ResourceNotFoundError, HostNotFoundError, ResourceExistsError if the aggregate has the
        host already, ZoneTakenError and HostInUseError.
        """
        with self._fleet.lock(_LOCK):
            aggregate = self._aggregates.find(number)
            hosts = self._find([host])
            if not hosts:
                raise HostNotFoundError(host)
            if aggregate.zone is not None and host not in aggregate.hosts:
                self._bring(hosts, aggregate.zone)
            self._aggregates.add_host(number, host)
            return self._aggregates.find(number)

    def remove_host(self, number: int, host: str) -> Aggregate:
        """Remove a host. Raises ResourceNotFoundError, also if the aggregate lacks the host, and HostInUseError."""
        with self._fleet.lock(_LOCK):
            aggregate = self._aggregates.find(number)
            if host not in aggregate.hosts:
                raise ResourceNotFoundError(f"Host {host} in aggregate", str(number))
            self._release([host], aggregate)
            self._aggregates.remove_host(number, host)
            return self._aggregates.find(number)

    def change(
        self, number: int, *, name: str | None = None, metadata: Mapping[str, str | None] | None = None
    ) -> Aggregate:
        """Rename an aggregate, and change items of its metadata; null removes an item.

        Raises ResourceNotFoundError, ResourceExistsError if another has the name, ZoneTakenError, HostInUseError.
        """
        with self._fleet.lock(_LOCK):
            aggregate = self._aggregates.find(number)
            merged = {**aggregate.metadata, **(metadata or {})}
            wanted = {key: value for key, value in merged.items() if value is not None}
            zone = wanted.get(ZONE_KEY)
            if zone is None:
                self._release(aggregate.hosts, aggregate)
            elif zone != aggregate.zone:
                self._bring(self._find(aggregate.hosts), zone, from_=aggregate)
            return self._aggregates.change(number, name or aggregate.name, wanted)

    def _bring(self, hosts: Mapping[str, _Host], zone: str, from_: Aggregate | None = None) -> None:
        """Bring hosts into a zone. from_: an aggregate whose zone they may leave if no other holds them there."""
        for name, host in hosts.items():
            is_free = host.zone == DEFAULT_ZONE or (
                from_ is not None and host.zone == from_.zone and not self._is_held(name, from_)
            )
            if not is_free and host.zone != zone:
                raise ZoneTakenError(name, host.zone)
        self._set_zone(hosts.values(), zone)

    def _release(self, names: Iterable[str], aggregate: Aggregate) -> None:
        """Return hosts to the default zone, unless another aggregate holds them in the zone of this one."""
        if aggregate.zone is None:
            return
        leaving = self._find(name for name in names if not self._is_held(name, aggregate))
        self._set_zone((host for host in leaving.values() if host.zone == aggregate.zone), DEFAULT_ZONE)

    def _is_held(self, host: str, aggregate: Aggregate) -> bool:
        """Whether another aggregate has the host in the same zone."""
        return any(
            host in other.hosts and other.zone == aggregate.zone
            for other in self._aggregates.all()
            if other.number != aggregate.number
        )

    def _set_zone(self, hosts: Iterable[_Host], zone: str) -> None:
        changing = [host for host in hosts if host.zone != zone]
        # Check all before the first change; each change checks again under its lock.
        for host in changing:
            if host.node.instance_count:
                raise HostInUseError(host.node.service.host)
        for host in changing:
            nodes_in(self._native, host.cell).set_zone(host.node.service.uuid, zone)

    def _find(self, names: Iterable[str]) -> Mapping[str, _Host]:
        """Return the existing ones of these hosts."""
        wanted, found = set(names), dict[str, _Host]()
        unreachable: CellUnreachableError | None = None
        for cell in self._native.cells() if wanted else ():
            try:
                nodes = nodes_in(self._native, cell).nodes_of(wanted)
            except CellUnreachableError as error:
                unreachable = error
                continue
            for node in nodes:
                found.setdefault(node.service.host, _Host(cell, node))
        if unreachable is not None and wanted - found.keys():
            raise unreachable
        return found
