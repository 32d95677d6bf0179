"""docs/operations/producers.md, walked through: accounts, programs and failures, on a RabbitMQ with TLS."""

import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import kombu
import pytest
from amqp.exceptions import AccessRefused  # type: ignore[import-untyped]  # as kombu, which it belongs to
from typer.testing import CliRunner

from fleetlight.bus.settings import BusSettings
from fleetlight.bus.topology import declare, exchange_name, work_queue_name
from fleetlight.cli.app import app
from fleetlight.indexer.backends.settings import IndexSettings
from scripts.servers.base import ADMINISTRATOR, ADMINISTRATORS_PASSWORD
from scripts.servers.private import private_server
from scripts.servers.rabbitmq import management_port
from scripts.servers.service import SECURED
from tests.support.fleets.indexer_worlds import World, new_world
from tests.support.session.product import ROOT
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.night, pytest.mark.own_servers, pytest.mark.rabbitmq, pytest.mark.timeout(300)]

PAGE = (ROOT / "docs" / "operations" / "producers.md").read_text(encoding="utf-8")
PAYLOAD, BY_KIT, BY_HAND = re.findall(r"```python\n(.+?)```", PAGE, re.DOTALL)
_UUID_ON_PAGE = "7b1d9a52-6a0e-4c38-9f57-0a6c4a1d2e77"


@dataclass(frozen=True)
class Site:
    """A fleet whose cell is on a broker with TLS, and the folder in which the programs of the page are run."""

    world: World
    folder: Path
    url: str
    authority: Path

    def run(self, program: str, uuid: str) -> "subprocess.CompletedProcess[str]":
        """Run a program of the page, with the addresses of this site, about one instance."""
        text = (
            program.replace("3f0c1d52-7a54-4c3e-9a3f-0d8f6f3f7c11", self.world.cell.uuid)
            .replace("amqps://bus1:5671//", self.url)
            .replace('"bus1"', '"127.0.0.1"')
            .replace("/etc/fleetlight/ca.crt", str(self.authority))
        )
        (self.folder / "payload.py").write_text(PAYLOAD.replace(_UUID_ON_PAGE, uuid))
        (self.folder / "program.py").write_text(text)
        # Without -B, Python takes the payload of a program that has run in the same second for this one's.
        command = [sys.executable, "-B", "program.py"]
        return subprocess.run(command, cwd=self.folder, capture_output=True, text=True, check=False, timeout=60)

    def announcer(self, uuid: str) -> object:
        """Which producer the index names for an instance; None without the instance."""
        document = self.world.documents([uuid]).get(uuid)
        return document and document.extra and document.extra.values["announced_by"]

    def failures(self) -> dict[str, str]:
        """What `fleetlight index failures list` shows: details by reason."""
        return {each.reason: each.detail for each in self.world.fleet.failures.summaries([self.world.cell.uuid])}

    def connection(self, account: str, password: str) -> kombu.Connection:
        tls = {"ca_certs": str(self.authority), "server_hostname": "127.0.0.1"}
        return kombu.Connection(self.url, userid=account, password=password, ssl=tls)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("producers")
    with private_server(SECURED["rabbitmq-secured"]) as rabbitmq:
        url, authority = f"amqps://127.0.0.1:{rabbitmq.port}//", rabbitmq.folder / "ca.crt"
        with new_world(folder, url, str(uuid4()), IndexSettings(path=folder / "index.db")) as world:
            config = folder / "fleetlight.toml"
            config.write_text(f'[fleet]\ndatabase_url = "{world.fleet_url}"\n[bus]\nca_certs = "{authority}"\n')
            (folder / "password").write_text(ADMINISTRATORS_PASSWORD)
            secrets = ("--out", folder / "secrets", "--config", config)
            management = ("--management-url", f"https://127.0.0.1:{management_port(rabbitmq.folder)}")
            administrator = ("--administrator", ADMINISTRATOR, "--password-file", folder / "password")
            _fleetlight("accounts", "producer", "rack-agent", "--cell", "one", *secrets)
            for producer in ((), ("--producer", "rack-agent", "--cell", "one")):
                _fleetlight("accounts", "rabbitmq", *producer, *management, *administrator, *secrets)
            _fleetlight("cell", "set", "one", "--announcements", "--config", config)
            site = Site(world, folder, url, authority)
            with site.connection(ADMINISTRATOR, ADMINISTRATORS_PASSWORD) as connection, connection.channel() as channel:
                declare(channel, world.cell.uuid, has_quorum_queues=True)
            indexer = BusSettings(
                username="fleetlight_indexer",
                password=(folder / "secrets" / "indexer.bus-password").read_text().strip(),
                ca_certs=authority,
            )
            with world.indexing(indexer):
                yield site


def _fleetlight(*arguments: str | Path) -> None:
    result = CliRunner().invoke(app, list(map(str, arguments)), catch_exceptions=False)
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize("program", [pytest.param(BY_KIT, id="kit"), pytest.param(BY_HAND, id="kombu")])
def test_program_of_the_page_brings_an_instance_into_the_index(site: Site, program: str) -> None:
    uuid = str(uuid4())
    ended = site.run(program, uuid)
    assert ended.returncode == 0, ended.stderr
    wait_until(lambda: site.announcer(uuid) == "rack-agent")


def test_wrong_signature_and_wrong_payload_are_failures_with_their_reasons(site: Site) -> None:
    forged, torn = str(uuid4()), str(uuid4())
    for program, uuid in (
        (BY_HAND.replace('"sha256"', '"sha512"'), forged),
        (BY_HAND.replace('"payload": PAYLOAD', '"payload": PAYLOAD | {"nova_object.data": {"uuid": "x"}}'), torn),
    ):
        ended = site.run(program, uuid)
        assert ended.returncode == 0, ended.stderr
    wait_until(lambda: site.failures().keys() == {"refused", "malformed"})
    reasons = site.failures()
    assert "the signature is not that of producer 'rack-agent'" in reasons["refused"]
    assert site.world.documents([forged, torn]) == {}


def test_account_of_a_producer_publishes_to_its_cell_and_does_nothing_else(site: Site) -> None:
    password = (site.folder / "secrets" / "producer-rack-agent.bus-password").read_text().strip()
    cell = site.world.cell.uuid
    with site.connection("fleetlight_producer-rack-agent", password) as connection:
        with connection.channel() as channel, pytest.raises(AccessRefused):
            channel.basic_get(work_queue_name(cell))
        with connection.channel() as channel, pytest.raises(AccessRefused):
            channel.queue_declare(queue=f"{exchange_name(cell)}.of-a-test")
        with connection.channel() as channel, pytest.raises(AccessRefused):
            channel.basic_publish_confirm(channel.prepare_message(b"{}"), exchange=f"{exchange_name(cell)}.dead")


def test_kit_needs_the_libraries_that_the_page_names_and_no_others() -> None:
    code = """
import sys, fleetlight.bus.producer, fleetlight.notifications.payloads.instance
print(*sorted({name.partition(".")[0] for name in sys.modules} - set(sys.stdlib_module_names)))
"""
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    servers = {"sqlalchemy", "starlette", "elasticsearch", "typer", "structlog", "pydantic_settings", "uvicorn"}
    assert {"kombu", "msgspec", "pydantic"} <= set(loaded)
    assert servers & set(loaded) == set()
