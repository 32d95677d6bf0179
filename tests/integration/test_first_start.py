"""The very first start of an indexer on Elasticsearch, when not even the index is there."""

from functools import partial
from pathlib import Path
from uuid import uuid4

import pytest
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from cli.processes.following import run_indexer
from cli.settings import load_settings
from indexer.metrics import IndexerMetrics
from tests.support.indexer_worlds import in_thread, new_world
from tests.support.waiting import wait_until

pytestmark = pytest.mark.elasticsearch


def test_purge_waits_for_the_index_without_a_warning(
    elasticsearch_url: str, elasticsearch_prefix: str, tmp_path: Path
) -> None:
    config = tmp_path / "fleetlight.toml"
    config.write_text(
        f'[fleet]\ndatabase_url = "sqlite:///{tmp_path}/fleet.db"\n'
        f'[index]\nbackend = "elasticsearch"\nurls = ["{elasticsearch_url}"]\nprefix = "{elasticsearch_prefix[:-1]}"\n'
    )
    settings = load_settings(config, None)
    with new_world(tmp_path, "memory://", str(uuid4()), settings.index) as world, capture_logs() as logs:
        run = partial(run_indexer, settings, world.fleet, IndexerMetrics(CollectorRegistry()))

        with in_thread(run):
            wait_until(lambda: any(entry["event"] == "indexer.cell_started" for entry in logs), 60)
    assert [entry for entry in logs if entry["event"] == "indexer.purge_postponed"] == []
