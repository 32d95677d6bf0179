"""Values of fields: what each is made of, what a store knows of it, and how an answer carries it."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from msgspec import Struct

from fleetlight.query.filters import Filter, Leaf, Not, leaves, split_expressible, with_leaves
from fleetlight.query.operators.anything import PythonOnlyLeaf
from fleetlight.resources.fields import Field, Kind, Record
from fleetlight.resources.instance import INSTANCE_FIELDS
from fleetlight.resources.query_fields.cluster_parameters import CLUSTER, Parameters, hypervisor_parameters
from fleetlight.resources.query_fields.definitions import ResultStatus
from fleetlight.resources.query_fields.instance_status import Seen
from fleetlight.resources.units import MICROSECONDS_PER_SECOND

Items = Mapping[str, Mapping[str, Sequence[Record]]]
"""Records by the uuid of the cell, then by item type."""


Cell = tuple[int, Any]
"""A status (CellStatus), and the stored value (fleetlight.resources.fields) that only NORMAL has."""

GROUPS, NETWORKS, SYSTEMS = "group", "network", "os"

FACTS: Mapping[str, Sequence[str]] = {
    GROUPS: ("name", "uuid", "node_list"),
    NETWORKS: ("uuid", "name"),
    SYSTEMS: ("name", "image_ref"),
    CLUSTER: (),
}
"""By the item type that a cell is asked for, the fields that are read of it."""

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


class Group(NamedTuple):
    """The node group of a node."""

    name: str
    uuid: str


class CellFacts:
    """What the fields of a cell's instances need beside their records: read once for each request, never per row.

    name: of the cell. is_configured_here: whether it has such facts at all, and counts the changes of its instances.

    items: by item type, the records that were read; a type that was not asked for, or could not be read, is not there.
    """

    def __init__(
        self, name: str, *, is_configured_here: bool = False, items: Mapping[str, Iterable[Record]] | None = None
    ) -> None:
        found = items or {}
        self.name = name
        self.is_configured_here = is_configured_here
        self.groups: Mapping[str, Group] | None = None
        if GROUPS in found:
            self.groups = {
                node: Group(group["name"], group["uuid"]) for group in found[GROUPS] for node in group["node_list"]
            }
        self.networks: Mapping[str, str] | None = None
        if NETWORKS in found:
            self.networks = {network["uuid"]: network["name"] for network in found[NETWORKS]}
        self.systems: Mapping[str, str] | None = None
        if SYSTEMS in found:
            self.systems = {system["image_ref"]: system["name"] for system in found[SYSTEMS]}
        self.cluster: Parameters | None = next(iter(found.get(CLUSTER, ())), None)
        self._of_hypervisors: dict[tuple[str, str | None], Parameters] = {}

    def hypervisor_parameters(self, cluster: Parameters, hypervisor: str, system: str | None) -> Parameters:
        """Those that an instance has before any are set on it; most instances have the same."""
        key = (hypervisor, system)
        if key not in self._of_hypervisors:
            self._of_hypervisors[key] = hypervisor_parameters(cluster, hypervisor, system, {})
        return self._of_hypervisors[key]


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
    of_cell: what it is made of beside (CellFacts). is_revision: whether it is made of the
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


def split(node: Filter, values: Values) -> tuple[Filter, Filter]:
    """The filter on fields of records that stores answer, and the rest that rows are tried by; both are to be true.

    Stores answer what is about values that are stored as they are shown.
    """

    def is_stored(leaf: Leaf) -> bool:
        # Of a structure stores cannot even say whether it is there.
        name = values[leaf.field].stored
        is_filterable = name is not None and (INSTANCE_FIELDS[name].is_sortable or INSTANCE_FIELDS[name].is_list)
        return is_filterable and not isinstance(leaf.leaf if isinstance(leaf, Not) else leaf, PythonOnlyLeaf)

    stored, rest = split_expressible(node, lambda part: all(map(is_stored, leaves(part))))
    return with_leaves(stored, lambda leaf: _renamed(leaf, values)), rest


def split_live(node: Filter, values: Values) -> tuple[Filter, Filter]:
    """The filter that is tried before nodes are asked, and the rest, which needs what they say; both are to be true."""
    return split_expressible(node, lambda part: not any(values[leaf.field].is_live for leaf in leaves(part)))


def _renamed(leaf: Leaf, values: Values) -> Leaf:
    name = values[leaf.field].stored
    if name is None:
        raise AssertionError(f"'{leaf.field}' is not stored")
    if isinstance(leaf, Not):
        return replace(leaf, field=name, leaf=_renamed(leaf.leaf, values))
    return replace(leaf, field=name)
