"""An index of several primary shards with copies, on two nodes of Elasticsearch, each a process of its own.

What a test of one shard cannot see: a page is merged from shards, digests are summed over them, what was written is
searchable on each at a time of its own, and a node may be killed while everything goes on.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path
from threading import Event
from uuid import uuid4

import pytest
from elasticsearch import Elasticsearch

from fleetlight.cells.kinds.opening import open_changelog_adapter
from fleetlight.indexer.backends.base import PartlyWrittenError
from fleetlight.indexer.backends.opening import open_searcher, open_writer
from fleetlight.indexer.backends.settings import IndexSettings
from fleetlight.indexer.errors import IndexUnavailableError
from fleetlight.indexer.reconcile.differences import Verification
from fleetlight.indexer.reconcile.fill import sync_cell
from fleetlight.indexer.reconcile.native_cell import NativeComparison
from fleetlight.indexer.reconcile.rebuild import rebuild_index
from fleetlight.indexer.reconcile.reconcile import verify
from fleetlight.query.filters import Eq
from fleetlight.query.page import PageRequest
from fleetlight.query.sort import Direction, SortKey, SortOrder
from fleetlight.resources.instance import INSTANCE_FIELDS
from scripts.servers import process
from scripts.servers.elasticsearch import NodeOfElasticsearch
from scripts.servers.private import PrivateServer, private_server
from tests.support.fleets.documents import TEMPLATE
from tests.support.fleets.indexer_worlds import World, in_thread, new_world
from tests.support.fleets.rebuilding import Silent, open_parts
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.night, pytest.mark.own_servers, pytest.mark.elasticsearch, pytest.mark.timeout(400)]

SHARDS, REPLICAS = 3, 1
COUNT = 300
LATEST_S = 90
NEWEST_FIRST = SortOrder.of(INSTANCE_FIELDS, [SortKey("created_at", Direction.DESC)])


@pytest.fixture
def nodes() -> Iterator[Sequence[PrivateServer]]:
    """Two nodes of one cluster; the second one can be killed without the cluster losing its master."""
    ports = [process.free_port(), process.free_port()]
    with ExitStack() as stack, ThreadPoolExecutor(len(ports)) as threads:
        servers = [private_server(NodeOfElasticsearch(ports, number)) for number in range(len(ports))]
        # Both at once, for each takes half a minute of a processor.
        yield list(threads.map(stack.enter_context, servers))


@pytest.fixture
def world(tmp_path: Path, nodes: Sequence[PrivateServer]) -> Iterator[World]:
    index = IndexSettings(
        backend="elasticsearch",
        urls=tuple(node.url for node in nodes),
        shards=SHARDS,
        replicas=REPLICAS,
        search_timeout_s=30,
    )
    with new_world(tmp_path, "memory://", str(uuid4()), index) as world:
        yield world


def test_lists_sync_rebuild_comparison_and_audit_over_several_shards(
    world: World, nodes: Sequence[PrivateServer]
) -> None:
    uuids = [changed.uuid for changed in world.operations.create_many([{} for _ in range(COUNT)])]
    with closing(open_writer(world.index)) as writer:
        writer.prepare()
        with closing(open_changelog_adapter(world.cell)) as adapter:
            sync_cell(adapter, writer, batch_size=50)
        writer.make_searchable()
        assert list_all(world) == expected(world)
        assert min(documents_by_shard(nodes[0], world)) > 0

    with world.relaying(), world.indexing() as service:
        wait_until(world.index_equals_cell, LATEST_S)
        assert verified(world).differences == ()

        lost = dict.fromkeys((uuids[7], uuids[200]), 1)
        lose(world, lost)
        repaired = verified(world, repair=True)
        assert {each.uuid for each in repaired.differences} == lost.keys()
        assert repaired.remaining == ()

        with in_thread(lambda stop: operate(world, stop)):
            with open_parts(world.index, world.fleet) as parts:
                rebuild_index(parts, Silent(), back=False)
            nodes[1].kill()
            wait_until(lambda: has_grown(world), LATEST_S)
        wait_until(world.index_equals_cell, LATEST_S)
        assert list_all(world) == expected(world)
        nodes[1].start()
        wait_until(lambda: is_green(nodes[0]), LATEST_S)
        assert verified(world).differences == ()
        lose(world, lost)
        with world.auditing(service):
            wait_until(world.index_equals_cell, LATEST_S)
    assert list_all(world) == expected(world)


def list_all(world: World, limit: int = 70) -> list[str]:
    """The uuids of all pages of the default list, by the index."""

    async def read() -> list[str]:
        searcher = open_searcher(world.index)
        listed: list[str] = []
        after = None
        try:
            while True:
                request = PageRequest(Eq("deleted", False), NEWEST_FIRST, limit, after)
                rows = await searcher.search(request, [world.cell.uuid], TEMPLATE)
                listed += [row.position[-1] for row in rows]
                if len(rows) < limit:
                    return listed
                after = rows[-1].position
        finally:
            await searcher.close()

    return asyncio.run(read())


def expected(world: World) -> list[str]:
    """What the default list has, by the rows of the cell."""
    living = [row for row in world.rows() if not row.record["deleted"]]
    return [row.uuid for row in sorted(living, key=lambda row: (-row.record["created_at"], row.uuid))]


def verified(world: World, *, repair: bool = False) -> Verification:
    with closing(open_changelog_adapter(world.cell)) as adapter, closing(open_writer(world.index)) as writer:
        writer.prepare()
        return verify(NativeComparison(adapter, writer, catch_up_timeout_s=30), repair=repair)


def lose(world: World, versions: Mapping[str, int]) -> None:
    """Documents go that no indexer has removed. versions: those that they have, by uuid."""
    with closing(open_writer(world.index)) as writer:
        writer.remove(versions)
        writer.make_searchable()


def operate(world: World, stop: Event) -> None:
    while not stop.wait(0.02):
        created = world.operations.create({})
        world.operations.update(created.uuid, {"display_name": created.uuid[:8]})


def has_grown(world: World) -> bool:
    """Whether what was made lately is in the index: half a hundred more than at the beginning."""
    try:
        return len(list_all(world)) > COUNT + 50
    except (IndexUnavailableError, PartlyWrittenError):
        return False


def documents_by_shard(node: PrivateServer, world: World) -> list[int]:
    with Elasticsearch(node.url, request_timeout=30) as client:
        shards = client.cat.shards(index=f"{world.index.prefix}-instances-*", format="json", h="prirep,docs")
        return sorted(int(shard["docs"]) for shard in shards.body if shard["prirep"] == "p")  # type: ignore[index]


def is_green(node: PrivateServer) -> bool:
    with Elasticsearch(node.url, request_timeout=30) as client:
        return bool(client.cluster.health()["status"] == "green")
