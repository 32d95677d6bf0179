"""What an index need not have: which rows those are, and which requests may want one."""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetlight.listing.answer import Consistency
from fleetlight.query.filters import Eq, Filter, Ge, Gt, IsNotNull, IsNull, Le, Lt, Ne, all_of, any_of, negate
from fleetlight.query.page import PageRequest
from fleetlight.query.retention import forgotten, may_match_forgotten, remembered
from fleetlight.resources.fields import from_microseconds
from fleetlight.resources.instance import INSTANCE_FIELDS
from tests.property.instance_strategies import CELLS, all_of_them, fleets, orders
from tests.property.instance_strategies import filters as any_filters
from tests.property.reaching import shares
from tests.property.test_list_routes import fleet
from tests.support.fleets.documents import make_record
from tests.support.fleets.list_routes import ListedFleet
from tests.support.oracles.filter_oracle import expected_page, is_kept

__all__ = ["fleet"]

_MOMENTS = (1, 2_000_000, 2_000_001, 5_000_000)
_moments = st.one_of(st.none(), st.sampled_from(_MOMENTS))
horizons = st.sampled_from((0, *_MOMENTS))
rows = st.builds(
    make_record,
    deleted=st.one_of(st.none(), st.booleans()),
    deleted_at=_moments,
    updated_at=_moments,
    host=st.sampled_from(("a", None)),
)
_times = st.sampled_from(_MOMENTS).map(from_microseconds)
_leaves: st.SearchStrategy[Filter] = st.one_of(
    *(
        st.builds(leaf, st.sampled_from(("deleted_at", "updated_at", "created_at")), _times)
        for leaf in (Eq, Ne, Lt, Le, Gt, Ge)
    ),
    *(st.builds(leaf, st.just("deleted"), st.booleans()) for leaf in (Eq, Ne)),
    *(
        st.builds(leaf, st.sampled_from(("deleted", "deleted_at", "updated_at", "host")))
        for leaf in (IsNull, IsNotNull)
    ),
)
filters = st.recursive(
    _leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda terms: all_of(*terms)),
        st.lists(inner, max_size=3).map(lambda terms: any_of(*terms)),
        inner.map(negate),
    ),
    max_leaves=6,
)


@given(row=rows, horizon=horizons)
def test_every_row_is_either_forgotten_or_remembered(row: dict[str, Any], horizon: int) -> None:
    is_forgotten = is_kept(forgotten(horizon), row, INSTANCE_FIELDS)
    assert is_kept(remembered(horizon), row, INSTANCE_FIELDS) is not is_forgotten
    if is_forgotten:
        assert row["deleted"]
        assert row["deleted_at"] < horizon


def test_row_that_was_deleted_before_updates_were_noted_is_forgotten() -> None:
    row = make_record(deleted=True, deleted_at=1, updated_at=None)
    assert is_kept(forgotten(2), row, INSTANCE_FIELDS)
    assert not is_kept(remembered(2), row, INSTANCE_FIELDS)


_forgotten_rows = st.builds(
    make_record,
    deleted=st.just(True),
    deleted_at=st.sampled_from(_MOMENTS[:2]),
    updated_at=st.sampled_from((None, *_MOMENTS[:2])),
    host=st.sampled_from(("a", None)),
)
_LATER = from_microseconds(_MOMENTS[2])
# What no row is that was forgotten before then, and what may be one.
_never: st.SearchStrategy[Filter] = st.sampled_from(
    (
        *(leaf(field, _LATER) for field in ("deleted_at", "updated_at") for leaf in (Eq, Ge, Gt)),
        *(Eq("deleted", False), Ne("deleted", True), IsNull("deleted"), IsNull("deleted_at")),
    )
)
_excluding = st.recursive(
    _never,
    lambda inner: st.one_of(
        st.builds(all_of, inner, filters),
        st.builds(all_of, filters, inner),
        st.builds(any_of, inner, inner),
    ),
    max_leaves=4,
)
_about_forgotten = st.tuples(_forgotten_rows, st.one_of(filters, _excluding))


@given(drawn=_about_forgotten)
def test_request_that_may_not_want_forgotten_rows_matches_none(drawn: tuple[dict[str, Any], Filter]) -> None:
    row, node = drawn
    assert is_kept(forgotten(_MOMENTS[2]), row, INSTANCE_FIELDS)
    if not may_match_forgotten(node, _MOMENTS[2]):
        assert not is_kept(node, row, INSTANCE_FIELDS)


def test_rows_that_are_forgotten_meet_requests_that_do_not_want_them_and_such_as_do() -> None:
    reached = shares(_about_forgotten, _reached)
    assert reached["not wanted"] >= 30
    assert reached["wanted"] >= 5


def _reached(drawn: tuple[dict[str, Any], Filter]) -> Iterator[str]:
    row, node = drawn
    if not may_match_forgotten(node, _MOMENTS[2]):
        yield "not wanted"
    if is_kept(node, row, INSTANCE_FIELDS):
        yield "wanted"


@pytest.mark.parametrize(
    "node",
    [
        Eq("deleted", False),
        all_of(Eq("project_id", "demo"), Eq("deleted", False)),
        all_of(Eq("deleted", True), Ge("updated_at", from_microseconds(1000))),
        Ge("updated_at", from_microseconds(1000)),
        IsNull("deleted"),
        IsNull("deleted_at"),
        all_of(any_of(Eq("deleted", False), Gt("deleted_at", from_microseconds(2000))), Eq("host", "a")),
    ],
)
def test_usual_lists_are_answered_by_an_index_with_a_horizon(node: Filter) -> None:
    assert not may_match_forgotten(node, 1000)


@pytest.mark.parametrize(
    "node",
    [
        Eq("deleted", True),
        Ge("updated_at", from_microseconds(999)),
        Eq("host", "a"),
        Le("updated_at", from_microseconds(2000)),
        IsNull("updated_at"),
    ],
)
def test_lists_that_reach_before_the_horizon_are_not(node: Filter) -> None:
    assert may_match_forgotten(node, 1000)


@given(drawn=fleets(), deleted_at=st.lists(_moments, min_size=14, max_size=14), data=st.data())
def test_list_is_the_same_by_every_route_around_the_horizon(
    fleet: ListedFleet, drawn: dict[str, list[dict[str, Any]]], deleted_at: list[int | None], data: st.DataObject
) -> None:
    for record, moment in zip(all_of_them(drawn), deleted_at, strict=False):
        record["deleted_at"] = moment
    fleet.fill(drawn)
    horizon = {name: data.draw(horizons, name) for name in CELLS}
    for name in CELLS:
        fleet.purge(name, horizon[name])
    node = data.draw(st.one_of(filters, any_filters), "filter")
    request = PageRequest(node, data.draw(orders, "order"), limit=data.draw(st.integers(1, 6), "limit"))
    records = all_of_them(drawn)
    everything = PageRequest(node, request.order, len(records) + 1)
    expected = [record["uuid"] for record in expected_page(records, everything, INSTANCE_FIELDS)]
    for consistency in (Consistency.ANY, Consistency.BOUNDED, Consistency.STRONG):
        found: list[str] = []
        page_request = request
        while (listed := fleet.list(page_request, consistency)).uuids:
            assert listed.page.is_complete
            found += listed.uuids
            page_request = fleet.behind(listed, request, consistency)
        assert found == expected, consistency
