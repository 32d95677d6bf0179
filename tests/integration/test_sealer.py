"""Another program writes to the index while a cell is followed: lists do without the index until it is whole again."""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from functools import partial
from pathlib import Path
from uuid import uuid4

import pytest
from elasticsearch import Elasticsearch

from fleetlight.indexer.backends.base import CellProgress
from fleetlight.indexer.backends.opening import open_searcher, open_writer
from fleetlight.resources.clock import system_clock
from tests.support.fleets.indexer_worlds import World, new_world
from tests.support.servers.index_server import index_at, index_client
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.elasticsearch, pytest.mark.night]


@pytest.fixture
def world(elasticsearch_url: str, elasticsearch_prefix: str, tmp_path: Path) -> Iterator[World]:
    index = index_at(elasticsearch_url, elasticsearch_prefix)
    with new_world(tmp_path, "memory://", str(uuid4()), index) as world:
        yield world


def delete_one(client: Elasticsearch, index: str, uuid: str) -> None:
    client.delete(index=index, id=uuid)


def alter_one(client: Elasticsearch, index: str, uuid: str) -> None:
    client.update(index=index, id=uuid, script={"source": "ctx._source.display_name = 'altered'"})


def add_one(client: Elasticsearch, index: str, uuid: str) -> None:
    source = client.get(index=index, id=uuid).body["_source"] | {"uuid": str(uuid4())}
    client.index(index=index, id=source["uuid"], document=source, version=1, version_type="external")


def move_one_to_another_cell(client: Elasticsearch, index: str, uuid: str) -> None:
    client.update(index=index, id=uuid, script={"source": f"ctx._source.cell_uuid = '{uuid4()}'"})


def delete_all(client: Elasticsearch, index: str, _uuid: str) -> None:
    client.delete_by_query(index=index, query={"match_all": {}}, refresh=True, conflicts="proceed")


def _beside(index: str, name: str) -> str:
    return index.replace("instances-write", name)


def raise_the_watermark(client: Elasticsearch, index: str, _uuid: str) -> None:
    script = {"source": "ctx._source.watermark += 1000; ctx._source.fresh_as_of += 3600000000L"}
    client.update_by_query(index=_beside(index, "progress"), script=script, refresh=True, conflicts="proceed")


def remove_all_facts(client: Elasticsearch, index: str, uuid: str) -> None:
    delete_all(client, _beside(index, "state"), uuid)


def remove_all_progress(client: Elasticsearch, index: str, uuid: str) -> None:
    delete_all(client, _beside(index, "progress"), uuid)


VANDALS: Mapping[str, Callable[[Elasticsearch, str, str], None]] = {
    "delete one": delete_one,
    "alter one": alter_one,
    "add one": add_one,
    "move one to another cell": move_one_to_another_cell,
    "delete all": delete_all,
    "raise the watermark": raise_the_watermark,
    "remove all facts": remove_all_facts,
    "remove all progress": remove_all_progress,
}


def test_lists_do_without_the_index_until_what_another_program_wrote_is_repaired(
    world: World, elasticsearch_url: str, elasticsearch_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fleetlight.indexer.reconcile.reconcile.LISTS_DELAY_S", 0.1)
    for number in range(30):
        world.operations.create({"display_name": f"first {number}"})
    index = f"{elasticsearch_prefix}-instances-write"
    with (
        index_client(elasticsearch_url, request_timeout=30) as client,
        closing(open_writer(world.index)) as reader,
        asyncio.Runner() as runner,
        world.relaying(),
        world.indexing(),
    ):
        searcher = open_searcher(world.index)

        def progress() -> CellProgress | None:
            return dict(runner.run(searcher.progress())).get(world.cell.uuid)

        def is_whole_since(moment: int) -> bool:
            # What another program has altered is no progress.
            found = progress()
            return found is not None and found.is_complete and found.fresh_as_of > moment

        wait_until(lambda: world.cell.uuid in reader.load_progress())
        for name, vandal in VANDALS.items():
            wait_until(partial(is_whole_since, system_clock()), timeout_s=60)
            assert world.index_equals_cell(), f"before: {name}"
            vandal(client, index, world.rows()[0].uuid)
            wait_until(partial(is_whole_since, system_clock()), timeout_s=60)
            assert world.index_equals_cell(), f"after: {name}"
        runner.run(searcher.close())
