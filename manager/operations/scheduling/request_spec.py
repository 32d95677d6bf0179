"""The request spec of the scheduler: how much an instance takes up of a node, and where it may go."""

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
# Of placement, as an extra spec says how much of it is wanted instead of what the flavor has.
_CLASSES = ("VCPU", "MEMORY_MB", "DISK_GB")
_DIGITS = 9
_TRAIT = "trait:"
_OF_AGGREGATES = "aggregate_instance_extra_specs:"


@dataclass(frozen=True, slots=True)
class RequestSpec:
    """Where an instance may go.

    zone: only there. host, node: only this one, even if it is disabled. without: not on these hosts.
    beside, apart: uuids of instances of the cell that it has to share its host with, or must not.
    project_id: these mean instances of this project, as if there were no others; None: those of any.
    group: the server group that it is a member of.
    node_group: the uuid of a group of nodes, only in that. nodes: only on nodes with these names; empty: on any.
    hosts: only on these, which the aggregates have that its flavor asks for; None: on any.
    required_traits, forbidden_traits: only on nodes with all of these, with none of those.
    has_own_processors: only on nodes that give each of their processors to one instance.
    unsupported: extra specs of the flavor that no host can fulfil, so none suits.
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
    """What an instance with `flavor` (fields of Nova's FlavorPayload) takes up of its node; swap is on the disk.

    As in Nova, an extra spec such as `resources:VCPU` counts instead of what the flavor has.
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
    """The number that an extra spec says; None if it says none that a node could have."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _DIGITS else None


def request_spec(
    fleet: Fleet, record: Record, parameters: Mapping[str, Any], *, group: ServerGroup | None = None
) -> RequestSpec:
    """What the record of an instance, and the parameters of an action, say of where it may go.

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
    """The same for instances that the fleet does not know yet, and so not as members of their group."""
    if spec.group is None:
        return spec
    members = dict.fromkeys((*spec.group.members, *uuids))
    return replace(spec, group=replace(spec.group, members=tuple(members)))


def group_of(fleet: Fleet, record: Record) -> ServerGroup | None:
    """The group of an instance with the members of this moment; None too if the group was deleted meanwhile."""
    for uuid in record["server_groups"] or ():
        with suppress(ResourceNotFoundError):
            return fleet.server_groups.find(uuid, project_id=None)
    return None


def flavor_conditions(fleet: Fleet, flavor: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a RequestSpec that the extra specs of a flavor stand for. Raises FleetUnreachableError.

    `trait:NAME` is `required` or `forbidden`; `aggregate_instance_extra_specs:KEY` is a value that the metadata of an
    aggregate of the host must have there; `hw:cpu_policy` is `dedicated` where each processor is wanted for itself.
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
    """The hosts that have an aggregate with each of these keys and values; an aggregate may name several, by commas."""
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
