"""The tables of parameters and sort keys say what the contract says."""

from datetime import UTC, datetime

import pytest

from fleetlight.api.compute.protocol.parameters import PARAMETERS, accept, parse_time
from fleetlight.api.compute.server_lists.filter_and_order import IGNORED, SORTED, build_filter, build_order
from fleetlight.api.http.errors import BadRequestError, ForbiddenError, ParameterError
from fleetlight.api.http.query_string import QueryString
from fleetlight.api.identity import Caller
from fleetlight.query.filters import NOTHING, And, Eq, check, leaves
from fleetlight.resources.instance import INSTANCE_FIELDS

# contracts/nova-servers, section 3.2
PUBLIC = {
    1: {"reservation_id", "name", "status", "image", "flavor", "ip", "changes-since", "all_tenants"},
    5: {"ip6"},
    26: {"tags", "tags-any", "not-tags", "not-tags-any"},
    66: {"changes-before"},
    73: {"locked"},
    83: {
        "availability_zone",
        "config_drive",
        "key_name",
        "created_at",
        "launched_at",
        "terminated_at",
        "power_state",
        "task_state",
        "vm_state",
        "progress",
        "user_id",
    },
    90: {"hostname"},
}
ADMIN = Caller("ada", "demo", frozenset({"admin"}))
READER = Caller("ada", "demo", frozenset({"reader"}))


def query(text: str) -> QueryString:
    return QueryString.parse(text.encode())


def order(text: str, minor: int = 104, *, is_admin: bool = True) -> list[tuple[str, str]]:
    return [(key.field, str(key.direction)) for key in build_order(query(text), minor, is_admin=is_admin).keys]


def test_filters_are_public_from_the_microversions_of_the_contract() -> None:
    paging = {"limit", "marker", "sort_key", "sort_dir"}
    ours = {"forthcoming"}
    for minor, names in PUBLIC.items():
        found = {name for name, parameter in PARAMETERS.items() if parameter.public_since == minor}
        assert found - paging - ours == names


def test_sort_keys_are_those_of_the_contract_and_all_of_them_can_be_sorted_by() -> None:
    assert (len(SORTED), len(IGNORED)) == (29, 21)
    for name in SORTED | {"locked"}:
        assert INSTANCE_FIELDS[name].is_sortable


@pytest.mark.parametrize("name", [name for name, parameter in PARAMETERS.items() if parameter.build])
def test_every_filter_builds_a_tree_that_fits_the_fields(name: str) -> None:
    accepted = accept(query(f"{name}=1"), 104, is_admin=True)
    check(build_filter(accepted, 104, ADMIN, action="index"), INSTANCE_FIELDS)


@pytest.mark.parametrize("text", ["", "all_tenants=0", "project_id=other", "tenant_id=other&deleted=true"])
@pytest.mark.parametrize("caller", [ADMIN, READER])
def test_the_callers_project_is_always_in_the_tree(text: str, caller: Caller) -> None:
    tree = build_filter(accept(query(text), 104, is_admin=caller.is_admin), 104, caller, action="index")
    assert isinstance(tree, And)
    assert Eq("project_id", "demo") in tree.terms
    assert [leaf for leaf in leaves(tree) if leaf.field == "project_id"] == [Eq("project_id", "demo")]


def test_caller_without_a_project_sees_what_belongs_to_the_user() -> None:
    caller = Caller("ada", None, frozenset({"member"}))
    tree = build_filter(QueryString(()), 1, caller, action="index")
    assert isinstance(tree, And)
    assert Eq("user_id", "ada") in tree.terms


def test_unknown_status_finds_nothing_before_2_38() -> None:
    assert build_filter(query("status=nonsense"), 37, ADMIN, action="index") == NOTHING
    with pytest.raises(BadRequestError, match="status"):
        build_filter(query("status=nonsense"), 38, ADMIN, action="index")


def test_last_occurrence_counts() -> None:
    tree = build_filter(query("host=a&host=b"), 104, ADMIN, action="index")
    assert [leaf for leaf in leaves(tree) if leaf.field == "host"] == [Eq("host", "b")]


@pytest.mark.parametrize(
    ("text", "minor", "expected"),
    [
        ("", 1, [("created_at", "desc"), ("uuid", "asc")]),
        ("sort_dir=asc", 1, [("created_at", "asc"), ("uuid", "asc")]),
        ("sort_key=id&sort_dir=asc", 1, [("created_at", "desc"), ("instance_name", "desc"), ("uuid", "asc")]),
        ("sort_key=id&sort_dir=asc&sort_key=host&sort_dir=desc", 74, [("host", "desc"), ("uuid", "asc")]),
        ("sort_key=locked&sort_key=host", 72, [("host", "desc"), ("uuid", "asc")]),
        ("sort_key=locked", 73, [("locked", "desc"), ("uuid", "asc")]),
        ("sort_key=host&sort_key=node&sort_dir= asc", 1, [("host", "asc"), ("node", "asc"), ("uuid", "asc")]),
        ("sort_key=uuid&sort_dir=desc", 1, [("uuid", "desc")]),
    ],
)
def test_order_is_what_keys_and_directions_say(text: str, minor: int, expected: list[tuple[str, str]]) -> None:
    assert order(text, minor) == expected


@pytest.mark.parametrize(
    "text", ["sort_key=name", "sort_key=id", "sort_dir=ASC", "sort_key=host&sort_dir=asc&sort_dir=asc"]
)
def test_bad_orders_are_refused(text: str) -> None:
    with pytest.raises(BadRequestError):
        order(text)


@pytest.mark.parametrize("key", ["host", "node"])
def test_sorting_by_host_is_for_administrators(key: str) -> None:
    with pytest.raises(ForbiddenError):
        order(f"sort_key={key}", is_admin=False)


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026", datetime(2026, 1, 1, tzinfo=UTC)),
        ("2026-03", datetime(2026, 3, 1, tzinfo=UTC)),
        ("2026-03-04T05:06:07Z", datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)),
        ("20260304T050607.5+0200", datetime(2026, 3, 4, 3, 6, 7, 500_000, tzinfo=UTC)),
    ],
)
def test_times_are_read_as_utc_unless_they_say_otherwise(text: str, moment: datetime) -> None:
    assert parse_time("changes-since", text) == moment


@pytest.mark.parametrize("text", ["", "now", "2026-13", "0001-01-01T00:00+10:00", "1\n"])
def test_other_times_are_refused(text: str) -> None:
    with pytest.raises(ParameterError):
        parse_time("changes-since", text)


def test_next_page_repeats_what_counts_and_nothing_else() -> None:
    accepted = accept(
        query("sort_key=host&name=a&name=b&sort_key=display_name&sort_dir=asc&marker=old&limit=2&foo=1"),
        1,
        is_admin=True,
    )
    assert accepted.with_marker("new", frozenset({"sort_key", "sort_dir"})) == (
        "limit=2&marker=new&name=b&sort_dir=asc&sort_key=host&sort_key=display_name"
    )
