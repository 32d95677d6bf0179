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
        """Whether it is an API, and not a database."""
        return self in (CellKind.NOVA_API, CellKind.GANETI)


@dataclass(frozen=True, slots=True)
class Capabilities:
    """numbers_changes: changes have sequences and rows have revisions, so that counting proves completeness. For other
        cells, other software sends the notifications, and rows are as new as the moment when they were read.
    takes_changes: its servers and hosts can be changed here, and its database has our tables.
    maps_instances: its deployment, and not the fleet database, knows the cell of each instance.
    is_asked_for_unmapped: no database knows its instances, so it is asked for those without a mapping.
    announces_nothing: it has no bus, so it is polled.
    reports_usage: its nodes report free resources and their own needs; elsewhere all that no instance claims is free.
    keeps_ended: instances, also deleted ones, have the times of their launch and end.
    unknown_fields: fields of instances that its rows lack.
    fields_of_deployment: fields from the API database of its deployment, which may be unknown.
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


# Fields that are not members of an item in the compute API but follow from others, and fields equal for all items.
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
