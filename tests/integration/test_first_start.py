"""The very first start of an indexer on Elasticsearch, when not even the index is there."""

from contextlib import closing
from functools import partial
from pathlib import Path
from uuid import uuid4

import pytest
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from fleetlight.cli.processes.following import run_indexer
from fleetlight.cli.settings import load_settings
from fleetlight.indexer.backends.base import CellProgress
from fleetlight.indexer.backends.opening import open_searcher, open_writer
from fleetlight.indexer.backends.settings import IndexSettings
from fleetlight.indexer.metrics import IndexerMetrics
from fleetlight.listing.index_gateway import IndexGateway
from fleetlight.listing.settings import SearchSettings
from fleetlight.resources.clock import system_clock
from tests.support.fleets.indexer_worlds import in_thread, new_world
from tests.support.servers.index_server import backend_at, index_at
from tests.support.waiting import wait_until

pytestmark = pytest.mark.elasticsearch


def test_purge_waits_for_the_index_without_a_warning(
    elasticsearch_url: str, elasticsearch_prefix: str, tmp_path: Path
) -> None:
    config = tmp_path / "fleetlight.toml"
    config.write_text(
        f'[fleet]\ndatabase_url = "sqlite:///{tmp_path}/fleet.db"\n'
        f'[index]\nbackend = "{backend_at(elasticsearch_url)}"\n'
        f'urls = ["{elasticsearch_url}"]\nprefix = "{elasticsearch_prefix[:-1]}"\n'
    )
    settings = load_settings(config, None)
    with new_world(tmp_path, "memory://", str(uuid4()), settings.index) as world, capture_logs() as logs:
        run = partial(run_indexer, settings, world.fleet, IndexerMetrics(CollectorRegistry()))

        with in_thread(run):
            wait_until(lambda: any(entry["event"] == "indexer.cell_started" for entry in logs), 60)
    assert [entry for entry in logs if entry["event"] == "indexer.purge_postponed"] == []


@pytest.mark.parametrize("backend", ["sqlite", "elasticsearch"])
async def test_api_that_is_asked_before_there_is_an_index_uses_it_once_there_is_one(
    elasticsearch_url: str, elasticsearch_prefix: str, tmp_path: Path, backend: str
) -> None:
    settings = (
        IndexSettings(path=tmp_path / "index.db")
        if backend == "sqlite"
        else index_at(elasticsearch_url, elasticsearch_prefix[:-1])
    )
    cell = CellProgress(str(uuid4()), 1, system_clock(), is_complete=True)

    searcher = open_searcher(settings)
    index = IndexGateway(searcher, SearchSettings(enabled=True))
    assert await index.progress_or_nothing() == {}
    assert not index.safe_connect.is_tripped
    with closing(open_writer(settings)) as writer:
        writer.prepare()
        writer.save_progress([cell])
    assert (await index.followed(0)).keys() == {cell.cell_uuid}
    index.close()
    await searcher.close()
