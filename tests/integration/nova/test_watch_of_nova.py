"""A list of a cell of Nova, kept up to date with what its stream tells, stays what the list is.

Nova changes its cell and announces it over a real broker (tests/nova/notify.py); an indexer follows, and somebody
watches. One who was away goes on from the last id.
"""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from fleetlight.bus.bus import Receiver
from fleetlight.bus.external_exchange import split_address
from fleetlight.cells.kinds.opening import open_adapter
from fleetlight.indexer.backends.opening import open_writer
from fleetlight.indexer.settings import IndexerSettings
from tests.contract.compute_fleet import ComputeFleet, compute_fleet
from tests.contract.streams import Stream, stream
from tests.integration.nova.test_nova_notifications import NovaCell, running_nova_cell
from tests.support.memory.stage import follower_parts, following
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.night, pytest.mark.rabbitmq, pytest.mark.nova, pytest.mark.timeout(300)]

WATCHED = "all_tenants=1"
NEWEST = {"OpenStack-API-Version": "compute latest"}


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[ComputeFleet]:
    (tmp_path / "fleet").mkdir()
    with compute_fleet(tmp_path / "fleet") as made:
        yield made


@pytest.fixture
def nova_cell(
    tmp_path: Path, amqp_url: str, amqp_cell: str, nova_environment: str, fleet: ComputeFleet
) -> Iterator[NovaCell]:
    with running_nova_cell("sqlite", tmp_path, amqp_url, amqp_cell, nova_environment) as made:
        cell = made.cell
        urls = (cell.database_url, cell.transport_url)
        fleet.fleet.add_cell(cell.name, cell.kind, *urls, uuid=cell.uuid, api_database_url=cell.api_database_url)
        yield made


@contextmanager
def followed(nova: NovaCell, fleet: ComputeFleet) -> Iterator[None]:
    """An indexer of the cell, which has compared it once and will not do so again."""
    settings = IndexerSettings(retry_wait_max_s=0.1, comparison_interval_s=36_000)
    _, binding = split_address(nova.cell.transport_url)
    with closing(open_writer(fleet.index_settings)) as index:
        parts = follower_parts(
            index,
            settings,
            lambda cell: Receiver(cell.transport_url, cell.uuid, settings.prefetch, binding=binding),
            owners=fleet.fleet,
            journals=fleet.fleet.journals,
        )
        with following(nova.cell, parts, open_adapter):
            wait_until(lambda: fleet.fleet.journals.position(nova.cell.uuid) is not None)
            yield


async def follow_until(watch: Stream, known: dict[str, Any], expected: dict[str, Any]) -> None:
    """Bring `known` up to date with what is told, until it is as `expected`."""
    while known != expected:
        event = await watch.next()
        if event.name == "changed":
            known[event.data["server"]["id"]] = event.data["server"]
        else:
            assert event.name == "removed", event
            known.pop(event.data["server"]["id"], None)


def test_list_and_stream_are_together_the_list_of_later(nova_cell: NovaCell, fleet: ComputeFleet) -> None:
    api = fleet.api()

    async def the_list() -> dict[str, Any]:
        answer = await api.fetch(f"/v2.1/servers/detail?{WATCHED}", {"Fleetlight-Consistency": "strong"}, NEWEST)
        assert answer.headers["Fleetlight-Complete"] == "true"
        return {server["id"]: server for server in answer.json()["servers"]}

    async def scenario() -> None:
        async with stream(api, WATCHED, NEWEST) as watch:
            assert (await watch.next()).data == {"complete": True}
            known = await the_list()
            nova_cell.play(0)
            await follow_until(watch, known, await the_list())
        nova_cell.play(1)
        async with stream(api, WATCHED, NEWEST, last_id=watch.last_id) as again:
            assert (await again.next()).data == {"complete": True}
            await follow_until(again, known, await the_list())
            assert {"renamed-1", "built-1", "future-1"} <= {server["name"] for server in known.values()}

    with followed(nova_cell, fleet):
        api.run(scenario())
