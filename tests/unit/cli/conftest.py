"""A place of its own for each test of the command line, with nothing configured."""

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from fleetlight.cli.app import app

Run = Callable[..., Result]


@pytest.fixture(autouse=True)
def empty_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, empty; no FLEETLIGHT_ variable is set."""
    monkeypatch.chdir(tmp_path)
    for name in os.environ:
        if name.startswith("FLEETLIGHT_"):
            monkeypatch.delenv(name)
    return tmp_path


@pytest.fixture
def run() -> Run:
    """Runs `fleetlight` with arguments inside this process."""

    def run_command(*arguments: str | Path) -> Result:
        texts: Sequence[str] = [str(argument) for argument in arguments]
        return CliRunner().invoke(app, texts, catch_exceptions=False)

    return run_command


RunApart = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def run_apart() -> RunApart:
    """Runs `fleetlight` in a process of its own, as commands that fork children have to be."""

    def run_command(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "fleetlight.cli", *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    return run_command
