"""Random fleets of instances, and random requests for lists of them."""

from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Any

from hypothesis import strategies as st

from fleetlight.manager.operations.actions.new_instance import new_record
from fleetlight.query.filters import (
    And,
    Eq,
    Filter,
    Ge,
    Has,
    HasAddress,
    In,
    IsNotNull,
    IsNull,
    Lacks,
    LacksAddress,
    Le,
    Matches,
    Ne,
    NotMatches,
    Or,
)
from fleetlight.query.page import PageRequest
from fleetlight.query.sort import Collation, Direction, SortKey, SortOrder
from fleetlight.resources.fields import from_microseconds
from fleetlight.resources.instance import INSTANCE_FIELDS
from tests.property.query_strategies import TAGS, TEXTS, TIMES
from tests.property.reaching import keeping_filters

CELLS = ("east", "north", "west")
_HOSTS = ("host1", "host2", "Host1")
_STATES = ("active", "error", "stopped")
_PATTERNS = ("^a", "web-[0-9]+$", "B|é", "^$", "a ")
_ADDRESSES = tuple(
    {"label": "private", "address": address, "version": 4, "mac": "fa:16:3e:4c:2c:30", "type": type_}
    for address, type_ in (("10.0.0.1", "fixed"), ("192.168.0.2", "fixed"), ("203.0.113.1", "floating"))
)
_numbers = count()


def _flavor(memory_mb: int, gb: int) -> dict[str, Any]:
    sizes = {"memory_mb": memory_mb, "vcpus": 1 + gb, "root_gb": 0, "ephemeral_gb": gb, "swap": memory_mb}
    return {"flavorid": f"{memory_mb}.{gb}", "name": "m1", **sizes}


_changes = st.fixed_dictionaries(
    {
        "display_name": st.one_of(st.none(), st.sampled_from(TEXTS)),
        "host": st.one_of(st.none(), st.sampled_from(_HOSTS)),
        "vm_state": st.sampled_from(_STATES),
        "created_at": st.sampled_from(TIMES),
        "updated_at": st.one_of(st.none(), st.sampled_from(TIMES)),
        "progress": st.one_of(st.none(), st.integers(-2, 2)),
        "deleted": st.booleans(),
        "locked": st.booleans(),
        "project_id": st.sampled_from(("demo", "other")),
        "tags": st.lists(st.sampled_from(TAGS), max_size=2),
        "ip_addresses": st.lists(st.sampled_from(_ADDRESSES), max_size=2),
        "flavor": st.none() | st.builds(_flavor, st.sampled_from((512, 1024)), st.integers(0, 2)),
    }
)


@st.composite
def fleets(draw: st.DrawFn) -> dict[str, list[dict[str, Any]]]:
    """Records by cell. Uuids differ from those of every other example, and sort in a drawn order."""
    drawn = draw(
        st.lists(st.tuples(st.sampled_from(CELLS), _changes), min_size=draw(st.sampled_from((8, 4, 0))), max_size=14)
    )
    places = draw(st.permutations(range(len(drawn))))
    example = next(_numbers)
    rows: dict[str, list[dict[str, Any]]] = {cell: [] for cell in CELLS}
    for (cell, changes), place in zip(drawn, places, strict=True):
        rows[cell].append(new_record({**changes, "uuid": f"{place:08x}-0000-4000-8000-{example:012x}"}, now=0))
    return rows


def _either(
    leaf_types: Sequence[Callable[..., Filter]], *arguments: st.SearchStrategy[Any]
) -> st.SearchStrategy[Filter]:
    return st.one_of([st.builds(leaf_type, *arguments) for leaf_type in leaf_types])


_leaves: st.SearchStrategy[Filter] = st.one_of(
    _either((Eq, Ne), st.just("display_name"), st.sampled_from(TEXTS)),
    st.builds(In, st.just("host"), st.lists(st.sampled_from(_HOSTS), max_size=2).map(tuple)),
    _either((IsNull, IsNotNull), st.sampled_from(("host", "updated_at", "display_name"))),
    _either((Le, Ge), st.sampled_from(("created_at", "updated_at")), st.sampled_from(TIMES).map(from_microseconds)),
    _either((Le, Ge, Ne), st.just("progress"), st.integers(-2, 2)),
    _either((Le, Ge, Ne), st.sampled_from(("memory_mb", "disk_usage")), st.sampled_from((512, 1536))),
    st.builds(Eq, st.sampled_from(("deleted", "locked")), st.booleans()),
    _either((Matches, NotMatches), st.just("display_name"), st.sampled_from(_PATTERNS)),
    _either((Has, Lacks), st.just("tags"), st.sampled_from(TAGS)),
    _either((Matches, NotMatches), st.sampled_from(("progress", "updated_at")), st.sampled_from(("^1", "2$"))),
    _either((HasAddress, LacksAddress), st.just("ip_addresses"), st.sampled_from(("10.0", "1"))),
)
filters: st.SearchStrategy[Filter] = st.recursive(
    _leaves,
    lambda inner: st.one_of(
        st.builds(And, st.lists(inner, max_size=3).map(tuple)),
        st.builds(Or, st.lists(inner, max_size=3).map(tuple)),
    ),
    max_leaves=4,
)
# Keys that no operation changes. A marker stands for where its row sorts now (contracts/nova-servers, section 13), so
# one that was renamed in the meantime moves the page in a list by name.
_LASTING_KEYS = ("created_at", "progress", "uuid")
_KEYS = (*_LASTING_KEYS, "display_name", "host", "updated_at", "locked", "memory_mb", "vcpus", "disk_usage")


def _orders(keys: Sequence[str]) -> st.SearchStrategy[SortOrder]:
    key = st.builds(SortKey, st.sampled_from(keys), st.sampled_from(Direction), st.sampled_from(Collation))
    return st.lists(key, max_size=3).map(lambda keys: SortOrder.of(INSTANCE_FIELDS, keys))


orders = _orders(_KEYS)
_tying_orders = st.builds(
    lambda *keys: SortOrder.of(INSTANCE_FIELDS, keys),
    st.builds(SortKey, st.sampled_from(("locked", "host", "created_at")), st.sampled_from(Direction)),
    st.builds(SortKey, st.sampled_from(_KEYS), st.sampled_from(Direction)),
)
lasting_orders = _orders(_LASTING_KEYS)
_FILTERED = (
    *("display_name", "host", "vm_state", "created_at", "updated_at", "progress", "deleted", "locked", "project_id"),
    "tags",
)


@st.composite
def requests(draw: st.DrawFn, rows: Mapping[str, Sequence[dict[str, Any]]]) -> PageRequest:
    """Mostly of a list that has some of the rows, on more than one page."""
    wanted = draw(keeping_filters(all_of_them(rows), INSTANCE_FIELDS, _FILTERED, filters))
    return PageRequest(wanted, draw(st.one_of(_tying_orders, orders)), draw(st.integers(1, 3)))


lists = fleets().flatmap(lambda rows: st.tuples(st.just(rows), requests(rows)))
"""A fleet, and a request for a list of it."""


def all_of_them(rows: Mapping[str, Sequence[dict[str, Any]]]) -> list[dict[str, Any]]:
    """The records of every cell."""
    return [record for records in rows.values() for record in records]
