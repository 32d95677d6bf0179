"""Facts of a cell that the fields of its instances need beside their records: read once for each request, never per
row."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from fleetlight.resources.fields import Record
from fleetlight.resources.query_fields.cluster_parameters import CLUSTER, Parameters, hypervisor_parameters

GROUPS, NETWORKS, SYSTEMS = "group", "network", "os"

FACTS: Mapping[str, Sequence[str]] = {
    GROUPS: ("name", "uuid", "node_list"),
    NETWORKS: ("uuid", "name"),
    SYSTEMS: ("name", "image_ref"),
    CLUSTER: (),
}
"""By the item type that a cell is asked for, the fields that are read of it."""


class Group(NamedTuple):
    """The node group of a node."""

    name: str
    uuid: str


class CellFacts:
    """name: of the cell. is_configured_here: whether it has such facts at all, and counts the changes of its instances.

    items: by item type, the records that were read; a type that was not asked for, or could not be read, is not there.
    """

    def __init__(
        self, name: str, *, is_configured_here: bool = False, items: Mapping[str, Iterable[Record]] | None = None
    ) -> None:
        found = items or {}
        self.name = name
        self.is_configured_here = is_configured_here
        self.groups: Mapping[str, Group] | None = None
        if GROUPS in found:
            self.groups = {
                node: Group(group["name"], group["uuid"]) for group in found[GROUPS] for node in group["node_list"]
            }
        self.networks: Mapping[str, str] | None = None
        if NETWORKS in found:
            self.networks = {network["uuid"]: network["name"] for network in found[NETWORKS]}
        self.systems: Mapping[str, str] | None = None
        if SYSTEMS in found:
            self.systems = {system["image_ref"]: system["name"] for system in found[SYSTEMS]}
        self.cluster: Parameters | None = next(iter(found.get(CLUSTER, ())), None)
        self._of_hypervisors: dict[tuple[str, str | None], Parameters] = {}

    def hypervisor_parameters(self, cluster: Parameters, hypervisor: str, system: str | None) -> Parameters:
        """Those that an instance has before any are set on it; most instances have the same."""
        key = (hypervisor, system)
        if key not in self._of_hypervisors:
            self._of_hypervisors[key] = hypervisor_parameters(cluster, hypervisor, system, {})
        return self._of_hypervisors[key]


Items = Mapping[str, Mapping[str, Sequence[Record]]]
"""Records by the uuid of the cell, then by item type."""
