"""Programs of Debian that check files for them."""

from pathlib import Path

import pytest

from tests.support.requirements import NGINX, SYSTEMD, Requirement


def _located(requirement: Requirement) -> Path:
    located = requirement.locate()
    assert located is not None, f"this test needs {requirement.title}"
    return Path(located)


@pytest.fixture
def systemd_analyze() -> Path:
    return _located(SYSTEMD)


@pytest.fixture
def nginx() -> Path:
    return _located(NGINX)
