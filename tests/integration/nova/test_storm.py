"""Cells of Nova that Nova's own code changes at random, on a MariaDB of their own that is killed now and then.

The indexer is a process of its own, and is killed too; no bus is there. tests/nova/storm.py says what changes, and
FLEETLIGHT_TEST_STORM_ROUNDS for how long.
"""

import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from uuid import uuid4

import pytest

from fleetlight.cells.capabilities import CellKind
from fleetlight.cells.kinds.nova_db.deployment import Deployment
from fleetlight.cells.model import Cell
from scripts.servers.private import private_server
from tests.support.servers.logged_nova import FollowedNova, LoggedNova, LoggingMariaDB, followed_nova

pytestmark = [
    pytest.mark.night,
    pytest.mark.own_servers,
    pytest.mark.mariadb,
    pytest.mark.nova,
    pytest.mark.no_rerun,
    pytest.mark.timeout(1200),
]

SCRIPT = Path(__file__).resolve().parents[2] / "nova" / "storm.py"
ROUNDS = int(os.environ.get("FLEETLIGHT_TEST_STORM_ROUNDS", "3"))
CHANGES = 150
TEMPLATED = "{scheme}://{username}@{hostname}:{port}/{path}"


@contextmanager
def nova_process(nova: LoggedNova, folder: Path, nova_environment: str) -> Iterator["subprocess.Popen[str]"]:
    databases = ("api", "cell0", "cell1", "cell2")
    for database in databases:
        nova.administer(f"CREATE DATABASE `{nova.prefix}{database}`")
    world = {name: nova.url(name, "root") for name in databases} | {"folder": str(folder), "templated": TEMPLATED}
    (folder / "world.json").write_text(json.dumps(world))
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    process = subprocess.Popen(
        [Path(nova_environment).parent / "bin" / "python", "-W", "ignore", SCRIPT, folder / "world.json"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate(timeout=60)


def said(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, "Nova has ended; what it said is above"
    return line.strip()


class Indexer:
    """`fleetlight indexer`, in a process that may be killed."""

    def __init__(self, config: Path) -> None:
        self._command = [sys.executable, "-m", "fleetlight.cli", "indexer", "--config", str(config)]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL)

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait(60)


def registered(followed: FollowedNova) -> list[Cell]:
    """The cells of the deployment as `cell add-nova` adds them, cell0 aside."""
    nova = followed.nova
    api = nova.url("api")
    with closing(Deployment(nova.url("api", "root"))) as deployment:
        known = {each.name: each.uuid for each in deployment.cells()}
    added = [followed.fleet.add_cell("build-requests", CellKind.NOVA_DB, api, "", api_database_url=api)]
    for name in ("cell1", "cell2"):
        url = nova.url(name)
        added.append(
            followed.fleet.add_cell(
                name, CellKind.NOVA_DB, url, "", api_database_url=api, nova_uuid=known[name], uuid=str(uuid4())
            )
        )
    return added


def test_index_equals_what_nova_committed_whenever_it_says_so_though_all_are_killed(
    tmp_path: Path, nova_environment: str
) -> None:
    draw = random.Random(20261128)
    with ExitStack() as stack:
        nova = LoggedNova(stack.enter_context(private_server(LoggingMariaDB())), "nova_")
        process = stack.enter_context(nova_process(nova, tmp_path, nova_environment))
        assert said(process) == "ready"
        nova.grant(["api", "cell1", "cell2"])
        followed = stack.enter_context(followed_nova(nova, tmp_path / "fleetlight"))
        cells = registered(followed)
        config = tmp_path / "fleetlight.toml"
        config.write_text(
            f'[fleet]\ndatabase_url = "sqlite:///{tmp_path}/fleetlight/fleet.db"\n'
            f'[index]\nbackend = "sqlite"\npath = "{tmp_path}/fleetlight/index.db"\n'
        )
        indexer = Indexer(config)
        indexer.start()
        stack.callback(indexer.kill)
        assert process.stdin is not None
        for round_ in range(ROUNDS):
            process.stdin.write(f"{draw.getrandbits(32)} {CHANGES}\n")
            process.stdin.flush()
            if round_ % 3 == 1:
                indexer.kill()
            assert said(process) == "done"
            if round_ % 3 == 2:
                nova.server.kill()
                nova.server.start()
            if round_ % 3 == 1:
                indexer.start()
            for cell in cells:
                progress = followed.wait_until_fresh(cell.uuid)
                assert progress.watermark > 0
                assert followed.differing(cell) == {}, cell.name
