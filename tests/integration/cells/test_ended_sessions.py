"""Ended sessions of browsers in the fleet database."""

from sqlalchemy import func, select

from fleetlight.cells.fleet.ended_sessions import MOST_OF_USER
from fleetlight.cells.fleet.fleet import Fleet
from fleetlight.cells.fleet.tables import ended_sessions

LIFETIME_US = 1000


def count(fleet: Fleet) -> int:
    with fleet.ended_sessions._database.reading() as connection:
        return connection.scalar(select(func.count()).select_from(ended_sessions)) or 0


def test_session_that_was_ended_twice_is_forgotten_once_it_would_have_expired(fleet: Fleet) -> None:
    ended = fleet.ended_sessions
    for _ in range(2):
        ended.add("ada", "first", 10, LIFETIME_US)
    assert ended.has("ada", "first", 1)
    assert not ended.has("ada", "second", 1)
    assert not ended.has("bob", "first", 1)
    ended.add("ada", "second", 10 + LIFETIME_US, LIFETIME_US)
    assert count(fleet) == 1


def test_no_user_can_fill_the_database(fleet: Fleet) -> None:
    ended = fleet.ended_sessions
    ended.add("bob", "his", 10, LIFETIME_US)
    for number in range(3 * MOST_OF_USER):
        ended.add("ada", f"{number}", 10 + number, LIFETIME_US)
        assert count(fleet) <= MOST_OF_USER + 1
    for number in range(3 * MOST_OF_USER):
        assert ended.has("ada", f"{number}", number)
    assert ended.has("bob", "his", 1)
    assert not ended.has("bob", "other", 1)
    assert not ended.has("ada", "new", 20 + 3 * MOST_OF_USER)
