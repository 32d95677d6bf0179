"""The request spec of the scheduler: the demand of an instance, and its permitted hosts."""

from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from fleetlight.cells.errors import ResourceNotFoundError
from fleetlight.cells.fleet.compute.aggregates import Aggregate
from fleetlight.cells.fleet.compute.server_groups import ServerGroup
from fleetlight.cells.fleet.fleet import Fleet
from fleetlight.manager.operations.scheduling.unsupported_specs import unsupported_specs
from fleetlight.resources.amount import Amount
from fleetlight.resources.fields import Record
from fleetlight.resources.units import MIB_PER_GIB

_RESOURCES = "resources:"
# Resource classes of placement whose amount an extra spec may override.
_CLASSES = ("VCPU", "MEMORY_MB", "DISK_GB")
_DIGITS = 9
_TRAIT = "trait:"
_OF_AGGREGATES = "aggregate_instance_extra_specs:"


@dataclass(frozen=True, slots=True)
class RequestSpec:
    """The permitted hosts of an instance.

    zone: the required zone. host, node: the only permitted one, even if disabled. without: excluded hosts.
    beside, apart: uuids of the cell's instances with which it must, or must not, share its host.
    project_id: `beside` and `apart` count only for instances of this project; None: of any.
    group: its server group.
    node_group: uuid of the required group of nodes. nodes: names of the permitted nodes; empty: any.
    hosts: the hosts of the aggregates that its flavor demands; None: any.
    required_traits, forbidden_traits: nodes must have all of these, and none of those.
    has_own_processors: whether nodes must give each processor to only one instance.
    unsupported: extra specs of the flavor that no host fulfils; then none is permitted.
    """

    zone: str | None = None
    host: str | None = None
    node: str | None = None
    without: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()
    apart: tuple[str, ...] = ()
    project_id: str | None = None
    group: ServerGroup | None = None
    node_group: str | None = None
    nodes: tuple[str, ...] = ()
    hosts: tuple[str, ...] | None = None
    required_traits: tuple[str, ...] = ()
    forbidden_traits: tuple[str, ...] = ()
    has_own_processors: bool = False
    unsupported: tuple[str, ...] = ()

    @property
    def is_forced(self) -> bool:
        """Whether a host or node is named."""
        return self.host is not None or self.node is not None


def demand_of(flavor: Mapping[str, Any] | None) -> Amount:
    """Return the demand of an instance with `flavor` (fields of Nova's FlavorPayload); swap counts as disk.

    As in Nova, an extra spec such as `resources:VCPU` overrides the flavor's amount.
    """
    if flavor is None:
        return Amount()
    swap_gib = -(-(flavor.get("swap") or 0) // MIB_PER_GIB)
    disk_gib = (flavor["root_gb"] or 0) + (flavor["ephemeral_gb"] or 0) + swap_gib
    specs: Mapping[str, str] = flavor.get("extra_specs") or {}
    own = zip(_CLASSES, (flavor["vcpus"] or 0, flavor["memory_mb"] or 0, disk_gib), strict=True)
    given = {name: _amount(specs.get(f"{_RESOURCES}{name}", "")) for name in _CLASSES}
    return Amount.of_gib(*(size if (amount := given[name]) is None else amount for name, size in own))


def _amount(text: str) -> int | None:
    """Parse the amount in an extra spec; None for any that no node could have."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _DIGITS else None


def request_spec(
    fleet: Fleet, record: Record, parameters: Mapping[str, Any], *, group: ServerGroup | None = None
) -> RequestSpec:
    """Make the request spec of an instance from its record and the parameters of an action.

    parameters: those of its job: `host`, `node`, `flavor`, `is_forced` (the zone does not count), `is_by_administrator`
        (hints may name instances of other projects). group: of the instance, if it is known already.
    Raises FleetUnreachableError.
    """
    hints: Mapping[str, Any] = record["scheduler_hints"] or {}
    flavor: Mapping[str, Any] = parameters.get("flavor") or record["flavor"] or {}
    return RequestSpec(
        zone=None if parameters.get("is_forced") else record["pinned_availability_zone"],
        host=parameters.get("host"),
        node=parameters.get("node"),
        without=() if record["host"] is None else (record["host"],),
        beside=_uuids(hints.get("same_host")),
        apart=_uuids(hints.get("different_host")),
        project_id=None if parameters.get("is_by_administrator") else record["project_id"],
        group=group or group_of(fleet, record),
        **flavor_conditions(fleet, flavor),
    )


def with_members(spec: RequestSpec, uuids: Collection[str]) -> RequestSpec:
    """Add instances to the group of a spec whose membership the fleet does not know yet."""
    if spec.group is None:
        return spec
    members = dict.fromkeys((*spec.group.members, *uuids))
    return replace(spec, group=replace(spec.group, members=tuple(members)))


def group_of(fleet: Fleet, record: Record) -> ServerGroup | None:
    """Read the group of an instance with its current members; None without one, or if the group was deleted."""
    for uuid in record["server_groups"] or ():
        with suppress(ResourceNotFoundError):
            return fleet.server_groups.find(uuid, project_id=None)
    return None


def flavor_conditions(fleet: Fleet, flavor: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a RequestSpec for the extra specs of a flavor. Raises FleetUnreachableError.

    `trait:NAME` is `required` or `forbidden`; `aggregate_instance_extra_specs:KEY` must be the value of KEY in the
    metadata of an aggregate of the host; `hw:cpu_policy` is `dedicated` to demand processors of its own.
    """
    specs: Mapping[str, str] = flavor.get("extra_specs") or {}
    traits = {name.removeprefix(_TRAIT): value for name, value in specs.items() if name.startswith(_TRAIT)}
    metadata = {
        name.removeprefix(_OF_AGGREGATES): value for name, value in specs.items() if name.startswith(_OF_AGGREGATES)
    }
    return {
        "required_traits": tuple(sorted(name for name, value in traits.items() if value == "required")),
        "forbidden_traits": tuple(sorted(name for name, value in traits.items() if value == "forbidden")),
        "hosts": _hosts_in(fleet.aggregates.all(), metadata) if metadata else None,
        "has_own_processors": specs.get("hw:cpu_policy") == "dedicated",
        "unsupported": unsupported_specs(specs),
    }


def _hosts_in(aggregates: Collection[Aggregate], metadata: Mapping[str, str]) -> tuple[str, ...]:
    """Return the hosts that have an aggregate for each key and value; metadata may list values, with commas."""
    hosts_by_key = [
        {
            host
            for aggregate in aggregates
            if wanted in {value.strip() for value in aggregate.metadata.get(key, "").split(",")}
            for host in aggregate.hosts
        }
        for key, wanted in metadata.items()
    ]
    return tuple(sorted(set.intersection(*hosts_by_key)))


def _uuids(hint: Any) -> tuple[str, ...]:
    if hint is None:
        return ()
    return tuple(str(item) for item in hint) if isinstance(hint, list) else (str(hint),)
