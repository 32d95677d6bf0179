"""An index of watches by field values, so that a change is checked only against watches that it may concern.

Each condition is indexed by one of its parts that names the values of a field (its anchor). If a row has none of these
values before or after a change, the condition is not evaluated. Watches with equal conditions share the evaluation.
"""

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from fleetlight.cells.errors import UnreadableRowError
from fleetlight.listing.watches.changelogs import ChangedItem
from fleetlight.listing.watches.watched_list import Condition, Effect, WatchedList, effect_of
from fleetlight.query.filters import And, Eq, Filter, Has, HasName, In, IsNull, Or, all_of
from fleetlight.resources.fields import Kind, Record
from fleetlight.resources.instance import INSTANCE_FIELDS

_FEW_FIRST = ("uuid", "display_name", "host", "node", "user_id", "project_id")


class Watching(Protocol):
    """A reader of a list."""

    @property
    def watched(self) -> WatchedList: ...


W = TypeVar("W", bound=Watching)


@dataclass(frozen=True, slots=True)
class _Label:
    """The first label of a host name, which abbreviations share with the full name."""

    text: str


@dataclass(frozen=True, slots=True)
class Anchor:
    """A field, and the values of which it has one wherever the condition is true."""

    field: str
    values: Set[Hashable]


@dataclass(slots=True)
class _Group(Generic[W]):
    """Watches of lists with one condition. by_wanted, by_visible: anchors of the listed and of the visible items."""

    condition: Condition
    by_wanted: Anchor | None
    by_visible: Anchor | None
    members: set[W] = field(default_factory=set)


class _Anchored(Generic[W]):
    """Groups of watches, indexed by one of their anchors."""

    def __init__(self) -> None:
        self._by_value: dict[str, dict[Hashable, dict[int, _Group[W]]]] = {}
        self._others: dict[int, _Group[W]] = {}

    def add(self, anchor: Anchor | None, group: _Group[W]) -> None:
        for groups in self._places(anchor):
            groups[id(group)] = group

    def remove(self, anchor: Anchor | None, group: _Group[W]) -> None:
        for groups in self._places(anchor):
            groups.pop(id(group), None)
        if anchor is None:
            return
        by_value = self._by_value[anchor.field]
        for value in anchor.values:
            if not by_value.get(value, True):
                del by_value[value]
        if not by_value:
            del self._by_value[anchor.field]

    def of(self, records: Iterable[Record]) -> Mapping[int, _Group[W]]:
        """Return the groups whose condition may be true of a record. Raises UnreadableRowError for a damaged one."""
        found = dict(self._others)
        for record in records:
            for name, by_value in self._by_value.items():
                for value in _values_of(record[name]):
                    found |= by_value.get(value, {})
        return found

    def _places(self, anchor: Anchor | None) -> Iterator[dict[int, _Group[W]]]:
        if anchor is None:
            yield self._others
            return
        by_value = self._by_value.setdefault(anchor.field, defaultdict(dict))
        yield from (by_value[value] for value in anchor.values)


class WatchIndex(Generic[W]):
    """All watches of a feed."""

    def __init__(self) -> None:
        self._groups: dict[Condition, _Group[W]] = {}
        self._by_type: defaultdict[str, tuple[_Anchored[W], _Anchored[W]]] = defaultdict(
            lambda: (_Anchored(), _Anchored())
        )

    def __bool__(self) -> bool:
        return bool(self._groups)

    def __iter__(self) -> Iterator[W]:
        return iter([watch for group in self._groups.values() for watch in group.members])

    def add(self, watch: W) -> None:
        condition = watch.watched.condition
        group = self._groups.get(condition)
        if group is None:
            visible = _anchor_of(condition.visible, condition.item_type)
            wanted = _anchor_of(all_of(condition.wanted, condition.visible), condition.item_type)
            group = self._groups[condition] = _Group(condition, wanted, visible)
            by_wanted, by_visible = self._by_type[condition.item_type]
            by_wanted.add(wanted, group)
            by_visible.add(visible, group)
        group.members.add(watch)

    def discard(self, watch: W) -> None:
        condition = watch.watched.condition
        group = self._groups.get(condition)
        if group is None or watch not in group.members:
            return
        group.members.remove(watch)
        if not group.members:
            del self._groups[condition]
            by_wanted, by_visible = self._by_type[condition.item_type]
            by_wanted.remove(group.by_wanted, group)
            by_visible.remove(group.by_visible, group)

    def clear(self) -> None:
        self._groups.clear()
        self._by_type.clear()

    def concerned(self, change: ChangedItem) -> Iterator[tuple[W, Effect]]:
        """Yield each watch that the change concerns, with its effect there."""
        for group in self._may_be_concerned(change):
            effect = effect_of(change, next(iter(group.members)).watched)
            if effect is not Effect.NOTHING:
                yield from ((watch, effect) for watch in tuple(group.members))

    def _may_be_concerned(self, change: ChangedItem) -> Iterable[_Group[W]]:
        if change.row is None or change.item_type not in self._by_type:
            return ()
        by_wanted, by_visible = self._by_type[change.item_type]
        try:
            if change.before is not None:
                return by_wanted.of((change.row.record, change.before)).values()
            if change.is_new:
                return by_wanted.of((change.row.record,)).values()
            # The record before is unknown: report a possible removal to every list that could have shown the item.
            return by_visible.of((change.row.record,)).values()
        except UnreadableRowError:
            return tuple(group for group in self._groups.values() if group.condition.item_type == change.item_type)


def _anchor_of(node: Filter, item_type: str) -> Anchor | None:
    """Choose the most selective anchor of a conjunction; None for nodes, which change too seldom to be indexed."""
    if item_type != INSTANCE_FIELDS.name:
        return None
    parts = node.terms if isinstance(node, And) else (node,)
    found = [anchor for part in parts if (anchor := _anchor_of_part(part)) is not None]
    return min(found, key=_instances_of, default=None)


def _instances_of(anchor: Anchor) -> int:
    """Rank an anchor: the smaller, the fewer instances share a value of its field."""
    return _FEW_FIRST.index(anchor.field) if anchor.field in _FEW_FIRST else len(_FEW_FIRST)


def _anchor_of_part(part: Filter) -> Anchor | None:
    match part:
        case Eq(name, value) if INSTANCE_FIELDS[name].kind is not Kind.BOOL:
            return Anchor(name, frozenset({INSTANCE_FIELDS[name].stored(value)}))
        case In(name, values):
            return Anchor(name, frozenset(INSTANCE_FIELDS[name].stored(value) for value in values))
        case HasName(name, text):
            return Anchor(name, frozenset({_label_of(text)}))
        case Has(name, element):
            return Anchor(name, frozenset({element}))
        case IsNull(name):
            return Anchor(name, frozenset({None}))
        case Or(terms) if terms:
            return _anchor_of_all(terms)
    return None


def _anchor_of_all(terms: Iterable[Filter]) -> Anchor | None:
    """Return the anchor of a disjunction; None unless all its terms are about one field."""
    anchors = [_anchor_of_part(term) for term in terms]
    found = [anchor for anchor in anchors if anchor is not None]
    if len(found) < len(anchors) or len({anchor.field for anchor in found}) > 1:
        return None
    return Anchor(found[0].field, frozenset().union(*(anchor.values for anchor in found)))


def _values_of(value: object) -> Iterator[Hashable]:
    """Yield the anchor values under which a record's value is indexed."""
    if isinstance(value, list):
        yield from (element for element in value if isinstance(element, str))
    elif isinstance(value, str):
        yield value
        yield _label_of(value)
    elif isinstance(value, Hashable):
        yield value


def _label_of(name: str) -> _Label:
    return _Label(name.partition(".")[0].lower())
