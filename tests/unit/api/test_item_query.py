"""What the query of a caller is made of."""

from fleetlight.api.query.item_query import CountBody, counting_of, query_of
from fleetlight.resources.query_fields.catalog import ITEM_TYPES

KNOWN = ITEM_TYPES["instance"]
EPOCH = "1970-01-01T00:00:00Z"


def test_times_before_a_moment_are_before_the_first_moment_too() -> None:
    text = 'mtime > "10m ago"'
    wanted = query_of(KNOWN, [], text, now=0).filter
    assert query_of(KNOWN, [], text, as_of=0, now=10**15).filter == wanted
    assert counting_of(CountBody(what="instance", filter=text, as_of=EPOCH), KNOWN).filter == wanted
