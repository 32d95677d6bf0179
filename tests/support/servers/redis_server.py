"""A place of its own for each test on the shared Redis."""

import pytest

from tests.support.session.requirements import REDIS


@pytest.fixture(scope="session")
def redis_url() -> str:
    """URL of a Redis; a test uses keys of a cell of its own."""
    located = REDIS.locate()
    assert located is not None, f"this test needs Redis: set {REDIS.variable}"
    return located
