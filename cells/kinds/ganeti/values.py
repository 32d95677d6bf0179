"""From what a cluster says of a field to what a record has of it; pure."""

from collections.abc import Mapping
from typing import Any

from cells.errors import UpstreamError
from resources.fields import Field, Kind, Record
from resources.query_fields.definitions import CellStatus, QueryFields

_MICROSECONDS = 1_000_000


def record_of(known: QueryFields, row: Mapping[str, tuple[int, Any]]) -> Record:
    """What a record has of a row: as of cells.model.ItemsAdapter.

    It lacks what the cluster does not know as a field, and has None for what an item does not have. Raises
    UpstreamError for a value that is none of its field.
    """
    record: dict[str, Any] = {}
    for name, (status, value) in row.items():
        match status:
            case CellStatus.NORMAL:
                record[name] = stored(known[name], value)
            case CellStatus.NO_DATA | CellStatus.OFFLINE:
                record[name] = CellStatus(status)
            case CellStatus.UNAVAILABLE:
                record[name] = None
    return record


def stored(field: Field, value: Any) -> Any:
    """The value as a record has it (resources.fields). Raises UpstreamError for one that is none of the field."""
    match field.kind, value:
        case Kind.OTHER, _:
            return value
        case Kind.TEXT, str():
            return value
        case Kind.BOOL, bool():
            return value
        case Kind.NUMBER | Kind.UNIT, int() if not isinstance(value, bool):
            return value
        # Ganeti writes a whole number without a point (contracts/ganeti-query, 2).
        case Kind.FLOAT, int() | float() if not isinstance(value, bool):
            return float(value)
        case Kind.TIMESTAMP, int() | float() if not isinstance(value, bool):
            # Rounded as it is written: a product of floats may be half a microsecond off.
            return round(round(value, 6) * _MICROSECONDS)
    raise UpstreamError(f"the cluster says that {field.name} is {str(value)[:100]!r}, which is no {field.kind}")
