"""Fields queries: the fields of an item type, and the definitions of an answer's columns."""

from collections.abc import Sequence
from typing import Any

from fleetlight.query.sort import nice_key
from fleetlight.resources.fields import Kind
from fleetlight.resources.query_fields.definitions import QueryField, QueryFields


def definitions(fields: QueryFields, names: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """The definitions of the fields with these names, in their order; for None of all fields, in nice order.

    An unknown name gives a field of kind `unknown` instead of an error, since an answer has a column for it.
    """
    if names is None:
        names = sorted(fields, key=nice_key)
    return [
        {"name": name, "title": field.title, "kind": field.kind.value, "doc": field.doc}
        if isinstance(field := fields.get(name), QueryField)
        else {"name": name, "title": name, "kind": Kind.UNKNOWN.value, "doc": f"Unknown field '{name}'"}
        for name in names
    ]
