"""Advisory locks: what counts and then adds is alone meanwhile, in whichever process."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from fleetlight.cells.database.engines import create_database_engine
from fleetlight.cells.errors import QuotaExceededError
from fleetlight.cells.fleet.compute.quotas import check
from fleetlight.cells.fleet.fleet import Fleet

LIMIT = 3


@pytest.fixture
def other_fleet(fleet: Fleet) -> Iterator[Fleet]:
    """The same fleet, opened as another process opens it."""
    other = Fleet(create_database_engine(fleet._engine.url.render_as_string(hide_password=False)))
    yield other
    other.close()


def test_limit_holds_however_many_count_at_once(fleet: Fleet, other_fleet: Fleet) -> None:
    def add(number: int) -> bool:
        mine = (fleet, other_fleet)[number % 2]
        try:
            with mine.lock("red"):
                check({"server_groups": LIMIT}, mine.quotas.counts("red"), {"server_groups": 1})
                mine.server_groups.create(f"group {number}", "affinity", project_id="red", user_id="ada")
        except QuotaExceededError:
            return False
        return True

    with ThreadPoolExecutor(8) as threads:
        added = list(threads.map(add, range(16)))
    assert added.count(True) == LIMIT
    assert fleet.quotas.counts("red")["server_groups"] == LIMIT


def test_lock_ends_with_what_goes_wrong_in_it(fleet: Fleet, other_fleet: Fleet) -> None:
    with pytest.raises(QuotaExceededError), fleet.lock("red", "blue"):
        check({"cores": 0}, {}, {"cores": 1})
    with other_fleet.lock("blue", "red"):
        assert other_fleet.quotas.counts("red")["instances"] == 0
