"""The units for systemd are valid, start what there is, and let a process do no more than it has to."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer

from fleetlight.cli.app import app
from tests.support.servers.composition import CHECKOUT, SERVERS, services

_UNITS = sorted((CHECKOUT / "deploy" / "systemd").iterdir())
_PROCESSES = [
    name for name, service in services().items() if name not in SERVERS and service["restart"] != "on-failure:5"
]
_PROGRAM = "/opt/fleetlight/bin/fleetlight"
_EXPOSED = "20"
"""Tenths; what systemd-analyze says of a service that may do everything is 96."""


def directives(name: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for key, value in re.findall(r"^(\w+)=(.*)$", (CHECKOUT / "deploy" / "systemd" / name).read_text(), re.MULTILINE):
        found.setdefault(key, []).append(value)
    return found


@pytest.fixture
def units(systemd_analyze: Path, tmp_path: Path) -> list[Path]:
    """All units, of the program in this environment: systemd looks whether it can be run."""
    here = str(Path(sys.executable).with_name("fleetlight"))
    for unit in _UNITS:
        for name in [unit.name.replace("@", f"@{each}") for each in _PROCESSES] if "@" in unit.name else [unit.name]:
            (tmp_path / name).write_text(unit.read_text().replace(_PROGRAM, here))
    return sorted(tmp_path.iterdir())


def test_units_are_valid(systemd_analyze: Path, units: list[Path]) -> None:
    assert len(units) == len(_UNITS) - 1 + len(_PROCESSES)
    checked = subprocess.run(
        [str(systemd_analyze), "verify", *map(str, units)], capture_output=True, text=True, check=False
    )
    assert (checked.returncode, checked.stderr) == (0, "")


@pytest.mark.parametrize("name", ["fleetlight@api.service", "fleetlight-doctor.service", "fleetlight-verify.service"])
def test_process_may_do_little(systemd_analyze: Path, units: list[Path], name: str) -> None:
    unit = next(unit for unit in units if unit.name == name)
    command = [str(systemd_analyze), "security", "--offline=true", f"--threshold={_EXPOSED}", str(unit)]
    checked = subprocess.run(command, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout[-200:]


def test_each_process_is_of_a_user_of_its_own() -> None:
    """So that each can read its own secrets alone; what works with the account of the indexer is of its user."""
    users = {unit.name: directives(unit.name)["User"] for unit in _UNITS if unit.suffix == ".service"}
    assert users == {
        "fleetlight@.service": ["fleetlight-%i"],
        "fleetlight-doctor.service": ["fleetlight-indexer"],
        "fleetlight-verify.service": ["fleetlight-indexer"],
    }
    assert users == {name: directives(name)["Group"] for name in users}
    documented = (CHECKOUT / "docs" / "operations" / "without-docker.md").read_text(encoding="utf-8")
    made, handed_over = re.findall(r"^# for name in (.+); do\n>   (\S+)", documented, re.MULTILINE)
    assert (made[1], handed_over[1]) == ("useradd", "chown")
    assert set(made[0].split()) == set(handed_over[0].split()) == set(_PROCESSES)


def test_process_that_ends_or_hangs_is_started_again() -> None:
    unit = directives("fleetlight@.service")
    assert unit["Restart"] == ["always"]
    assert unit["WatchdogSec"] == ["90"]
    assert unit["SuccessExitStatus"] == ["130"], "what is stopped before it has begun is not called failed"
    assert set(_PROCESSES) == {"api", "deliverer", "indexer", "relay", "worker"}


def test_process_alone_is_told_to_stop_and_stops_its_children_in_order() -> None:
    assert directives("fleetlight@.service")["KillMode"] == ["mixed"]


@pytest.mark.parametrize("name", [unit.name for unit in _UNITS if unit.suffix == ".service"])
def test_command_is_one_of_this_version(name: str) -> None:
    (line,) = directives(name)["ExecStart"]
    for process in _PROCESSES:
        program, *words = line.replace("%i", process).split()
        assert program == _PROGRAM
        command: Any = typer.main.get_command(app)
        while hasattr(command, "commands"):
            word, *words = words
            command = command.commands[word]
            command = command.loaded() if hasattr(command, "loaded") else command
        # Parses the options, and calls nothing.
        command.make_context(word, words)


def test_timers_have_their_services() -> None:
    timers = [unit for unit in _UNITS if unit.suffix == ".timer"]
    assert timers
    assert [timer for timer in timers if not timer.with_suffix(".service").exists()] == []
