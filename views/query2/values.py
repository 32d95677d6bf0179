"""Values of fields: their sources, whether stores have them, and their form in answers."""

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
"""A status (ResultStatus), and the stored value (fleetlight.resources.fields), which only NORMAL has."""

GROUPS, NETWORKS, SYSTEMS = "group", "network", "os"

FACTS: Mapping[str, Sequence[str]] = {
    GROUPS: ("name", "uuid", "node_list"),
    NETWORKS: ("uuid", "name"),
    SYSTEMS: ("name", "image_ref"),
    CLUSTER: (),
}
"""The fields to read of each item type."""

# Plain numbers, since encoding an enumeration as JSON takes five times as long.
_NORMAL = int(ResultStatus.NORMAL)
NO_DATA: Cell = (int(ResultStatus.NO_DATA), None)
UNAVAILABLE: Cell = (int(ResultStatus.UNAVAILABLE), None)
UNKNOWN: Cell = (int(ResultStatus.UNKNOWN), None)
OFFLINE: Cell = (int(ResultStatus.OFFLINE), None)

_WITH_POINT = (Kind.TIMESTAMP, Kind.FLOAT)
# Beyond it a float has no fraction.
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
    """Facts of a cell that fields of its instances need beside the record; read once per request.

    name: of the cell. is_configured_here: whether the cell has such facts, and counts the changes of its instances.
    items: records by item type, without types that were not wanted, or could not be read.
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
        """Return the default parameters of an instance; cached, since most instances have the same."""
        key = (hypervisor, system)
        if key not in self._of_hypervisors:
            self._of_hypervisors[key] = hypervisor_parameters(cluster, hypervisor, system, {})
        return self._of_hypervisors[key]


class Facts(Struct, frozen=True, gc=False):
    """The facts about one item.

    record: stored values of all fields that the values need. revision: None if changes are not numbered. cell: facts of
    its cell. cell_is_down: whether the cell does not answer, so that only stored values are known. is_past: whether the
    record is of an earlier moment, for which the same holds. seen: the nodes' report about an instance; None if its
    node has no agent.
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
    """The source of a field's value.

    needs: the fields of the record that it needs. stored: the field that it shows unchanged, so that stores have it.
    of_cell: the facts of the cell that it needs (CellFacts). is_revision: whether it needs the revision.
    is_live: whether nodes with agents are asked for it.
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
    """Return `value`, or `otherwise` if it is None."""
    return otherwise if value is None else (_NORMAL, value)


def of_record(name: str, otherwise: Cell = NO_DATA) -> Value:
    """Make the value of the stored field `name`, unchanged."""

    def make(facts: Facts) -> Cell:
        # Like `known`, without a further call for each value of each row.
        value = facts.record[name]
        return otherwise if value is None else (_NORMAL, value)

    return Value(make, frozenset({name}), stored=name)


def of_list(name: str) -> Value:
    """Make the value of the stored list `name`, empty if absent."""
    return Value(lambda facts: normal(facts.record[name] or []), frozenset({name}), stored=name)


def made_of(make: Callable[[Record], Cell], *needs: str) -> Value:
    """Make a value computed by `make` from the fields `needs` of the record."""
    return Value(lambda facts: make(facts.record), frozenset(needs))


def not_had_of_cell(facts: Facts) -> Cell:
    """Return the value of a field that needs facts of the instance's cell, if these are missing."""
    return NO_DATA if facts.cell.is_configured_here else UNAVAILABLE


def constant(cell: Cell) -> Value:
    return Value(lambda _facts: cell)


def is_of_kind(value: Any, kind: Kind) -> bool:
    """Whether a stored value is of this kind; in damaged rows it may be of another."""
    return kind not in _TYPES or type(value) is _TYPES[kind]


def as_json(cell: Cell, field: Field) -> Cell:
    """Convert a value for answers like Ganeti: times as seconds since the epoch, whole numbers without a point."""
    status, value = cell
    if value is not None and field.kind is Kind.TIMESTAMP:
        return status, seconds_of(value)
    return (status, int(value)) if field.kind is Kind.FLOAT and _is_whole(value) else cell


def seconds_of(microseconds: int) -> float:
    """Convert a moment for answers."""
    seconds, rest = divmod(microseconds, MICROSECONDS_PER_SECOND)
    return microseconds / MICROSECONDS_PER_SECOND if rest else seconds


def _is_whole(value: Any) -> bool:
    return isinstance(value, float) and value.is_integer() and abs(value) < _MOST_EXACT


def shown(make: Make, field: Field) -> Make:
    """Return a function that makes the values of a field in the form of answers."""
    return make if field.kind not in _WITH_POINT else lambda facts: as_json(make(facts), field)


Values = Mapping[str, Value]
"""By the name of the field."""


def split(node: Filter, values: Values) -> tuple[Filter, Filter]:
    """Split a filter into the part that stores evaluate, on fields of records, and the rest, for rows; both must match.

    Stores evaluate conditions on values that are shown as stored.
    """

    def is_stored(leaf: Leaf) -> bool:
        # Stores cannot even tell whether a structure exists.
        name = values[leaf.field].stored
        is_filterable = name is not None and (INSTANCE_FIELDS[name].is_sortable or INSTANCE_FIELDS[name].is_list)
        return is_filterable and not isinstance(leaf.leaf if isinstance(leaf, Not) else leaf, PythonOnlyLeaf)

    stored, rest = split_expressible(node, lambda part: all(map(is_stored, leaves(part))))
    return with_leaves(stored, lambda leaf: _renamed(leaf, values)), rest


def split_live(node: Filter, values: Values) -> tuple[Filter, Filter]:
    """Split a filter into the part without live fields, and the rest, which needs nodes' reports; both must match."""
    return split_expressible(node, lambda part: not any(values[leaf.field].is_live for leaf in leaves(part)))


def _renamed(leaf: Leaf, values: Values) -> Leaf:
    name = values[leaf.field].stored
    if name is None:
        raise AssertionError(f"'{leaf.field}' is not stored")
    if isinstance(leaf, Not):
        return replace(leaf, field=name, leaf=_renamed(leaf.leaf, values))
    return replace(leaf, field=name)
