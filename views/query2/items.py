"""What the fields of items other than instances are: what the record of the item says (cells.model.ItemsAdapter)."""

from collections.abc import Mapping

from resources.query_fields.catalog import ITEM_TYPES
from resources.query_fields.definitions import CellStatus
from views.query2.values import UNAVAILABLE, Cell, Facts, Make, Value, Values, known, normal

CELL = "cell"
"""The field that no record has: which cell an item is in."""


def item_values(item_type: str) -> Values:
    """How each field of an item type other than instance comes about, aliases too."""
    fields = ITEM_TYPES[item_type]
    values: Mapping[str, Value] = {
        name: Value(_cell) if name == CELL else Value(_of(name), frozenset({name})) for name in fields
    }
    return {**values, **{alias: values[target] for alias, target in fields.aliases.items()}}


def _cell(facts: Facts) -> Cell:
    return normal(facts.cell)


def _of(name: str) -> Make:
    def make(facts: Facts) -> Cell:
        value = facts.record.get(name)
        # A number that is equal to a status is none.
        return (value, None) if isinstance(value, CellStatus) else known(value, UNAVAILABLE)

    return make
