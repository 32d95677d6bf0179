"""README and tutorial, copied into two terminals: each command is there, works, and prints what the document says."""

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from threading import Thread

import pytest

from scripts.servers.process import free_port
from tests.support.consoles import Shell, Step, steps
from tests.support.session.product import ROOT
from tests.support.terminal import Terminal, terminal
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.timeout(580), pytest.mark.night]

_DEMO = "./scripts/demo"
# What is not run: these tests themselves, and what needs a network for what the environment has.
_ELSEWHERE = ("./scripts/test", "python3 -m venv openstackclient")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A folder as a checkout looks from its root, so that the data of the demo is not put into the real one."""
    (tmp_path / "scripts").mkdir()
    demo = tmp_path / "scripts" / "demo"
    demo.write_text(f'#!/bin/sh\nexec "{ROOT}/scripts/demo" "$@"\n')
    demo.chmod(0o755)
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv" / "bin").symlink_to(Path(sys.executable).parent)
    (tmp_path / "notifications").symlink_to(ROOT / "notifications")
    return tmp_path


@pytest.fixture
def environment() -> dict[str, str]:
    """That of a user, with a port of its own."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith(("FLEETLIGHT_", "OS_"))}
    return ours | {"FLEETLIGHT_API_PORT": str(free_port())}


@pytest.fixture
def shell(checkout: Path, environment: dict[str, str]) -> Iterator[Shell]:
    shell = Shell(checkout, environment)
    yield shell
    shell.close()


@pytest.mark.parametrize("name", ["README.md", pytest.param("docs/tutorial.md", marks=pytest.mark.night)])
def test_document_can_be_copied(name: str, shell: Shell, checkout: Path, environment: dict[str, str]) -> None:
    ports = {"8774": environment["FLEETLIGHT_API_PORT"], "9100": str(free_port())}
    first, *others = [step for step in steps(ROOT / name) if not step.command.startswith(_ELSEWHERE)]
    assert first.command.startswith(_DEMO)
    with (
        terminal() as screen,
        subprocess.Popen(
            [_DEMO], cwd=checkout, env=environment, stdout=screen.stream, stderr=subprocess.STDOUT
        ) as demo,
    ):
        try:
            wait_until(lambda: _is_greeted(first, screen), 120)
            # Else it would stay as a zombie, which looks as if it still ran.
            Thread(target=demo.wait, daemon=True).start()
            for step in others:
                shell.run(_at(step, ports))
        finally:
            demo.terminate()


def _is_greeted(first: Step, screen: Terminal) -> bool:
    assert "Stop it with Ctrl-C" in screen.text
    # Its log follows.
    return not first.output or replace(first, output=f"…{first.output}…").agrees(screen.text)


def _at(step: Step, ports: dict[str, str]) -> Step:
    """The step where other ports are free."""
    command = step.command
    for port, free in ports.items():
        command = command.replace(port, free)
    return replace(step, command=command)
