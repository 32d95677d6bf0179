"""What lists show of an instance, to compare two of its views."""

import json
from decimal import Decimal
from typing import Any

from fleetlight.views.compute.view import PIECE_NAMES, FullTemplate, ItemTemplate, View

_TEMPLATES = [
    FullTemplate(minor, is_admin=is_admin, versioned_base="v", plain_base="p")
    for minor in (1, 46, 95, 104)
    for is_admin in (False, True)
]


def stored_item(template: ItemTemplate, view: View, cell_uuid: str = "") -> bytes:
    """The item that an index makes of a stored view."""
    return template.render([view[PIECE_NAMES.index(name)] for name in template.pieces], cell_uuid)


def shown_items(view: View) -> list[Any]:
    """The items of the kinds that differ in how they are cut out of a view.

    PostgreSQL writes numbers and orders keys in its own way, so views that show the same may differ in both.
    """
    return [json.loads(stored_item(template, view), parse_float=Decimal, parse_int=Decimal) for template in _TEMPLATES]
