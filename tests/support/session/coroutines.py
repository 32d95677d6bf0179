"""Tests that are coroutines: AnyIO's plugin runs each in an event loop, as `asyncio.run` does."""

import pytest


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """The event loop of the product; the plugin would run each test in every one that it knows."""
    return "asyncio"
