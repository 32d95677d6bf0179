"""Programs and distributions of others that tests use as they are."""

from pathlib import Path

import pytest

from tests.support.session.requirements import CHROMIUM, DEBIAN, NGINX, SAME_NAMES, SYSTEMD, Requirement


def _located(requirement: Requirement) -> Path:
    located = requirement.locate()
    assert located is not None, f"this test needs {requirement.title}"
    return Path(located)


@pytest.fixture
def systemd_analyze() -> Path:
    return _located(SYSTEMD)


@pytest.fixture(scope="session")
def chromium() -> Path:
    return _located(CHROMIUM)


@pytest.fixture
def nginx() -> Path:
    return _located(NGINX)


@pytest.fixture(scope="session")
def same_names() -> Path:
    """The folder of what tests/integration/same_names.lock names."""
    return _located(SAME_NAMES)


@pytest.fixture(scope="session")
def mmdebstrap() -> Path:
    return _located(DEBIAN)
