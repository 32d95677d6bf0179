"""The check of a filter before any compiler sees it, so that no route fails late."""

from fleetlight.query.filters import Filter, leaves
from fleetlight.resources.fields import ItemType


def check(node: Filter, fields: ItemType) -> None:
    """Raise UnknownFieldError, FilterValueError or RegularExpressionError for the first leaf that does not fit."""
    for leaf in leaves(node):
        leaf.check(fields.require(leaf.field, "filter"))
