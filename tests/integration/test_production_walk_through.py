"""docs/operations/production.md, walked through with real servers: what docker-compose.yml starts, without Docker."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import kombu
import pytest

from fleetlight.bus import topology
from tests.support.servers.composition import Composition
from tests.support.values import IMAGE
from tests.support.waiting import wait_until

pytestmark = [
    pytest.mark.night,
    pytest.mark.elasticsearch,
    pytest.mark.rabbitmq,
    pytest.mark.postgresql,
    pytest.mark.timeout(600),
]


@pytest.fixture
def composition(
    tmp_path: Path,
    elasticsearch_url: str,
    elasticsearch_prefix: str,
    amqp_url: str,
    new_postgresql_database: Callable[[], str],
) -> Iterator[Composition]:
    folder = tmp_path / "empty"
    folder.mkdir()
    composition = Composition.on(
        folder,
        elasticsearch_url=elasticsearch_url,
        amqp_url=amqp_url,
        new_database=new_postgresql_database,
        prefix=elasticsearch_prefix.rstrip("-"),
    )
    try:
        yield composition
    finally:
        composition.kill()
        _remove_buses(amqp_url, composition)


def _cells(composition: Composition) -> dict[str, str]:
    """Uuids by name."""
    return {cell["name"]: cell["uuid"] for cell in json.loads(composition.run("api", "cell", "list", "--output=json"))}


def _remove_buses(amqp_url: str, composition: Composition) -> None:
    with kombu.Connection(amqp_url) as connection, connection.channel() as channel:
        for cell_uuid in _cells(composition).values():
            for queue in (topology.work_queue_name(cell_uuid), topology.dead_name(cell_uuid)):
                channel.queue_delete(queue)
            for exchange in (topology.exchange_name(cell_uuid), topology.dead_name(cell_uuid)):
                channel.exchange_delete(exchange)


def test_what_docker_compose_starts_works_together_and_stops_well(composition: Composition) -> None:
    composition.up()
    # Docker first looks at the health of a process ten seconds after its start, when the API listens; we look at once.
    later = httpx.HTTPTransport(retries=6)
    url = f"http://127.0.0.1:{composition.ports['api']}"
    with httpx.Client(base_url=url, timeout=60, transport=later) as client:
        answer = client.get("/v2.1/servers", params={"limit": 1})
        assert (answer.status_code, answer.json()) == (200, {"servers": []})

        for name in _cells(composition):
            capacity = ("--vcpus", "64", "--memory", "256G", "--disk", "4000G")
            composition.run("api", "host", "add", name, "compute1", *capacity)
        wanted = {"server": {"name": "hello", "flavorRef": "1", "imageRef": IMAGE, "networks": "none"}}
        created = client.post("/v2.1/servers", json=wanted, headers={"OpenStack-API-Version": "compute 2.37"})
        assert created.status_code == 202, created.text
        uuid = created.json()["server"]["id"]

        def is_active_in_the_index() -> bool:
            answer = client.get("/v2.1/servers/detail")
            assert [(each["id"], each["status"]) for each in answer.json()["servers"]] == [(uuid, "ACTIVE")]
            assert answer.headers["Fleetlight-Complete"] == "true"
            return "live" not in answer.headers["Fleetlight-Route"]

        # Accepted by the API, built by the worker, announced by the relay, brought into the index by the indexer.
        wait_until(is_active_in_the_index, 240)

    assert {cell["health"] for cell in json.loads(composition.run("api", "index", "status", "--output=json"))} == {"ok"}
    composition.run("api", "index", "verify")
    found = json.loads(composition.run("api", "doctor", "--output=json"))
    assert {each["state"] for each in found} == {"ok"}
    assert {each["about"] for each in found} >= {
        "fleet database",
        "cell cell1",
        "bus of cell1, cell2",
        "index of cell2",
    }
    assert any(each["found"].startswith("Elasticsearch 9.") for each in found)
    assert any(each["found"].startswith("RabbitMQ 3.") for each in found)
    # As after a restart of the machine: what has run once runs again, and changes nothing.
    before = _cells(composition)
    for name in ("database", "cell1", "cell2"):
        composition.run_once(name)
    assert _cells(composition) == before
    assert composition.stop() == dict.fromkeys(("relay", "worker", "indexer", "api", "deliverer"), 0)
    assert list(composition.folder.iterdir()) == [], "a container has no room but for what is given to it"
