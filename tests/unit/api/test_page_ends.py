"""Where pages ended is remembered for whoever was shown them, while it cannot change."""

import pytest

from fleetlight.api.compute.server_lists import servers
from fleetlight.api.compute.server_lists.servers import PageEnds
from fleetlight.query.sort import Direction, SortKey, SortOrder
from fleetlight.resources.instance import INSTANCE_FIELDS

BY_AGE = SortOrder.of(INSTANCE_FIELDS, [SortKey("created_at", Direction.DESC)])
BY_NAME = SortOrder.of(INSTANCE_FIELDS, [SortKey("display_name")])


def test_end_of_a_page_is_known_to_whom_it_was_shown_and_in_its_order() -> None:
    ends = PageEnds()
    ends.remember("ada", BY_AGE, (7, "u1"))
    assert ends.position_of("ada", BY_AGE, "u1") == (7, "u1")
    assert ends.position_of("ada", BY_AGE, "u2") is None
    assert ends.position_of("bob", BY_AGE, "u1") is None
    assert ends.position_of("ada", SortOrder.of(INSTANCE_FIELDS, [SortKey("created_at")]), "u1") is None


@pytest.mark.parametrize(("order", "position"), [(BY_NAME, ("web", "u1")), (BY_AGE, (None, "u1"))])
def test_place_that_may_change_is_not_remembered(order: SortOrder, position: tuple[object, ...]) -> None:
    ends = PageEnds()
    ends.remember("ada", order, position)
    assert ends.position_of("ada", order, "u1") is None


def test_the_oldest_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servers, "_MOST_PAGE_ENDS", 2)
    ends = PageEnds()
    for uuid in ("u1", "u2", "u1", "u3"):
        ends.remember("ada", BY_AGE, (7, uuid))
    assert [ends.position_of("ada", BY_AGE, uuid) is not None for uuid in ("u1", "u2", "u3")] == [True, False, True]
