"""What `scripts/test --day` and `--night` run again: at most two failed tests, none that is marked, all named."""

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
OPTIONS = re.findall(
    r"-p [\w.]+|--(?:reruns|max-suite-reruns|rerun-exclude-path)=\S+", (ROOT / "scripts/test").read_text()
)
UNSTABLE = """
from pathlib import Path

import pytest


def fails_once(name):
    seen = Path(name)
    if not seen.exists():
        seen.touch()
        raise AssertionError("the first time")
"""


def run(folder: Path, tests: str, *, parallel: bool = False, options: Sequence[str] = OPTIONS) -> tuple[int, str]:
    """Exit status and output of a run of these tests."""
    (folder / "pytest.ini").write_text("[pytest]\nmarkers = no_rerun\n")
    (folder / "test_them.py").write_text(UNSTABLE + tests)
    command = [sys.executable, "-m", "pytest", "--strict-markers", *" ".join(options).split()]
    workers = ["--numprocesses=2", "--dist=worksteal"] if parallel else []
    # Of the plugins that are installed only those that it is about: to load all takes most of such a run.
    command += ["-p", "xdist", "-p", "rerunfailures"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(
        [*command, *workers], cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=100
    )
    return done.returncode, done.stdout


def again(folder: Path) -> list[str]:
    file = folder / "build" / "tests-run-again.txt"
    return re.findall(r"^== (.+)$", file.read_text(), re.MULTILINE) if file.exists() else []


def unstable(count: int) -> str:
    return "".join(f"\n\ndef test_{number}():\n    fails_once('{number}')\n" for number in range(count))


@pytest.mark.parametrize("parallel", [False, True])
def test_two_tests_that_fail_once_pass_and_are_named(tmp_path: Path, parallel: bool) -> None:
    status, output = run(tmp_path, unstable(2), parallel=parallel)
    names = ["test_them.py::test_0", "test_them.py::test_1"]
    assert (status, again(tmp_path)) == (0, names), output
    assert all(f"AssertionError\nUNSTABLE: {name} " in output for name in names), "with why it failed"


@pytest.mark.parametrize("parallel", [False, True])
def test_third_test_that_fails_does_not_run_again(tmp_path: Path, parallel: bool) -> None:
    status, output = run(tmp_path, unstable(3), parallel=parallel)
    assert (status, len(again(tmp_path))) == (1, 2), output


def test_test_that_fails_twice_fails_the_run(tmp_path: Path) -> None:
    status, output = run(tmp_path, "\n\ndef test_broken():\n    raise AssertionError('always')\n")
    assert (status, again(tmp_path)) == (1, ["test_them.py::test_broken"]), output
    assert "UNSTABLE" not in output


def test_marked_test_does_not_run_again(tmp_path: Path) -> None:
    status, output = run(tmp_path, "\n\npytestmark = pytest.mark.no_rerun\n" + unstable(1))
    assert (status, again(tmp_path)) == (1, []), output


def test_nothing_runs_again_without_the_options(tmp_path: Path) -> None:
    status, output = run(tmp_path, unstable(1), options=[])
    assert (status, again(tmp_path)) == (1, []), output


def test_folders_that_never_run_again_are_there() -> None:
    folders = [option.split("=")[1] for option in OPTIONS if option.startswith("--rerun-exclude-path")]
    assert len(folders) == 4
    assert all((ROOT / folder).is_dir() for folder in folders)
