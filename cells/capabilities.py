"""The kinds of cells, and what each can do. Code asks for a capability, never for a kind."""

from dataclasses import dataclass
from enum import StrEnum

from fleetlight.resources.instance import DERIVED_FIELDS, INSTANCE_FIELDS


class CellKind(StrEnum):
    """What a cell is (docs/architecture.md, "Kinds of cells")."""

    NATIVE = "native"
    NOVA_DB = "nova-db"
    NOVA_API = "nova-api"
    GANETI = "ganeti"

    @property
    def is_asked_over_http(self) -> bool:
        """Whether it is an API, and has no database that is read."""
        return self in (CellKind.NOVA_API, CellKind.GANETI)


@dataclass(frozen=True, slots=True)
class Capabilities:
    """numbers_changes: changes have sequences and rows revisions, so that completeness is proven by counting. Of other
        cells notifications come from other software, and rows are as new as the moment at which they were read.
    takes_changes: its servers and hosts are changed here, and its database has tables of ours.
    maps_instances: its deployment, and not the fleet database, knows which cell an instance is in.
    is_asked_for_unmapped: no database knows which instances it has, so it is asked for those that are mapped nowhere.
    announces_nothing: it has no bus, so it is looked at again and again.
    reports_usage: its nodes say what they have free at this moment and what they need for themselves; those of other
        cells have free what no instance claims.
    keeps_ended: instances tell when they were launched and ended, also those that are deleted.
    unknown_fields: fields of an instance that its rows do not tell.
    fields_of_deployment: those that only the API database of its deployment tells, which need not be known.
    """

    numbers_changes: bool = False
    takes_changes: bool = False
    maps_instances: bool = False
    is_asked_for_unmapped: bool = False
    announces_nothing: bool = False
    reports_usage: bool = False
    keeps_ended: bool = True
    unknown_fields: frozenset[str] = frozenset()
    fields_of_deployment: frozenset[str] = frozenset()


# What an item of the compute API says without a member of its own, or what is the same for all of them.
_KNOWN_OTHERWISE = {"uuid", "deleted", "deleted_at", "flavor", "image_ref", "image_properties"} | (
    DERIVED_FIELDS - {"flavor_id"}
)
_SAME_FOR_ALL = {"hidden", "forthcoming", "ganeti"}

CAPABILITIES = {
    CellKind.NATIVE: Capabilities(numbers_changes=True, takes_changes=True),
    CellKind.NOVA_DB: Capabilities(
        maps_instances=True,
        fields_of_deployment=frozenset({"server_groups", "pinned_availability_zone", "scheduler_hints"}),
    ),
    CellKind.NOVA_API: Capabilities(
        is_asked_for_unmapped=True,
        unknown_fields=frozenset(
            INSTANCE_FIELDS.keys() - INSTANCE_FIELDS.members.keys() - _KNOWN_OTHERWISE - _SAME_FOR_ALL
        ),
    ),
    CellKind.GANETI: Capabilities(
        is_asked_for_unmapped=True, announces_nothing=True, reports_usage=True, keeps_ended=False
    ),
}
