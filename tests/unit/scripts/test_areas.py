"""`scripts/test AREA...` and its table of areas."""

import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
SHOW = '#!/bin/sh\nfor word in "$@"; do echo "$word"; done\n'


def areas() -> Iterator[tuple[str, list[str], list[str]]]:
    for line in (ROOT / "scripts" / "areas").read_text().splitlines():
        if not line.startswith("#"):
            name, changed, tests = line.split("|")
            yield name.strip(), changed.split(), tests.split()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of the scripts in which pytest shows its arguments."""
    for folder in ("scripts", ".venv/bin", "tests/unit/cli", "tests/contract"):
        (tmp_path / folder).mkdir(parents=True)
    for name in ("test", "areas"):
        shutil.copy(ROOT / "scripts" / name, tmp_path / "scripts")
    for name, text in (("scripts/environment", "#!/bin/sh\n"), (".venv/bin/python", SHOW)):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    (tmp_path / "tests/contract/test_rapi_jobs.py").touch()
    return tmp_path


def run(checkout: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([checkout / "scripts/test", *arguments], capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("arguments", "tests"),
    [
        (["cli"], ["tests/unit/cli"]),
        (["cli", "-k", "rapi"], ["tests/unit/cli", "-k", "rapi"]),
        (["tests/unit/cli", "-x"], ["tests/unit/cli", "-x"]),
    ],
)
def test_area_stands_for_its_tests(checkout: Path, arguments: Sequence[str], tests: Sequence[str]) -> None:
    done = run(checkout, *arguments)
    assert done.stdout.splitlines()[2:-2] == tests, done.stderr


def test_patterns_of_an_area_are_the_files_that_there_are(checkout: Path) -> None:
    assert "tests/contract/test_rapi_jobs.py" in run(checkout, "rapi").stdout.splitlines()


def test_area_that_there_is_not_is_refused_with_those_that_there_are(checkout: Path) -> None:
    refused = run(checkout, "rappi")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "rappi" in refused.stderr
    assert "query, rapi, scripts" in refused.stderr


def test_table_names_what_there_is_and_every_package() -> None:
    known = list(areas())
    for name, changed, tests in known:
        for path in (*changed, *tests):
            assert list(ROOT.glob(path)), (name, path)
    packages = {path.parent.name for path in ROOT.glob("*/__init__.py")} - {"tests"}
    assert packages <= {path.split("/")[0] for _, changed, _ in known for path in changed}
