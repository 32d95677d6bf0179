"""The two lanes of the tests: what CI runs for each change, and each night."""

import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from tests.support.session.requirements import POSTGRESQL, RABBITMQ
from tests.support.session.selection import NIGHT, only_by_night, repeated_over_servers

ROOT = Path(__file__).parents[3]
TESTS = """
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies

from tests.support.examples import examples, load_profile

load_profile()


def note(name):
    with Path("ran").open("a") as file:
        file.write(f"{name}\\n")


def test_of_the_day():
    note("day")


@pytest.mark.night
def test_of_the_night():
    note("night")


@pytest.mark.dialect
@pytest.mark.elasticsearch
def test_of_the_dialect():
    note("dialect")


@settings(max_examples=examples(30))
@given(strategies.integers())
def test_property(number):
    note("example")
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """One in which there are only the tests above, and every server, and nothing is installed or fetched."""
    scripts, python = tmp_path / "scripts", tmp_path / ".venv" / "bin" / "python"
    for folder in (scripts, python.parent, tmp_path / "tests"):
        folder.mkdir(parents=True)
    shutil.copy(ROOT / "scripts" / "test", scripts)
    for name in ("environment", "nova-environment"):
        (scripts / name).write_text("#!/bin/sh\n")
    (scripts / "services").write_text('#!/bin/sh\nwhile [ "$1" != -- ]; do shift; done; shift; exec "$@"\n')
    python.write_text(f'#!/bin/sh\n[ "$2" = pip ] || PYTHONPATH={ROOT} exec {sys.executable} "$@" -n 0\n')
    for script in (*scripts.iterdir(), python):
        script.chmod(0o755)
    markers = "\n  ".join(("night", "dialect", "elasticsearch", "no_rerun"))
    (tmp_path / "pytest.ini").write_text(f"[pytest]\nmarkers =\n  {markers}\n")
    (tmp_path / "tests" / "test_them.py").write_text(TESTS)
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "ran"),
    [
        ([], {"day": 1, "dialect": 1, "example": 30}),
        (["--day"], {"day": 1, "dialect": 1, "example": 30}),
        # Those of the dialect over OpenSearch too.
        (["--night"], {"day": 1, "dialect": 2, "example": 120, "night": 1}),
        (["tests/test_them.py"], {"day": 1, "dialect": 1, "example": 30, "night": 1}),
    ],
    ids=str,
)
def test_lane_runs_what_is_its_own(checkout: Path, arguments: list[str], ran: dict[str, int]) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("FLEETLIGHT_TEST_")}
    # One that is named need not be started.
    environment |= {"CI": "true", "FLEETLIGHT_TEST_OPENSEARCH_URL": "http://it"}
    done = subprocess.run(
        [checkout / "scripts" / "test", *arguments], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert Counter((checkout / "ran").read_text().split()) == ran


def test_ci_runs_one_lane_for_each_change_and_the_other_each_night() -> None:
    assert re.findall(r"scripts/test (\S+)", (ROOT / ".ci" / "run").read_text()) == ['"$lane"']
    assert "lane=${1:---day}" in (ROOT / ".ci" / "run").read_text()
    workflow = (ROOT / ".github" / "workflows" / "ci.yml").read_text()
    assert re.search(r"schedule:\n    - cron: ", workflow)
    assert ".ci/run ${{ github.event_name == 'schedule' && '--night' || '--day' }}" in workflow


def item(*markers: str, name: str = "test_it") -> pytest.Item:
    marks = {name: getattr(pytest.mark, name).mark for name in markers}
    return cast("pytest.Item", SimpleNamespace(nodeid=name, iter_markers=marks.values, get_closest_marker=marks.get))


def test_server_over_which_no_test_runs_by_day_is_named() -> None:
    assert only_by_night([item(RABBITMQ.marker, NIGHT), item(NIGHT), item()]) == [RABBITMQ.title]
    assert only_by_night([item(RABBITMQ.marker, NIGHT), item(RABBITMQ.marker)]) == []


def test_case_that_needs_more_than_another_of_the_day_is_of_the_night() -> None:
    rabbitmq, postgresql = RABBITMQ.marker, POSTGRESQL.marker
    embedded, bus, both = item(name="t[a]"), item(rabbitmq, name="t[b]"), item(rabbitmq, postgresql, name="t[c]")
    alone, by_night = item(postgresql, name="other[a]"), item(NIGHT, name="third[a]")
    cases = [both, embedded, bus, alone, by_night, item(rabbitmq, name="third[b]")]
    assert list(repeated_over_servers(cases)) == [both, bus]
    assert list(repeated_over_servers([both, bus, item(postgresql, name="t[d]")])) == [both]
