"""`fleetlight index` in a terminal, beside a relay and an indexer that follow eight cells through a real RabbitMQ."""

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from bench.faults.processes import daemon
from bench.faults.world import Servers, World, new_world
from fleetlight.bus import topology
from fleetlight.bus.bus import Message, Publisher
from fleetlight.bus.topology import RESOURCE_HEADER
from fleetlight.cli.app import app
from fleetlight.resources.clock import system_clock
from tests.support.fleets.documents import make_uuid
from tests.support.played.newer_messages import newer_message
from tests.support.played.producers import announcement, let_announce
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.elasticsearch, pytest.mark.rabbitmq, pytest.mark.timeout(400), pytest.mark.night]

_NOT_SOLVED = 1


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, elasticsearch_url: str, amqp_url: str) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("world")
    with new_world(folder, Servers(elasticsearch_url, amqp_url)) as world:
        let_announce(world.fleet, world.cells[1])
        with daemon(world, "relay", folder), daemon(world, "indexer", folder):
            yield world


@pytest.fixture
def terminal(world: World) -> "Terminal":
    return Terminal(world.config)


class Terminal:
    """Runs `fleetlight index …` as a person would."""

    def __init__(self, config: Path) -> None:
        self._config = config

    def __call__(self, *words: str, status: int = 0) -> str:
        result = CliRunner().invoke(app, ["index", *words, "--config", str(self._config)], catch_exceptions=False)
        assert result.exit_code == status, result.output
        return result.stdout

    def failures(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self("failures", "list", "--output", "json"))
        return found


def test_bad_messages_are_listed_shown_retried_and_dropped(world: World, terminal: Terminal) -> None:
    cell = world.cells[0]
    uuid = world.operations(system_clock)[0].create({"display_name": "as its cell has it"}).uuid
    wait_until(lambda: json.loads(terminal("verify", "--cell", cell.name, "--output", "json"))[0]["indexed"] == 1)

    torn = Message(b'{"torn', topology.routing_key("INFO"), {RESOURCE_HEADER: uuid})
    about_nothing = Message(b"[", topology.routing_key("INFO"), {})
    with closing(Publisher(world.servers.amqp, cell.uuid)) as publisher:
        publisher.publish([torn, about_nothing])
    wait_until(
        lambda: (
            {each["instance_uuid"]: bool(each["reread_at"]) for each in terminal.failures()}
            == {
                uuid: True,
                None: False,
            }
        )
    )
    solvable, hopeless = sorted(terminal.failures(), key=lambda failure: failure["instance_uuid"] is None)

    assert (solvable["cell"], solvable["reason"], solvable["times"]) == (cell.name, "malformed", 1)
    assert 'body: {"torn' in terminal("failures", "show", solvable["id"])
    statuses = json.loads(terminal("status", "--output", "json", status=1))
    assert [each["dead_letters"] for each in statuses if each["cell"] == cell.name] == [2]

    assert "solved: instance" in terminal("failures", "retry", solvable["id"])
    assert "not solved" in terminal("failures", "retry", "--all", status=_NOT_SOLVED)
    assert [each["id"] for each in terminal.failures()] == [hopeless["id"]]
    assert terminal("failures", "drop", hopeless["id"]) == "1 dropped\n"
    assert terminal.failures() == []


def test_fields_of_a_newer_producer_can_be_searched_for_without_an_upgrade(world: World, terminal: Terminal) -> None:
    schemas = {"rack": {"type": "string"}}
    bodies = [
        newer_message({"rack": "r7"}, schemas, number=1),
        newer_message({"rack": 7}, schemas, number=2),
        newer_message({"rack": "r8"}, schemas, number=3),
    ]
    cell, messages = world.cells[1], [Message(body, topology.routing_key("INFO"), {}) for body in bodies]
    with closing(Publisher(world.servers.amqp, cell.uuid)) as publisher:
        publisher.publish([announcement(message, cell.uuid) for message in messages])

    def is_reported() -> bool:
        fields = json.loads(terminal("fields", "--output", "json"))
        states = {each["state"]: each["count"] for each in fields if each["field"] == "rack"}
        return states == {"indexed": 2, "kept only, contradicts its schema": 1}

    wait_until(is_reported)
    found = json.loads(terminal("find", "--field", "rack=r7", "--output", "json"))
    assert [each["uuid"] for each in found] == [make_uuid(1)]


def test_cells_are_synced_several_at_once_and_no_faster_than_allowed_while_they_are_followed(
    world: World, terminal: Terminal
) -> None:
    for operations in world.operations(system_clock):
        operations.create_many([{}] * 3)
    said = terminal("sync", "--type", "OS::Nova::Server", "--parallel", "3", "--rate", "1000")
    assert {line.partition(":")[0] for line in said.splitlines()} == {cell.name for cell in world.cells}
    wait_until(lambda: all(each["agrees"] for each in json.loads(terminal("verify", "--output", "json"))))
