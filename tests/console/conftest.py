"""A fleet for the stories of one module, and the console with someone logged in."""

from collections.abc import Iterator
from uuid import uuid4

import pytest

from tests.support.fleets.console_fleet import ConsoleFleet, console_fleet
from tests.support.pages.console import Console
from tests.support.servers.browser import BrowserPage


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleFleet]:
    with console_fleet(tmp_path_factory.mktemp("fleet")) as made:
        yield made


@pytest.fixture
def own() -> str:
    """A project that this run of a test has alone: a test that is run again finds nothing of its first run."""
    return f"own-{uuid4().hex[:8]}"


@pytest.fixture
def console(fleet: ConsoleFleet, browser_page: BrowserPage) -> Console:
    """Of the administrator."""
    console = Console(fleet, browser_page)
    console.log_in("admin")
    return console


@pytest.fixture
def member(fleet: ConsoleFleet, browser_page: BrowserPage) -> Console:
    """Of someone who may see one project, and no operator's page."""
    console = Console(fleet, browser_page)
    console.log_in("demo")
    return console
