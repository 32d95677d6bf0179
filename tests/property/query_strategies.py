"""Random records, filters, orders and positions over a small field set that has every kind."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from hypothesis import strategies as st

from fleetlight.query.filters import (
    EVERYTHING,
    And,
    Eq,
    Filter,
    Ge,
    Gt,
    Has,
    HasAddress,
    HasAny,
    HasName,
    HasNone,
    HasOneName,
    HasOtherName,
    In,
    IsFalse,
    IsNotNull,
    IsNull,
    IsTrue,
    Lacks,
    LacksAddress,
    Le,
    Leaf,
    Lt,
    Matches,
    Ne,
    NotIn,
    NotMatches,
    Or,
    negate,
    or_missing,
)
from fleetlight.query.page import PageRequest
from fleetlight.query.sort import Collation, Direction, SortKey, SortOrder
from fleetlight.resources.fields import Field, ItemType, Kind
from tests.property.reaching import keeping_filters
from tests.support.oracles.filter_oracle import expected_page, is_behind

FIELDS = ItemType(
    "thing",
    (
        Field("uuid", "UUID", Kind.TEXT, "Identifier"),
        Field("name", "Name", Kind.TEXT, "Some text"),
        Field("state", "State", Kind.TEXT, "One of few texts"),
        Field("size", "Size", Kind.NUMBER, "Some number"),
        Field("load", "Load", Kind.FLOAT, "Some number with a point"),
        Field("created_at", "Created", Kind.TIMESTAMP, "Some time"),
        Field("locked", "Locked", Kind.BOOL, "Yes or no"),
        Field("tags", "Tags", Kind.OTHER, "Some texts", is_list=True),
        Field("addresses", "Addresses", Kind.OTHER, "Some addresses of networks"),
    ),
)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

# Few values, so that rows tie and filters hit; among them what collations and encodings disagree about: case, no text,
# a space at the end, a newline, a combining mark, characters on both sides of the surrogates, and beyond 16 bits.
TEXTS = (
    "",
    "a",
    "A",
    "b",
    "B",
    "ab",
    "a ",
    "a\n",
    "é",
    "e\u0301",
    "ß",
    "\ue000",
    "\uffff",
    "😀",
    "web-1",
    "web-10",
    "web-01",
    "web-2b",
    "007",
    "a\x01",
    "\x021",
    "٣",
    "a.b",
    "A.b.c",
    "\u212a.b",
)
STATES = ("active", "error", "Error")
NUMBERS = (-(2**63) + 1, -5, -1, 0, 1, 2, 10, 2**31, 2**63 - 1)
FLOATS = (-1.5, 0.0, 0.1, 2.0, 1e300)
TIMES = (-1, 0, 1, 1_700_000_000_000_000, 1_700_000_000_000_001)
ADDRESSES: tuple[list[dict[str, str]], ...] = (
    [],
    [{"address": "10.0.0.1"}, {"address": "fd00::1", "type": "fixed"}],
    [{"address": "10.0.0.12", "type": "fixed"}, {"address": "203.0.113.9", "type": "floating"}],
)
PARTS_OF_ADDRESSES = ("10.0.0.1", "0.12", "fd00", "203", "1", "%", "\0")
TAGS = ("a", "A", "é", "😀", "x y", '"', "")

# Values that no stored value equals, or that a store has trouble with.
ODD_TEXTS = ("\0", "a\0b", "x" * 8_191, "é" * 300)
ODD_NUMBERS = (2**63, -(2**63) - 1, 2**64, 10**30, -(10**30))

_VALUES: dict[str, tuple[Any, ...]] = {
    "name": TEXTS,
    "state": STATES,
    "size": NUMBERS,
    "load": FLOATS,
    "created_at": tuple(EPOCH + timedelta(microseconds=time) for time in TIMES),
    "locked": (False, True),
}
_ODD: dict[str, tuple[Any, ...]] = {"name": ODD_TEXTS, "size": ODD_NUMBERS}
_NAMES = tuple(_VALUES)
PATTERNS = (
    "a",
    "^a",
    "b$",
    "^$",
    ".*",
    "^.$",
    "web-[0-9]+",
    r"^web-\d$",
    "a|B",
    "[^a]",
    "é|😀",
    r"\n",
    "-01-01 00:0",
    "^20",
    "-1|10",
    "7$",
    "(^|e)\u0301?$",
    "",
)

UUIDS = tuple(str(UUID(int=n * 0x1234_5678_9ABC_DEF0_1234_5678_9ABC % 2**128)) for n in range(1, 200))


def _or_null(values: Sequence[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(st.none(), st.sampled_from(values))


_rows = st.fixed_dictionaries(
    {
        "name": _or_null(TEXTS),
        "state": _or_null(STATES),
        "size": _or_null(NUMBERS),
        "load": _or_null(FLOATS),
        "created_at": _or_null(TIMES),
        "locked": _or_null((False, True)),
        "tags": st.lists(st.sampled_from(TAGS), max_size=3),
        "addresses": _or_null(ADDRESSES),
    }
)


@st.composite
def record_sets(draw: st.DrawFn, max_size: int = 12) -> list[dict[str, Any]]:
    rows = draw(st.lists(_rows, min_size=draw(st.sampled_from((0, 2, 4))), max_size=max_size))
    # Some that differ in nothing but the uuid, so that orders tie.
    rows += draw(st.lists(st.sampled_from(rows), max_size=max_size - len(rows))) if rows else []
    uuids = draw(st.permutations(UUIDS[: max(len(rows), 1)]))
    return [{"uuid": uuid, **row} for uuid, row in zip(uuids, rows, strict=False)]


@st.composite
def _leaves(draw: st.DrawFn) -> Filter:
    name = draw(st.sampled_from(_NAMES))
    value = st.sampled_from(_VALUES[name] + _ODD.get(name, ()))
    values = st.lists(value, max_size=4).map(tuple)
    compared = st.one_of(*(st.builds(leaf, st.just(name), value) for leaf in (Eq, Ne, Lt, Le, Gt, Ge)))
    listed = st.one_of(*(st.builds(leaf, st.just(name), values) for leaf in (In, NotIn)))
    null = st.one_of(*(st.builds(leaf, st.sampled_from((name, "tags"))) for leaf in (IsNull, IsNotNull)))
    text = st.sampled_from(("name", "state", "size", "created_at"))
    matched = st.one_of(*(st.builds(leaf, text, st.sampled_from(PATTERNS)) for leaf in (Matches, NotMatches)))
    held = st.one_of(*(st.builds(leaf, st.just("tags"), st.sampled_from((*TAGS, "a\0"))) for leaf in (Has, Lacks)))
    any_held = st.one_of(*(st.builds(leaf, st.just("tags")) for leaf in (HasAny, HasNone)))
    truth = st.one_of(*(st.builds(leaf, st.sampled_from((*_NAMES, "tags"))) for leaf in (IsTrue, IsFalse)))
    host = st.sampled_from(("a", "A", "a.B", "a.b.c", "web", "k", "", "a\0", "é", "x" * 300))
    named = st.one_of(*(st.builds(leaf, st.just("name"), host) for leaf in (HasName, HasOtherName)))
    several = st.builds(HasOneName, st.just("name"), st.lists(host, max_size=4).map(tuple))
    named = st.one_of(named, several, several.map(negate))
    part = st.sampled_from(PARTS_OF_ADDRESSES)
    addressed = st.one_of(*(st.builds(leaf, st.just("addresses"), part) for leaf in (HasAddress, LacksAddress)))
    leaf: Leaf = draw(st.one_of(compared, listed, null, matched, held, addressed, any_held, truth, named))
    if leaf.can_be_open and draw(st.integers(0, 9)) == 0:
        return draw(st.sampled_from((or_missing(leaf), negate(or_missing(leaf)))))
    return leaf


filters: st.SearchStrategy[Filter] = st.recursive(
    _leaves(),
    lambda inner: st.one_of(
        st.builds(And, st.lists(inner, max_size=3).map(tuple)),
        st.builds(Or, st.lists(inner, max_size=3).map(tuple)),
    ),
    max_leaves=6,
)

orders: st.SearchStrategy[SortOrder] = st.lists(
    st.builds(SortKey, st.sampled_from((*_NAMES, "uuid")), st.sampled_from(Direction), st.sampled_from(Collation)),
    max_size=3,
).map(lambda keys: SortOrder.of(FIELDS, keys))


@st.composite
def positions(draw: st.DrawFn, records: Sequence[dict[str, Any]], order: SortOrder) -> tuple[Any, ...]:
    """Mostly that of a row with others behind it; also of one that is not there."""
    if records and draw(st.integers(0, 4)) > 0:
        in_order = expected_page(records, PageRequest(EVERYTHING, order, len(records)), FIELDS)
        return order.values(draw(st.sampled_from(in_order[:-1] or in_order)))
    row = dict(draw(_rows))
    row["uuid"] = draw(st.sampled_from(UUIDS))
    return order.values(row)


@st.composite
def requests(draw: st.DrawFn, records: Sequence[dict[str, Any]]) -> PageRequest:
    order = draw(orders)
    after: tuple[Any, ...] | None = None
    wanted_rows = records
    if draw(st.integers(0, 2)):
        after = draw(positions(records, order))
        behind = [record for record in records if is_behind(record, order, after)]
        ties = [record for record in behind if record[order.keys[0].field] == after[0]]
        wanted_rows = ties or behind or records
    wanted = draw(keeping_filters(wanted_rows, FIELDS, (*_NAMES, "tags"), filters))
    return PageRequest(wanted, order, draw(st.integers(1, 5)), after)
