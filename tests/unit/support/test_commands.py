"""Forked commands are for tests what started ones are."""

import os
import subprocess
import sys
from pathlib import Path

from tests.support.commands import Command


def test_forked_command_says_and_ends_as_one_that_is_started(tmp_path: Path) -> None:
    log = tmp_path / "log"
    others = {name: value for name, value in os.environ.items() if not name.startswith("FLEETLIGHT_")}
    environment = others | {"FLEETLIGHT_FLEET_DATABASE_URL": f"sqlite:///{tmp_path}/none.db"}
    command = [sys.executable, "-m", "fleetlight.cli", "relay"]
    started = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    forked = Command("relay", log=log, environment=environment)
    assert forked.wait(60) == started.returncode == 1
    assert log.read_text() == started.stdout + started.stderr
    assert "`fleetlight database upgrade` makes a new one" in log.read_text()
