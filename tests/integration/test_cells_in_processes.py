"""`fleetlight index sync` and `rebuild` with several processes, which are killed, stopped, and in each other's way."""

import json
import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from fleetlight.cells.fleet.index_work import WorkKind, WorkState
from fleetlight.cli.data_folder import DataFolder
from fleetlight.cli.fleet import open_fleet
from fleetlight.cli.index.orders import OrderedWork
from fleetlight.cli.settings import load_settings
from fleetlight.indexer.backends.opening import open_writer
from fleetlight.manager.commands.embedded import set_up_cells, set_up_fleet
from tests.support.commands import Command
from tests.support.fleets.indexer_worlds import in_thread
from tests.support.fleets.instance_operations import InstanceOperations
from tests.support.servers.index_server import backend_at, index_client
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.night, pytest.mark.elasticsearch, pytest.mark.no_rerun]

_CELLS, _INSTANCES = 3, 100
_BATCH = 10
_FIRST_PAGES = _CELLS * _BATCH
_INTERRUPTED = 130


@dataclass(frozen=True)
class World:
    """A fleet of three cells with instances, and an index in Elasticsearch that has none of them yet."""

    folder: DataFolder
    elasticsearch_url: str
    prefix: str

    def start(self, *words: str) -> "Running":
        log = self.folder.path.with_name(f"{uuid4()}.log")
        return Running(Command("index", *words, "--data-dir", str(self.folder.path), log=log), log)

    def start_slow_sync(self) -> "Running":
        """Which waits for minutes after the first page of each cell."""
        return self.start("sync", "--processes", "2", "--rate", "1")

    def documents(self) -> Mapping[str, Any]:
        """All that the index has."""
        with index_client(self.elasticsearch_url, request_timeout=30) as client:
            name = f"{self.prefix}-instances"
            client.indices.refresh(index=name, ignore_unavailable=True)
            found = client.search(index=name, size=1000, version=True, ignore_unavailable=True).body["hits"]["hits"]
        return {each["_id"]: (each["_version"], each["_source"]) for each in found}

    def rows_behind(self) -> Sequence[int]:
        """Of each sync that was cut off."""
        with closing(open_writer(load_settings(None, self.folder.path).index)) as index:
            return [checkpoint["rows"] for checkpoint in index.load_state("sync").values()]


@dataclass(frozen=True)
class Running:
    """A command, and what it says."""

    command: Command
    log: Path

    def ended(self, status: int) -> str:
        assert self.command.wait(60) == status, self.log.read_text()
        return self.log.read_text()


@pytest.fixture
def world(tmp_path: Path, elasticsearch_url: str, elasticsearch_prefix: str, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setenv("FLEETLIGHT_INDEX_BACKEND", backend_at(elasticsearch_url))
    monkeypatch.setenv("FLEETLIGHT_INDEX_URLS", json.dumps([elasticsearch_url]))
    monkeypatch.setenv("FLEETLIGHT_INDEX_PREFIX", elasticsearch_prefix)
    monkeypatch.setenv("FLEETLIGHT_INDEXER_SYNC_BATCH_SIZE", str(_BATCH))
    folder = DataFolder(tmp_path / "data")
    folder.create()
    with closing(set_up_fleet(folder)) as fleet:
        for cell in set_up_cells(folder, fleet, _CELLS):
            InstanceOperations(cell.engine, fleet, cell.cell).create_many([{} for _ in range(_INSTANCES)])
            cell.engine.dispose()
    return World(folder, elasticsearch_url, elasticsearch_prefix)


def children_of(parent: int) -> Sequence[int]:
    """Processes that any thread of it has started."""
    found = Path(f"/proc/{parent}/task").glob("*/children")
    return [int(child) for children in found for child in children.read_text().split()]


def test_index_is_that_of_one_process(world: World) -> None:
    synced = world.start("sync", "--type", "OS::Nova::Server", "--processes", "2").ended(0)
    assert synced.splitlines() == [
        f"cell{number}: {_INSTANCES} instances synced, complete up to sequence 0" for number in range(1, _CELLS + 1)
    ]
    by_sync = world.documents()
    assert len(by_sync) == _CELLS * _INSTANCES
    for processes in ("2", "1"):
        world.start("rebuild", "--processes", processes).ended(0)
        assert world.documents() == by_sync


def test_sync_goes_on_where_a_child_was_killed_or_it_was_stopped(world: World) -> None:
    killed = world.start_slow_sync()
    wait_until(lambda: len(world.documents()) >= _FIRST_PAGES)
    children = children_of(killed.command.pid)
    assert len(children) == 2
    another = world.start("sync", "--cell", "cell1").ended(1)
    assert f"cell 'cell1' is being worked on by fleetlight index sync (process {killed.command.pid} on " in another
    os.kill(children[1], signal.SIGKILL)
    assert "ended with SIGKILL; start again" in killed.ended(1)
    assert not any(Path(f"/proc/{child}").exists() for child in children)

    before = len(world.documents())
    stopped = world.start_slow_sync()
    wait_until(lambda: len(world.documents()) > before)
    stopped.command.terminate()
    assert stopped.ended(_INTERRUPTED) == "stopped; the same command goes on from here\n"
    assert 0 < sum(world.rows_behind()) < _CELLS * _INSTANCES

    again = world.start("sync", "--processes", "2").ended(0)
    assert again.count(f"{_INSTANCES} instances synced, complete up to sequence 0") == _CELLS
    assert len(world.documents()) == _CELLS * _INSTANCES
    assert not world.rows_behind()


def test_indexer_carries_out_orders_in_as_many_processes_as_it_is_configured_to_have(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLEETLIGHT_INDEXER_SYNC_PROCESSES", "2")
    settings, before = load_settings(None, world.folder.path), children_of(os.getpid())
    with open_fleet(settings.fleet) as fleet:
        fleet.index_work.order(WorkKind.SYNC, [cell.uuid for cell in fleet.cells()], "ada", 1)
        with in_thread(OrderedWork(settings, fleet).run):
            wait_until(lambda: len(children_of(os.getpid())) >= len(before) + 2)
            wait_until(lambda: not fleet.index_work.open())
        [done] = fleet.index_work.all()
    assert (done.state, done.result) == (WorkState.DONE, f"{_CELLS * _INSTANCES} instances of {_CELLS} cells synced")
    assert len(world.documents()) == _CELLS * _INSTANCES
