"""`scripts/console`: the client of the browser is built once, and its own unit tests pass."""

import subprocess

import pytest

from tests.support.session.product import ROOT


def console(*arguments: str) -> str:
    """What it prints. Fails with that when it fails."""
    command = [str(ROOT / "scripts" / "console"), *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout + ended.stderr


def test_assets_of_unchanged_sources_are_not_built_again() -> None:
    console()
    assert console() == ""


@pytest.mark.timeout(300)
def test_unit_tests_of_the_client_pass() -> None:
    assert "# fail 0" in console("test")
