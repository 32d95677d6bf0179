"""What a compute API is asked for finds everything that a filter means."""

from datetime import UTC, datetime

import pytest

from fleetlight.cells.kinds.nova_api.query import UpstreamQuery, query_of
from fleetlight.query.filters import EVERYTHING, Eq, Filter, Ge, Has, In, IsNull, Matches, Ne, all_of, any_of

LIVE = Eq("deleted", False)
NOT_SOFT = any_of(Ne("vm_state", "soft-delete"), IsNull("vm_state"))
DELETED = ("deleted", "True")
SINCE = datetime(2026, 11, 21, 10, 0, 0, 7, UTC)


@pytest.mark.parametrize(
    ("node", "lists"),
    [
        (EVERYTHING, ((), (DELETED,))),
        (LIVE, ((), (DELETED,))),
        (all_of(LIVE, NOT_SOFT), ((),)),
        (all_of(LIVE, Eq("vm_state", "active")), ((("vm_state", "active"),),)),
        (all_of(LIVE, In("vm_state", ("active", "error"))), ((),)),
        (all_of(LIVE, In("vm_state", ("active", "soft-delete"))), ((), (DELETED,))),
        (Eq("deleted", True), ((DELETED,),)),
        (all_of(LIVE, NOT_SOFT, Eq("host", "a"), Eq("locked", True)), ((("host", "a"), ("locked", "True")),)),
        (all_of(LIVE, NOT_SOFT, Has("tags", "a"), Has("tags", "b"), Has("tags", "c,d")), ((("tags", "a,b"),),)),
        (Ge("updated_at", SINCE), ((("changes-since", "2026-11-21T10:00:00+00:00"),),)),
        # What the API would take for something else, or cannot be told in one list, is tried on the rows.
        (all_of(LIVE, NOT_SOFT, Eq("image_ref", ""), Matches("display_name", "^web"), Eq("node", "n")), ((),)),
        (any_of(Eq("host", "a"), Eq("host", "b")), ((), (DELETED,))),
    ],
)
def test_lists_and_parameters(node: Filter, lists: object) -> None:
    assert query_of(node) == UpstreamQuery(lists)  # type: ignore[arg-type]  # as a table it is easier to read


def test_servers_that_are_named_are_asked_for_by_name() -> None:
    assert query_of(all_of(In("uuid", ("b", "a")), LIVE, NOT_SOFT)) == UpstreamQuery(((),), ("a", "b"))
    assert query_of(all_of(In("uuid", ("b", "a")), Eq("uuid", "a"))).uuids == ("a",)
    assert query_of(all_of(Eq("uuid", "b"), Eq("uuid", "a"))).uuids == ()
