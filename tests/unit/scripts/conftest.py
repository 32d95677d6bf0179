"""Programs that are not on this machine, as small shell scripts."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from scripts.servers import docker, service


@pytest.fixture
def fake_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """A function that puts a program, given its name and its shell commands, first on the PATH."""
    programs = tmp_path / "programs"
    programs.mkdir()
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")

    def make(name: str, commands: str) -> None:
        (programs / name).write_text(f"#!/bin/sh\n{commands}\n")
        (programs / name).chmod(0o755)

    return make


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The state folder, empty; no server is named in the environment."""
    folder = tmp_path / "state"
    for module in (docker, service):
        monkeypatch.setattr(module, "state_folder", lambda: folder)
    for server in service.SERVERS.values():
        monkeypatch.delenv(server.VARIABLE, raising=False)
    return folder
