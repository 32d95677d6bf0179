"""Values that fit a field: checks of operators beforehand, and limits of stores."""

from typing import Any

from fleetlight.query.tree import Store
from fleetlight.resources.errors import FilterValueError, UnknownFieldError
from fleetlight.resources.fields import Field, Kind, Scalar

MIN_INTEGER = -(2**63)
MAX_INTEGER = 2**63 - 1
# The longest term of Lucene, in bytes of UTF-8: none is stored, and a query with one is refused.
MAX_TERM_BYTES = 32_766


def require_filterable(field: Field) -> None:
    """Raise UnknownFieldError for a field that can only be read."""
    if field.kind is Kind.UNKNOWN or (field.kind is Kind.OTHER and not field.is_list):
        raise UnknownFieldError(field.name, "filter")


def require_comparable(field: Field, value: Scalar) -> None:
    """Raise UnknownFieldError or FilterValueError unless values of `field` can be compared with `value`."""
    require_filterable(field)
    if field.is_list:
        raise FilterValueError(field.name, value, "an element that the list has or lacks")
    field.stored(value)


def can_hold(store: Store, value: Any) -> bool:
    """Whether `value` can be in a field there; what cannot is refused even in a query.

    Drivers raise on a number that does not fit into 64 bits, or servers differ; no text in PostgreSQL has a NUL.
    """
    if isinstance(value, int):
        return MIN_INTEGER <= value <= MAX_INTEGER
    if isinstance(value, str):
        if store == "postgresql":
            return "\0" not in value
        if store == "elasticsearch":
            return not is_too_long(value)
    return True


def is_too_long(text: str) -> bool:
    """For a term of Lucene."""
    return len(text) * 4 > MAX_TERM_BYTES and len(text.encode()) > MAX_TERM_BYTES
