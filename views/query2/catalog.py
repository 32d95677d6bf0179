"""The values of the fields of every item type."""

from functools import cache

from fleetlight.resources.instance import INSTANCE_FIELDS
from fleetlight.views.query2.instance import INSTANCE_VALUES
from fleetlight.views.query2.items import item_values
from fleetlight.views.query2.values import Values


@cache
def values_of(item_type: str) -> Values:
    """Return the values of a type's fields, by name, including aliases."""
    return INSTANCE_VALUES if item_type == INSTANCE_FIELDS.name else item_values(item_type)
