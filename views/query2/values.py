"""Values of fields: what each is made of, and how an answer carries it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from msgspec import Struct

from fleetlight.resources.fields import Field, Kind, Record
from fleetlight.resources.query_fields.definitions import ResultStatus
from fleetlight.resources.query_fields.instance_status import Seen
from fleetlight.resources.units import MICROSECONDS_PER_SECOND
from fleetlight.views.query2.cell_facts import CellFacts

Cell = tuple[int, Any]
"""A status (CellStatus), and the stored value (fleetlight.resources.fields) that only NORMAL has."""

# Plain numbers: to write an enumeration as JSON takes five times as long.
_NORMAL = int(ResultStatus.NORMAL)
NO_DATA: Cell = (int(ResultStatus.NO_DATA), None)
UNAVAILABLE: Cell = (int(ResultStatus.UNAVAILABLE), None)
UNKNOWN: Cell = (int(ResultStatus.UNKNOWN), None)
OFFLINE: Cell = (int(ResultStatus.OFFLINE), None)

_WITH_POINT = (Kind.TIMESTAMP, Kind.FLOAT)
# Beyond it a number has no digits behind the point, and many before it.
_MOST_EXACT = 2**53

_TYPES: Mapping[Kind, type] = {
    Kind.TEXT: str,
    Kind.BOOL: bool,
    Kind.NUMBER: int,
    Kind.UNIT: int,
    Kind.FLOAT: float,
    Kind.TIMESTAMP: int,
}


class Facts(Struct, frozen=True, gc=False):
    """What there is of one item.

    record: stored values of all fields that the values need. revision: None where changes are not numbered. cell: what
    is known of its cell. cell_is_down: whether the cell does not answer, so that only what is stored is known. is_past:
    whether the record is of an earlier moment, of which only what was stored is known. seen: what nodes say of an
    instance; None where its node has no agent.
    """

    record: Record
    revision: int | None
    cell: CellFacts
    cell_is_down: bool = False
    is_past: bool = False
    seen: Seen | None = None


Make = Callable[[Facts], Cell]


@dataclass(frozen=True, slots=True)
class Value:
    """How the cell of a field comes about.

    needs: the fields of the record that it is made of. stored: the one that it is, so that a store can be asked for it.
    of_cell: what it is made of beside (fleetlight.views.query2.cell_facts). is_revision: whether it is made of the
        revision.
    is_live: whether nodes are asked for it, those that have an agent.
    """

    make: Make
    needs: frozenset[str] = frozenset()
    stored: str | None = None
    of_cell: frozenset[str] = frozenset()
    is_revision: bool = False
    is_live: bool = False


def normal(value: Any) -> Cell:
    return _NORMAL, value


def known(value: Any, otherwise: Cell = NO_DATA) -> Cell:
    """`value`, or `otherwise` where there is none."""
    return otherwise if value is None else (_NORMAL, value)


def of_record(name: str, otherwise: Cell = NO_DATA) -> Value:
    """The stored field `name`, as it is."""

    def make(facts: Facts) -> Cell:
        # As `known`, without one more call for each cell of each row.
        value = facts.record[name]
        return otherwise if value is None else (_NORMAL, value)

    return Value(make, frozenset({name}), stored=name)


def of_list(name: str) -> Value:
    """The stored list `name`, empty where it is absent."""
    return Value(lambda facts: normal(facts.record[name] or []), frozenset({name}), stored=name)


def made_of(make: Callable[[Record], Cell], *needs: str) -> Value:
    """What `make` makes of the record, of which it reads the fields `needs`."""
    return Value(lambda facts: make(facts.record), frozenset(needs))


def not_had_of_cell(facts: Facts) -> Cell:
    """The cell of what other rows of the instance's cell say, where they could not be read or there are none."""
    return NO_DATA if facts.cell.is_configured_here else UNAVAILABLE


def constant(cell: Cell) -> Value:
    return Value(lambda _facts: cell)


def is_of_kind(value: Any, kind: Kind) -> bool:
    """Whether a stored value is one of a field of this kind; of damaged rows it may be another."""
    return kind not in _TYPES or type(value) is _TYPES[kind]


def as_json(cell: Cell, field: Field) -> Cell:
    """The cell as answers carry it: times as seconds since the epoch, and whole numbers without a point, as Ganeti."""
    status, value = cell
    if value is not None and field.kind is Kind.TIMESTAMP:
        return status, seconds_of(value)
    return (status, int(value)) if field.kind is Kind.FLOAT and _is_whole(value) else cell


def seconds_of(microseconds: int) -> float:
    """A moment as answers carry it."""
    seconds, rest = divmod(microseconds, MICROSECONDS_PER_SECOND)
    return microseconds / MICROSECONDS_PER_SECOND if rest else seconds


def _is_whole(value: Any) -> bool:
    return isinstance(value, float) and value.is_integer() and abs(value) < _MOST_EXACT


def shown(make: Make, field: Field) -> Make:
    """Makes the cells of a field as answers carry them."""
    return make if field.kind not in _WITH_POINT else lambda facts: as_json(make(facts), field)


Values = Mapping[str, Value]
"""By the name of the field."""
