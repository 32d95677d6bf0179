"""Random conditions and changes: the index finds the watches that looking at each one of them finds."""

from collections.abc import Sequence
from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from fleetlight.cells.epochs import Position
from fleetlight.cells.model import DamagedRecord, InstanceRow
from fleetlight.listing.watches.changelogs import ChangedItem
from fleetlight.listing.watches.watch_index import WatchIndex
from fleetlight.listing.watches.watched_list import ChangeKind, Condition, CoveredCell, Effect, effect_of
from fleetlight.query.evaluate import matcher
from fleetlight.query.filters import EVERYTHING, And, Eq, Filter, Has, HasName, In, IsNull, Ne, Or, negate, or_missing
from fleetlight.resources.fields import Record
from fleetlight.resources.instance import INSTANCE_FIELDS
from tests.support.examples import examples
from tests.support.fleets.documents import make_record

NAMES = ("web", "web.a", "WEB.b.c", "web.a.d", "db", "")
HOSTS = ("node-1", "Node-1", "node-2")


class Listed:
    """A WatchedList of which only the condition counts."""

    def __init__(self, condition: Condition) -> None:
        self.condition = condition
        self._visible = matcher(condition.visible, INSTANCE_FIELDS)
        self._wanted = matcher(condition.wanted, INSTANCE_FIELDS)

    def shows(self, row: InstanceRow) -> bool:
        return self._visible(row.record)

    def has(self, row: InstanceRow) -> bool:
        return self._wanted(row.record)

    def event(self, kind: ChangeKind, change: ChangedItem, row: InstanceRow) -> tuple[str, bytes]:
        raise AssertionError("nothing is said")

    def coverage(self, cells: Sequence[CoveredCell], cursor: str | None) -> bytes:
        raise AssertionError("nothing is said")


@dataclass(frozen=True, eq=False)
class Watching:
    watched: Listed


leaves = st.one_of(
    st.sampled_from(NAMES).map(lambda name: HasName("display_name", name)),
    st.sampled_from(NAMES).map(lambda name: Eq("display_name", name)),
    st.sampled_from(HOSTS).map(lambda host: Eq("host", host)),
    st.sampled_from(HOSTS).map(lambda host: Ne("host", host)),
    st.lists(st.sampled_from(HOSTS), max_size=2).map(lambda hosts: In("host", tuple(hosts))),
    st.sampled_from(["blue", "red"]).map(lambda tag: Has("tags", tag)),
    st.sampled_from([IsNull("host"), IsNull("tags"), Eq("locked", True), Eq("power_state", 1)]),
)
parts = st.one_of(leaves, leaves.map(or_missing), leaves.map(negate))
filters: st.SearchStrategy[Filter] = st.recursive(
    parts,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda terms: And(tuple(terms))),
        st.lists(inner, max_size=3).map(lambda terms: Or(tuple(terms))),
    ),
    max_leaves=5,
)
scopes = st.sampled_from([EVERYTHING, Eq("project_id", "demo"), Eq("project_id", "other")])
conditions = st.builds(lambda visible, wanted: Condition("instance", None, visible, wanted), scopes, filters)
records = st.builds(
    lambda name, host, tags, project, locked: make_record(
        display_name=name, host=host, tags=tags, project_id=project, locked=locked
    ),
    st.sampled_from([*NAMES, None]),
    st.sampled_from([*HOSTS, None]),
    st.lists(st.sampled_from(["blue", "red"]), max_size=2),
    st.sampled_from(["demo", "other"]),
    st.booleans(),
)


def change(record: Record, before: Record | None, how: str) -> ChangedItem:
    row = InstanceRow("cell", 2, record)
    return ChangedItem(
        "cell", Position(None, 1), row, is_gone=how == "gone", is_new=how == "new", before=before if how == "" else None
    )


changes = st.builds(change, records, st.one_of(st.none(), records), st.sampled_from(["", "gone", "new"]))


@settings(max_examples=examples(150), deadline=None)
@given(st.lists(conditions, max_size=8), st.lists(changes, max_size=6))
def test_index_finds_the_watches_that_a_look_at_each_finds(
    asked: Sequence[Condition], happening: Sequence[ChangedItem]
) -> None:
    index = WatchIndex[Watching]()
    watches = [Watching(Listed(condition)) for condition in asked]
    for watch in watches:
        index.add(watch)
    # Of those that have left nothing is left behind.
    for gone in watches[::3]:
        index.discard(gone)
        index.discard(gone)
    there = [watch for watch in watches if watch not in watches[::3]]
    assert set(index) == set(there)
    for each in happening:
        effects = {watch: effect_of(each, watch.watched) for watch in there}
        expected = {watch: effect for watch, effect in effects.items() if effect is not Effect.NOTHING}
        assert dict(index.concerned(each)) == expected


def watching(wanted: Filter, item_type: str = "instance", visible: Filter = EVERYTHING) -> Watching:
    return Watching(Listed(Condition(item_type, None, visible, wanted)))


def test_only_conditions_that_may_be_true_are_looked_at() -> None:
    index = WatchIndex[Watching]()
    for number in range(100):
        index.add(watching(And((Eq("vm_state", "active"), HasName("display_name", f"web-{number}")))))
        index.add(watching(HasName("display_name", f"web-{number}"), visible=Eq("project_id", f"project-{number}")))
    index.add(watching(EVERYTHING, item_type="node"))
    seen: list[str] = []
    record = CountedRecord(make_record(display_name="db", vm_state="error"), seen)
    assert list(index.concerned(change(record, make_record(display_name="db", vm_state="error"), ""))) == []
    assert len(seen) <= 2, "a look at each field by which there is something, and none at the conditions"


def test_equal_conditions_are_looked_at_once() -> None:
    def reads_of(count: int) -> int:
        index = WatchIndex[Watching]()
        for _ in range(count):
            index.add(watching(Ne("host", "node-1")))
        seen: list[str] = []
        record = CountedRecord(make_record(host="node-2"), seen)
        assert len(dict(index.concerned(change(record, None, "new")))) == count
        return len(seen)

    assert reads_of(50) == reads_of(1) > 0


def test_damaged_row_is_a_matter_of_all_that_may_have_it() -> None:
    index = WatchIndex[Watching]()
    watch = watching(Eq("host", "node-1"))
    index.add(watch)
    record = DamagedRecord("cell", {"uuid": "1"}, "it is damaged")
    assert dict(index.concerned(change(record, None, ""))) == {watch: Effect.UNKNOWN}


class CountedRecord(dict[str, object]):
    """A record that notes which of its fields are read."""

    def __init__(self, record: Record, seen: list[str]) -> None:
        super().__init__(record)
        self._seen = seen

    def __getitem__(self, name: str) -> object:
        self._seen.append(name)
        return super().__getitem__(name)
