"""An Elasticsearch index that is damaged while an indexer follows a cell comes back by itself."""

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from uuid import uuid4

import pytest
from typer.testing import CliRunner, Result

from bench.faults.index_damage import DAMAGES, IndexDamage
from fleetlight.cli.app import app
from fleetlight.cli.data_folder import DataFolder
from fleetlight.indexer.backends.base import CellProgress
from fleetlight.indexer.backends.elasticsearch import preparation
from fleetlight.indexer.backends.elasticsearch.examination import examine
from fleetlight.indexer.backends.opening import open_writer
from fleetlight.indexer.errors import IndexerError, IndexUnavailableError
from fleetlight.manager.commands.embedded import set_up_cells, set_up_fleet
from fleetlight.resources.clock import system_clock
from fleetlight.resources.query_fields.node import NODE
from tests.support.fleets.indexer_worlds import World, new_world
from tests.support.servers.index_server import backend_at, index_at, index_client
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.night, pytest.mark.elasticsearch]


@pytest.fixture
def world(elasticsearch_url: str, elasticsearch_prefix: str, tmp_path: Path) -> Iterator[World]:
    index = index_at(elasticsearch_url, elasticsearch_prefix)
    with new_world(tmp_path, "memory://", str(uuid4()), index) as world:
        yield world


def test_index_heals_by_itself_whatever_of_it_was_lost(
    world: World, elasticsearch_url: str, elasticsearch_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One after the other, while changes come, and without a dead letter."""
    monkeypatch.setattr("fleetlight.indexer.reconcile.reconcile.LISTS_DELAY_S", 0.1)

    def is_right(name: str) -> bool:
        try:
            return world.index_equals_cell() and world.index_has_the_items()
        except IndexerError as error:
            raise AssertionError(f"after {name}: {error}") from error

    with (
        index_client(elasticsearch_url, request_timeout=30) as client,
        closing(open_writer(world.index)) as reader,
        world.relaying(),
        world.indexing() as service,
        world.auditing(service),
    ):
        damage = IndexDamage(client, elasticsearch_prefix)
        for number in range(20):
            world.operations.create({"display_name": f"first {number}"})
        wait_until(lambda: world.cell.uuid in reader.load_progress())
        for name, do in DAMAGES.items():
            wait_until(partial(is_right, name), timeout_s=30)
            world.operations.create({"display_name": f"before: {name}"})
            do(damage)
            world.operations.create({"display_name": f"after: {name}"})
        wait_until(partial(is_right, "all of them"), timeout_s=30)
        # By one that has looked before, and prepares nothing.
        assert reader.load_progress()[world.cell.uuid].is_complete
        wait_until(lambda: service.problem is None and not any(each.problem for each in service.health.values()))
    assert world.fleet.failures.counts() == {}


def test_index_that_was_damaged_while_no_indexer_ran_heals_at_the_start(
    world: World, elasticsearch_url: str, elasticsearch_prefix: str
) -> None:
    def is_right() -> bool:
        return world.index_equals_cell() and world.index_has_the_items()

    with index_client(elasticsearch_url, request_timeout=30) as client, world.relaying():
        damage = IndexDamage(client, elasticsearch_prefix)
        for name in ("instances restored", "state deleted", "items restored", "write alias gone"):
            with world.indexing():
                wait_until(is_right, timeout_s=30)
            world.operations.create({"display_name": name})
            DAMAGES[name](damage)
            # What no program knows is that the copy lacks this document.
            if name == "instances restored":
                client.delete_by_query(
                    index=damage.physical("instances"), query={"match_all": {}}, max_docs=1, refresh=True
                )
        with world.indexing():
            wait_until(is_right, timeout_s=30)


def test_audit_repairs_what_somebody_does_to_documents(
    world: World, elasticsearch_url: str, elasticsearch_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Deleted, altered with the revision as it is, and added; while changes come."""
    monkeypatch.setattr("fleetlight.indexer.reconcile.reconcile.LISTS_DELAY_S", 0.1)
    for number in range(30):
        world.operations.create({"display_name": f"first {number}"})
    deleted, altered, copied = (row.uuid for row in world.rows()[:3])
    stranger = str(uuid4())

    def is_right() -> bool:
        assert world.documents([stranger]) == {}
        return world.index_equals_cell()

    with (
        index_client(elasticsearch_url, request_timeout=30) as client,
        world.relaying(),
        world.indexing() as service,
        world.auditing(service),
    ):
        index = f"{elasticsearch_prefix}-instances-write"
        wait_until(is_right, timeout_s=30)
        client.delete(index=index, id=deleted)
        client.update(index=index, id=altered, script={"source": "ctx._source.display_name = 'altered'"})
        source = client.get(index=index, id=copied).body["_source"] | {"uuid": stranger}
        client.index(index=index, id=stranger, document=source, version=1, version_type="external")
        world.operations.create({"display_name": "meanwhile"})
        assert world.documents([deleted, stranger]).keys() != {deleted}
        wait_until(is_right, timeout_s=30)


def test_copy_of_a_closed_index_is_not_taken_for_a_closed_one(
    elasticsearch_url: str, elasticsearch_prefix: str
) -> None:
    """Elasticsearch copies the setting by which a closed index is known."""
    settings = index_at(elasticsearch_url, elasticsearch_prefix)
    progress = CellProgress(str(uuid4()), 1, 1, is_complete=True)
    with (
        index_client(elasticsearch_url, request_timeout=30) as client,
        closing(open_writer(settings)) as writer,
    ):
        writer.prepare()
        damage = IndexDamage(client, elasticsearch_prefix)
        damage.close("state")
        with pytest.raises(IndexUnavailableError, match="closed"):
            writer.save_progress([progress])
        assert [each.says for each in examine(settings, 30).problems if "closed" in each.says]
        damage.restore("state")
        assert not [each.says for each in examine(settings, 30).problems if "closed" in each.says]
        writer.prepare()
        writer.save_progress([progress])
        assert writer.load_progress() == {progress.cell_uuid: progress}


def test_index_that_the_server_makes_while_ours_is_prepared_is_dropped_by_the_next_attempt(
    elasticsearch_url: str, elasticsearch_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For a document that came too early; at first such an index has no mapping at all."""
    name = f"{elasticsearch_prefix}-progress"
    with (
        index_client(elasticsearch_url, request_timeout=30) as client,
        closing(open_writer(index_at(elasticsearch_url, elasticsearch_prefix))) as writer,
    ):
        with monkeypatch.context() as patch:
            patch.setattr(preparation, "drop_guessed", lambda *_: client.indices.create(index=name))
            with pytest.raises(IndexUnavailableError, match="by itself"):
                writer.prepare()
        writer.prepare()
        [made] = client.indices.get_mapping(index=name).values()
        assert made["mappings"]["dynamic"] == "strict"


@pytest.mark.parametrize("shut", [IndexDamage.close, IndexDamage.block_reading], ids=["closed", "blocked"])
def test_index_that_lists_cannot_search_is_named_by_status_and_doctor(
    elasticsearch_url: str,
    elasticsearch_prefix: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    shut: Callable[[IndexDamage, str], None],
) -> None:
    """Its progress is in another index, and says that all is well."""
    monkeypatch.setenv("FLEETLIGHT_INDEX_BACKEND", backend_at(elasticsearch_url))
    monkeypatch.setenv("FLEETLIGHT_INDEX_URLS", json.dumps([elasticsearch_url]))
    monkeypatch.setenv("FLEETLIGHT_INDEX_PREFIX", elasticsearch_prefix)
    folder = DataFolder(tmp_path / "data")
    folder.create()
    with closing(set_up_fleet(folder)) as fleet:
        (embedded,) = set_up_cells(folder, fleet, 1)
        embedded.engine.dispose()

    def run(*words: str) -> Result:
        return CliRunner().invoke(app, [*words, "--data-dir", str(folder.path)], catch_exceptions=False)

    settings = index_at(elasticsearch_url, elasticsearch_prefix)
    with index_client(elasticsearch_url, request_timeout=30) as client, closing(open_writer(settings)) as writer:
        writer.prepare()
        writer.save_progress([CellProgress(embedded.cell.uuid, 0, system_clock(), is_complete=True)])
        writer.mark_items(NODE.name, embedded.cell.uuid, are_whole=True)
        assert "lists ask" not in run("index", "status").stderr
        shut(IndexDamage(client, elasticsearch_prefix), "instances")
        status, doctor = run("index", "status"), run("doctor")
        assert (status.exit_code, doctor.exit_code) == (1, 1)
        assert "error: the index cannot be read: " in status.stderr
        assert "lists are answered by the cells" in status.stderr
        assert "index of cell1" not in doctor.stdout
        assert "progress of the index" in doctor.stdout
