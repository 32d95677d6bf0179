"""The types of items, other than instances, that an index has: a line for each type, beside what reads and announces it
in a cell.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from fleetlight.resources.fields import Record
from fleetlight.resources.node import STORED_NODE_FIELDS, shown_node
from fleetlight.resources.query_fields.node import NODE

INSTANCES = "OS::Nova::Server"
"""What users call instances where they name a type of resources (Searchlight's name, and Heat's)."""


@dataclass(frozen=True, slots=True)
class IndexedItems:
    """A type of items.

    item_type: its name in queries. resource_type: what users call it. noun: of one, in sentences. events: the object of
    the event types that announce its changes. fields: those of queries that the index answers. shown: from what is
    stored of an item to the values of these.
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
"""What an index has, by what users call it."""
