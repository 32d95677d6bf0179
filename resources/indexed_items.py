"""The indexed types of items other than instances: one line for each type. Cells have code to read and announce it."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from fleetlight.resources.fields import Record
from fleetlight.resources.node import STORED_NODE_FIELDS, shown_node
from fleetlight.resources.query_fields.node import NODE

INSTANCES = "OS::Nova::Server"
"""The name of instances as a type of resources (from Searchlight and Heat)."""


@dataclass(frozen=True, slots=True)
class IndexedItems:
    """An indexed type of items.

    item_type: its name in queries. resource_type: its name as a type of resources. noun: for one item, in sentences.
    events: the object in the event types of its changes. fields: those that the index can answer. shown: converts a
    stored item to the values of these fields.
    """

    item_type: str
    resource_type: str
    noun: str
    events: str
    fields: Collection[str]
    shown: Callable[[Record], Record]


INDEXED_ITEMS: Mapping[str, IndexedItems] = {
    each.item_type: each
    for each in (IndexedItems(NODE.name, "OS::Nova::Hypervisor", "node", "hypervisor", STORED_NODE_FIELDS, shown_node),)
}
"""By item type."""

RESOURCE_TYPES = (INSTANCES, *(each.resource_type for each in INDEXED_ITEMS.values()))
"""All indexed types of resources."""
