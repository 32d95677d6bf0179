"""The index without the folder of the manager: a copy of the package that lacks it answers as the whole one."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from fleetlight.cells.database.engines import create_database_engine
from fleetlight.cells.fleet.fleet import Fleet
from scripts.servers.process import free_port
from tests.support.fleets.instance_operations import InstanceOperations
from tests.support.loopback import get
from tests.support.session.product import FOLDERS, ROOT
from tests.support.waiting import wait_until

_PROGRAM = """import sys
sys.path = [{path!r}, *(each for each in sys.path if not each.endswith(".editable"))]
from fleetlight.cli.main import main
main()"""


@pytest.fixture
def command(tmp_path: Path) -> list[str]:
    """The `fleetlight` of the copy."""
    package = tmp_path / "copy" / "fleetlight"
    package.mkdir(parents=True)
    for folder in set(FOLDERS) - {"manager"}:
        (package / folder).symlink_to(ROOT / folder, target_is_directory=True)
    return [sys.executable, "-c", _PROGRAM.format(path=str(package.parent))]


@pytest.fixture
def config(tmp_path: Path, command: list[str]) -> Path:
    """A fleet with one instance in the cell `one`, in the cell and in the index."""
    urls = {name: f"sqlite:///{tmp_path}/{name}.db" for name in ("fleet", "one")}
    path, index = tmp_path / "fleetlight.toml", f'[search]\nenabled = true\n[index]\npath = "{tmp_path}/index.db"\n'
    path.write_text(f'[fleet]\ndatabase_url = "{urls["fleet"]}"\n{index}[api]\nauth = "none"\nprocesses = 1\n')
    run(command, "database", "upgrade", "--config", path)
    cell = ("--database-url", urls["one"], "--transport-url", "amqp://127.0.0.1:9//")
    run(command, "cell", "add", "native", "one", *cell, "--config", path)
    engine, fleet = create_database_engine(urls["one"]), Fleet(create_database_engine(urls["fleet"]))
    InstanceOperations(engine, fleet, fleet.cells()[0]).create({"display_name": "web", "project_id": "a"})
    fleet.close()
    engine.dispose()
    run(command, "index", "sync", "--type", "OS::Nova::Server", "--config", path)
    return path


def run(command: list[str], *arguments: str | Path) -> str:
    ended = subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


@pytest.fixture
def url(command: list[str], config: Path) -> Iterator[str]:
    """The API of that fleet."""
    port = free_port()
    with subprocess.Popen([*command, "api", "--port", str(port), "--config", str(config)]) as api:
        yield f"http://127.0.0.1:{port}"
        api.terminate()


def test_help_has_the_commands_of_the_index_alone(command: list[str]) -> None:
    words = {line.split()[1] for line in run(command, "--help").splitlines() if line.startswith("│ ")}
    assert words >= {"api", "indexer", "relay", "list", "index", "cell"}
    assert words.isdisjoint({"up", "worker", "balance", "host", "node"})


@pytest.mark.night
def test_lists_come_from_cells_and_from_the_index(command: list[str], config: Path, url: str) -> None:
    assert run(command, "list", "instances", "--output", "json", "--config", config).count('"web"') == 1
    wait_until(lambda: is_ready(url), 60)
    for consistency, route in (("strong", "one=live"), ("any", "one=index")):
        listed = get(f"{url}/v2.1/servers?all_tenants=1", headers={"Fleetlight-Consistency": consistency})
        assert listed.headers["Fleetlight-Route"].partition(";")[0] == route
        assert [each["name"] for each in listed.json()["servers"]] == ["web"]


def is_ready(url: str) -> bool:
    try:
        return get(f"{url}/healthz").is_success
    except httpx.TransportError:
        return False
