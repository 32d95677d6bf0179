"""Indexers that fill an index from nothing while Nova resizes a server across cells, and as its two rows swap."""

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest
import sqlalchemy

from fleetlight.cells.kinds.nova_db import tables
from fleetlight.cells.kinds.opening import open_adapter
from fleetlight.indexer.backends.base import IndexWriter
from fleetlight.indexer.backends.opening import open_writer
from fleetlight.indexer.backends.settings import IndexSettings
from fleetlight.indexer.settings import IndexerSettings
from fleetlight.indexer.stream.external_follower import ExternalFollower
from fleetlight.indexer.writing import rereading
from tests.support.fleets.documents import CREATED_AT
from tests.support.fleets.nova_fleet import NovaFleet, nova_fleet
from tests.support.fleets.nova_tables import SmallNova, small_nova
from tests.support.memory.memory_bus import MemoryBus
from tests.support.memory.stage import follower_parts, following
from tests.support.waiting import wait_until

pytestmark = pytest.mark.night

CELLS = ("cell0", "cell1")
LIST = "/v2.1/servers/detail?all_tenants=1"
SETTINGS = IndexerSettings(retry_wait_max_s=0.1, comparison_interval_s=36_000)


@pytest.fixture
def nova(tmp_path: Path) -> SmallNova:
    """Three servers that live in cell0, and hidden rows of them in cell1; and one that is in cell1 alone."""
    made = small_nova(tmp_path)
    for number in (1, 2, 3):
        uuid = made.add("cell0", number)
        row = {"id": number, "uuid": uuid, "deleted": 0, "hidden": True, "project_id": "demo", "user_id": "ada"}
        made.insert("cell1", tables.instances, row | {"display_name": "copy", "created_at": CREATED_AT + number})
    made.add("cell1", 9)
    return made


@pytest.fixture
def fleet(index: IndexSettings, nova: SmallNova, tmp_path: Path) -> Iterator[NovaFleet]:
    with nova_fleet(tmp_path, nova.urls, index=index) as made:
        yield made


@contextmanager
def followed(fleet: NovaFleet, writer: IndexWriter, name: str) -> Iterator[ExternalFollower]:
    """An indexer of that cell, which has compared it once."""
    cell, parts = (
        fleet.cells[name],
        follower_parts(writer, SETTINGS, lambda _: MemoryBus().receiver(), owners=fleet.fleet),
    )
    with following(cell, parts, open_adapter) as follower:
        wait_until(lambda: writer.load_progress().get(cell.uuid, follower.progress).fresh_as_of)
        yield follower


def swap(nova: SmallNova) -> None:
    """What Nova does when the resizes have got to cell1."""
    mapping, copies = tables.instance_mappings, tables.instances.update().where(tables.instances.c.id < 9)
    nova.execute("cell1", copies.values(hidden=False, vm_state="resized"))
    nova.execute("api", sqlalchemy.update(mapping).values(cell_id=2))
    nova.execute("cell0", copies.values(hidden=True))


@pytest.mark.parametrize("order", [CELLS, CELLS[::-1]])
@pytest.mark.parametrize("swaps", [False, True])
def test_complete_list_has_the_servers_whatever_cell_is_filled_first(
    fleet: NovaFleet, nova: SmallNova, order: tuple[str, ...], swaps: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """swaps: the rows do so between the two cells."""
    monkeypatch.setattr(rereading, "_REJECTED_RETRY_S", 0.2)
    api = fleet.api(uses_index=True)
    with closing(open_writer(fleet.index)) as writer, ExitStack() as stack:
        writer.prepare()
        first = stack.enter_context(followed(fleet, writer, order[0]))
        if swaps:
            swap(nova)
        second = stack.enter_context(followed(fleet, writer, order[1]))
        stack.enter_context(followed(fleet, writer, "build-requests"))
        expected = {server["id"] for server in fleet.api().get(LIST).json()["servers"]}
        assert len(expected) == 4
        answer = api.get(LIST)
        assert {server["id"] for server in answer.json()["servers"]} == expected
        wait_until(lambda: first.progress.is_complete and second.progress.is_complete)
        writer.make_searchable()
        by_index = api.get(LIST, {"Fleetlight-Consistency": "any"})
        assert by_index.headers["Fleetlight-Complete"] == "true"
        assert {server["id"] for server in by_index.json()["servers"]} == expected
