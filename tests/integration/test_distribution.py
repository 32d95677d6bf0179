"""What is installed from a wheel or an sdist: one import name, beside whatever else is installed."""

import shutil
import signal
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Sequence
from pathlib import Path

import httpx
import pytest

from scripts.servers.process import free_port
from tests.support.loopback import get
from tests.support.session.product import FOLDERS, ROOT
from tests.support.waiting import wait_until

ASSETS = "api/console/static"


def run(*command: str | Path, cwd: Path = ROOT) -> str:
    """What a command prints. Fails with what it says of a failure."""
    ended = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def build(kind: str, source: Path, into: Path) -> Path:
    """kind: "sdist" or "wheel". Returns the file that is made of the folder `source`."""
    run(sys.executable, "-m", "hatchling", "build", "--target", kind, "--directory", into, cwd=source)
    (made,) = into.iterdir()
    return made


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("sdist", ROOT, tmp_path_factory.mktemp("sdist"))


@pytest.fixture(scope="module")
def wheel(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Made of the sdist, as by those who package it."""
    unpacked = tmp_path_factory.mktemp("unpacked")
    run("tar", "--extract", "--file", sdist, "--directory", unpacked)
    (source,) = unpacked.iterdir()
    return build("wheel", source, tmp_path_factory.mktemp("wheel"))


class Environment:
    """An environment with the libraries of this one, but without the checkout."""

    def __init__(self, path: Path) -> None:
        run(sys.executable, "-m", "venv", "--without-pip", path)
        self._python = path / "bin" / "python"
        self.program = path / "bin" / "fleetlight"
        (self.site_packages,) = path.glob("lib/python*/site-packages")
        # A path file of a path file is not read, so that of the checkout has no effect here.
        (self.site_packages / "libraries.pth").write_text(sysconfig.get_path("purelib"))

    def pip(self, *arguments: str | Path) -> None:
        run(sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", self._python, *arguments)

    def python(self, code: str, cwd: Path) -> str:
        return run(self._python, "-c", code, cwd=cwd)


@pytest.fixture
def environment(wheel: Path, same_names: Path, tmp_path: Path) -> Environment:
    """Ours first, then the others: what is installed later replaces files of the same names without a word."""
    made = Environment(tmp_path / "environment")
    made.pip("install", "--quiet", "--no-deps", wheel)
    others = sorted(same_names.iterdir())
    made.pip("install", "--quiet", "--no-deps", "--no-build-isolation", *others)
    return made


def modules_of_git() -> Sequence[str]:
    """The modules of the product that git tracks, as a wheel has them."""
    tracked = run("git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *FOLDERS).split()
    return sorted(f"fleetlight/{name}" for name in tracked if (ROOT / name).exists())


def assets() -> Sequence[str]:
    """What scripts/console built, as a wheel has it."""
    built = [f"fleetlight/{path.relative_to(ROOT)}" for path in (ROOT / ASSETS).iterdir()]
    assert f"fleetlight/{ASSETS}/index.html" in built
    return built


@pytest.mark.night
def test_wheel_of_the_sdist_has_every_file_and_the_console_below_one_name(wheel: Path) -> None:
    names = [name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name]
    assert sorted(names) == sorted([*modules_of_git(), *assets()])


@pytest.mark.night
@pytest.mark.parametrize("kind", ["wheel", "sdist"])
def test_nothing_is_built_without_the_console(kind: str, tmp_path: Path) -> None:
    for name in ("pyproject.toml", "hatch_build.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path)
    command = [sys.executable, "-m", "hatchling", "build", "--target", kind]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.returncode != 0
    assert f"The console is not built: {ASSETS}/index.html is missing. Run scripts/console." in ended.stderr
    assert list(tmp_path.glob("dist/*")) == []


@pytest.mark.night
def test_wheel_of_the_checkout_is_that_of_the_sdist(wheel: Path, tmp_path: Path) -> None:
    ours = build("wheel", ROOT, tmp_path)
    assert zipfile.ZipFile(ours).namelist() == zipfile.ZipFile(wheel).namelist()


@pytest.mark.night
def test_new_file_of_the_checkout_is_seen_at_once() -> None:
    found = run(sys.executable, "-c", "import fleetlight.api as a; print(*a.__path__)").strip()
    assert Path(found).resolve() == ROOT / "api"


def test_distributions_with_the_names_of_our_folders_come_and_go(environment: Environment, tmp_path: Path) -> None:
    # Found and not imported, since theirs need libraries of their own.
    code = """from importlib.util import find_spec
print(*(find_spec(name).origin for name in ("notifications", "fleetlight.notifications")))"""
    theirs, ours = environment.python(code, tmp_path).split()
    assert Path(ours) == environment.site_packages / "fleetlight" / "notifications" / "__init__.py"
    assert Path(theirs) == environment.site_packages / "notifications" / "__init__.py"
    environment.pip("uninstall", "--quiet", "--yes", "django-notifications-hq")
    environment.python("import fleetlight.manager.commands.up, fleetlight.manager.agents.server", tmp_path)


@pytest.mark.night
def test_installed_fleet_runs_beside_them_outside_of_the_checkout(environment: Environment, tmp_path: Path) -> None:
    port = free_port()
    command = [str(environment.program), "up", "--simulate", "--auth", "none", "--port", str(port), "--instances", "20"]
    place = tmp_path / "place"
    place.mkdir()
    with (place / "up.log").open("wb") as log:
        up = subprocess.Popen(command, cwd=place, stdout=log, stderr=log)
    try:
        wait_until(lambda: lists(port) > 0, 60)
    finally:
        up.send_signal(signal.SIGTERM)
        ended = up.wait(30)
    assert ended in (0, 130), (place / "up.log").read_text()


def lists(port: int) -> int:
    """How many servers there are; 0 while the API does not answer."""
    try:
        answer = get(f"http://127.0.0.1:{port}/v2.1/servers", params={"all_tenants": 1}, timeout_s=10)
    except httpx.TransportError:
        return 0
    return len(answer.json()["servers"]) if answer.is_success else 0
