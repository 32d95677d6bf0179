"""The values of the fields of items other than instances: those of the record of the item
(fleetlight.cells.model.ItemsAdapter).
"""

from collections.abc import Mapping

from fleetlight.resources.fields import Kind
from fleetlight.resources.query_fields.catalog import ITEM_TYPES
from fleetlight.resources.query_fields.definitions import ResultStatus
from fleetlight.resources.query_fields.node import NODE
from fleetlight.resources.query_fields.node_live import LIVE_FIELDS
from fleetlight.views.query2.values import (
    NO_DATA,
    UNAVAILABLE,
    Cell,
    Facts,
    Make,
    Value,
    Values,
    is_of_kind,
    known,
    normal,
)

CELL = "cell"
"""The field that no record has: which cell an item is in."""


def item_values(item_type: str) -> Values:
    """How each field of an item type other than instance comes about, aliases too."""
    fields = ITEM_TYPES[item_type]
    values: Mapping[str, Value] = {
        name: Value(_cell)
        if name == CELL
        else Value(_of(name, field.kind), frozenset({name}), is_live=item_type == NODE.name and name in LIVE_FIELDS)
        for name, field in fields.items()
    }
    return {**values, **{alias: values[target] for alias, target in fields.aliases.items()}}


def _cell(facts: Facts) -> Cell:
    return normal(facts.cell.name)


def _of(name: str, kind: Kind) -> Make:
    def make(facts: Facts) -> Cell:
        value = facts.record.get(name)
        # A number that is equal to a status is none.
        if isinstance(value, ResultStatus):
            return value, None
        # What a damaged row has there is no value of the field.
        if value is not None and not is_of_kind(value, kind):
            return NO_DATA
        return known(value, UNAVAILABLE)

    return make
