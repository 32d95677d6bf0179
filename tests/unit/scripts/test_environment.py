"""`scripts/environment` where no Python is new enough."""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PYTHONS = ("python3.13", "python3.12", "python3.11", "python3", "python")


@pytest.mark.parametrize("profile", ["dev", "runtime", "--python"])
def test_python_that_is_too_old_is_named_once(tmp_path: Path, profile: str) -> None:
    scripts, commands = tmp_path / "scripts", tmp_path / "bin"
    scripts.mkdir()
    commands.mkdir()
    shutil.copy(ROOT / "scripts" / "environment", scripts)
    for name in ("requirements.lock", "requirements-dev.lock", "requirements-build.lock", "pyproject.toml"):
        (tmp_path / name).touch()
    for name in PYTHONS:
        (commands / name).write_text("#!/bin/sh\nexit 1\n")
        (commands / name).chmod(0o755)
    environment = {"PATH": f"{commands}:/usr/bin:/bin"}
    ended = subprocess.run(
        [scripts / "environment", profile], env=environment, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 1
    assert ended.stdout == ""
    assert ended.stderr.splitlines() == [
        "Fleetlight needs Python 3.11 or newer; none of python3.13, python3.12, python3.11, python3 is."
    ]
