"""The values of the fields of items other than instances, from the item's record (ItemsAdapter in cells.model)."""

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
"""The field with the name of an item's cell, which no record has."""


def item_values(item_type: str) -> Values:
    """Return the value of each field of an item type other than instance, including aliases."""
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
        # Compare the type, since a plain number may equal a status.
        if isinstance(value, ResultStatus):
            return value, None
        # A damaged row may have a value of another kind.
        if value is not None and not is_of_kind(value, kind):
            return NO_DATA
        return known(value, UNAVAILABLE)

    return make
