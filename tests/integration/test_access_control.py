"""Every process with an account of its own, over TLS, on servers that ask who is there.

The servers are started for these tests: nothing can be switched on in those that all tests share.
"""

import base64
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, LiteralString

import httpx
import kombu
import psycopg
import pytest
from amqp.exceptions import AccessRefused  # type: ignore[import-untyped]  # as kombu, which it belongs to
from elasticsearch import ApiError, Elasticsearch
from psycopg import sql
from typer.testing import CliRunner

from fleetlight.bus.bus import Publisher, Receiver
from fleetlight.bus.settings import BusSettings
from fleetlight.bus.topology import declare
from fleetlight.cells.capabilities import CellKind
from fleetlight.cells.database.engines import create_database_engine
from fleetlight.cells.errors import CellUnreachableError, FleetUnreachableError
from fleetlight.cells.fleet.fleet import Fleet
from fleetlight.cells.kinds.opening import open_adapter
from fleetlight.cells.model import Cell
from fleetlight.cli.app import app
from fleetlight.indexer.backends.opening import open_writer
from fleetlight.indexer.backends.settings import IndexSettings
from fleetlight.indexer.errors import IndexRequestError, IndexUnavailableError
from fleetlight.notifications.errors import BusUnavailableError
from scripts.servers.base import ADMINISTRATOR, ADMINISTRATORS_PASSWORD
from scripts.servers.private import PrivateServer, private_server
from scripts.servers.process import free_port
from scripts.servers.rabbitmq import management_port
from scripts.servers.service import SECURED
from tests.support.fleets.documents import make_document
from tests.support.fleets.instance_operations import InstanceOperations
from tests.support.memory.memory_cell import CELL_UUID
from tests.support.values import IMAGE
from tests.support.waiting import wait_until

pytestmark = [
    pytest.mark.night,
    pytest.mark.no_rerun,
    pytest.mark.own_servers,
    pytest.mark.elasticsearch,
    pytest.mark.rabbitmq,
    pytest.mark.postgresql,
    pytest.mark.timeout(400),
]

_PREFIX = "guarded"


@dataclass(frozen=True)
class Fortress:
    """Three servers, the folder with the files of the accounts on them, and a fleet with one cell."""

    folder: Path
    elasticsearch: PrivateServer
    rabbitmq: PrivateServer
    postgresql: PrivateServer
    cell: Cell

    @property
    def accounts(self) -> Path:
        return self.folder / "accounts"

    def secret(self, name: str) -> str:
        return (self.accounts / name).read_text().strip()

    def index(self, account: str, **changes: object) -> IndexSettings:
        values = {
            "backend": "elasticsearch",
            "urls": [f"https://127.0.0.1:{self.elasticsearch.port}"],
            "prefix": _PREFIX,
            "ca_certs": self.elasticsearch.folder / "ca.crt",
            "api_key": self.secret(f"{account}.index-key"),
        }
        return IndexSettings.model_validate(values | changes)

    def bus(self, account: str, **changes: object) -> BusSettings:
        values = {
            "username": f"fleetlight_{account}",
            "password": self.secret(f"{account}.bus-password"),
            "ca_certs": self.rabbitmq.folder / "ca.crt",
        }
        return BusSettings.model_validate(values | changes)

    def database(self, name: str, account: str) -> psycopg.Connection:
        return psycopg.connect(
            host="127.0.0.1",
            port=self.postgresql.port,
            dbname=name,
            user=f"fleetlight_{account}",
            passfile=str(self.accounts / f"{account}.pgpass"),
            sslmode="verify-full",
            sslrootcert=str(self.postgresql.folder / "ca.crt"),
        )


@pytest.fixture(scope="module")
def fortress(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fortress]:
    folder = tmp_path_factory.mktemp("fortress")
    with ExitStack() as stack:
        with ThreadPoolExecutor() as threads:
            started = threads.map(lambda server: stack.enter_context(private_server(server)), SECURED.values())
            elasticsearch, rabbitmq, postgresql = started
        for name in ("fleet", "cell"):
            with psycopg.connect(_owner_url(postgresql, "postgres"), autocommit=True) as connection:
                connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        password_file = folder / "administrator"
        password_file.write_text(ADMINISTRATORS_PASSWORD)
        owner = folder / "owner.toml"
        owner.write_text(
            f'[fleet]\ndatabase_url = "{_owner_url(postgresql, "fleet")}"\n'
            f'[bus]\nca_certs = "{rabbitmq.folder}/ca.crt"\n'
            f'[index]\nbackend = "elasticsearch"\nurls = ["https://127.0.0.1:{elasticsearch.port}"]\n'
            f'prefix = "{_PREFIX}"\nca_certs = "{elasticsearch.folder}/ca.crt"\n'
        )
        cell_url = f"{_owner_url(postgresql, 'cell')}"
        bus_url = f"amqps://127.0.0.1:{rabbitmq.port}//"
        _fleetlight("database", "upgrade", "--config", owner)
        _fleetlight(
            "cell", "add", "native", "one", "--database-url", cell_url, "--transport-url", bus_url, "--config", owner
        )
        administrator = ("--administrator", ADMINISTRATOR, "--password-file", password_file)
        common = ("--out", folder / "accounts", "--config", owner)
        management = ("--management-url", f"https://127.0.0.1:{management_port(rabbitmq.folder)}")
        _fleetlight("accounts", "elasticsearch", *administrator, *common)
        _fleetlight("accounts", "rabbitmq", *management, *administrator, *common)
        _fleetlight("accounts", "postgresql", *common)
        engine = create_database_engine(_owner_url(postgresql, "fleet"))
        with closing(Fleet(engine)) as fleet:
            # From now on the registry holds no secret: each process says by itself who it is.
            cell = fleet.add_cell("one", CellKind.NATIVE, _url(postgresql, "cell"), bus_url)
        yield Fortress(folder, elasticsearch, rabbitmq, postgresql, cell)


def _url(postgresql: PrivateServer, database: str, account: str = "") -> str:
    ca = postgresql.folder / "ca.crt"
    return f"postgresql://{account}127.0.0.1:{postgresql.port}/{database}?sslrootcert={ca}"


def _owner_url(postgresql: PrivateServer, database: str) -> str:
    return _url(postgresql, database, f"postgres:{ADMINISTRATORS_PASSWORD}@").replace("?", "?sslmode=verify-full&")


def _fleetlight(*arguments: str | Path) -> str:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def _refused(*arguments: str | Path) -> str:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)
    assert result.exit_code == 1, result.output
    return result.output


@contextmanager
def running(fortress: Fortress, process: str, configuration: str, *arguments: str) -> Iterator[None]:
    """A process of Fleetlight that knows its own accounts, and no others."""
    config, log = fortress.folder / f"{process}.toml", fortress.folder / f"{process}.log"
    config.write_text(f'[fleet]\ndatabase_url = "{_url(fortress.postgresql, "fleet")}"\n{configuration}')
    environment = {name: value for name, value in os.environ.items() if not name.startswith("FLEETLIGHT_")}
    environment |= {
        "PGUSER": f"fleetlight_{process}",
        "PGPASSFILE": str(fortress.accounts / f"{process}.pgpass"),
    }
    command = [sys.executable, "-m", "fleetlight.cli", process, "--config", str(config), *arguments]
    with log.open("wb") as output:
        child = subprocess.Popen(command, env=environment, stdout=output, stderr=output)
    try:
        yield
        assert child.poll() is None, log.read_text()
    finally:
        child.terminate()
        child.wait(timeout=60)


def _bus_section(fortress: Fortress, account: str) -> str:
    return (
        f'[bus]\nusername = "fleetlight_{account}"\npassword_file = "{fortress.accounts}/{account}.bus-password"\n'
        f'ca_certs = "{fortress.rabbitmq.folder}/ca.crt"\n'
    )


def _index_section(fortress: Fortress, account: str) -> str:
    return (
        f'[index]\nbackend = "elasticsearch"\nurls = ["https://127.0.0.1:{fortress.elasticsearch.port}"]\n'
        f'prefix = "{_PREFIX}"\nca_certs = "{fortress.elasticsearch.folder}/ca.crt"\n'
        f'api_key_file = "{fortress.accounts}/{account}.index-key"\n'
    )


def test_ingest_and_list_work_with_an_account_for_each_process(fortress: Fortress) -> None:
    port = free_port()
    api = f"{_index_section(fortress, 'api')}[search]\nenabled = true\nretry_after_s = 0.5\n"
    follower = _bus_section(fortress, "indexer") + _index_section(fortress, "indexer")
    with (
        running(fortress, "relay", _bus_section(fortress, "relay")),
        running(fortress, "indexer", follower),
        running(fortress, "api", api, "--port", str(port)),
    ):
        uuid = _create_instance(fortress)

        def list_comes_from_the_index() -> bool:
            route, body = _get(port, "/v2.1/servers?all_tenants=1")
            return "one=index" in route and uuid in [server["id"] for server in json.loads(body)["servers"]]

        wait_until(list_comes_from_the_index, timeout_s=90)


def test_server_lives_and_dies_with_the_accounts_of_api_and_worker(fortress: Fortress) -> None:
    hosts = ("one", "compute1", "compute2", "--vcpus", "8", "--memory", "64G", "--disk", "500G")
    port = free_port()
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("PGUSER", "postgres")
        environment.setenv("PGPASSWORD", ADMINISTRATORS_PASSWORD)
        _fleetlight("host", "add", *hosts, "--config", fortress.folder / "owner.toml")
    with (
        running(fortress, "worker", ""),
        running(fortress, "api", "", "--port", str(port)),
        httpx.Client(base_url=f"http://127.0.0.1:{port}/v2.1", timeout=60) as http,
    ):
        wait_until(lambda: _answers(http), timeout_s=90)

        def send(method: str, path: str, body: object = None) -> httpx.Response:
            answer = http.request(method, path, json=body)
            assert answer.is_success, answer.text
            return answer

        def status() -> object:
            found = http.get(f"/servers/{uuid}")
            return found.json()["server"]["status"] if found.is_success else found.status_code

        send("POST", "/os-keypairs", {"keypair": {"name": "mine"}})
        group = {"server_group": {"name": "apart", "policies": ["anti-affinity"]}}
        group_uuid = send("POST", "/os-server-groups", group).json()["server_group"]["id"]
        send("PUT", "/os-quota-sets/demo", {"quota_set": {"instances": 5}})
        server = {"name": "guarded", "flavorRef": "1", "imageRef": IMAGE, "key_name": "mine"}
        body = {"server": server, "os:scheduler_hints": {"group": group_uuid}}
        uuid = send("POST", "/servers", body).json()["server"]["id"]
        wait_until(lambda: status() == "ACTIVE", timeout_s=90)
        send("PUT", f"/servers/{uuid}", {"server": {"name": "renamed"}})
        send("POST", f"/servers/{uuid}/action", {"os-stop": None})
        wait_until(lambda: status() == "SHUTOFF", timeout_s=90)
        send("POST", f"/servers/{uuid}/action", {"migrate": None})
        wait_until(lambda: status() == "VERIFY_RESIZE", timeout_s=90)
        send("DELETE", f"/servers/{uuid}")
        wait_until(lambda: status() == 404, timeout_s=90)
        for path in (f"/os-server-groups/{group_uuid}", "/os-keypairs/mine", "/os-quota-sets/demo"):
            send("DELETE", path)
        _live_over_the_remote_api(http, f"http://127.0.0.1:{port}/cells/one/2")


def _live_over_the_remote_api(http: httpx.Client, base: str) -> None:
    """What needs rows that the compute API has none of: networks, addresses, reservations, tags, filters."""

    def run(method: str, path: str, body: object = None) -> object:
        number = http.request(method, f"{base}{path}", json={} if body is None else body).json()

        def job() -> dict[str, Any]:
            found: dict[str, Any] = http.get(f"{base}/jobs/{number}").json()
            return found

        wait_until(lambda: job()["end_ts"], timeout_s=90)
        assert job()["status"] == "success", job()["opresult"]
        return job()["opresult"][0]

    run("POST", "/networks", {"network_name": "lan", "network": "192.0.2.0/24"})
    run("PUT", "/networks/lan/connect", {"group_name": "default", "network_mode": "bridged", "network_link": "br0"})
    run("PUT", "/groups/default/tags?tag=x")
    run("PUT", "/modify", {"mac_prefix": "aa:00:01"})
    reserved = {"__version__": 1, "forthcoming": True, "name": "later", "expires_at": 4_000_000_000}
    reserved |= {"nics": [{"network": "lan", "ip": "pool"}], "disk_template": "diskless", "os": "debian-12"}
    uuid = run("POST", "/instances", reserved)
    run("POST", "/instances/later/create", {"beparams": {"memory": 512}})
    run("PUT", f"/instances/{uuid}/modify", {"nics": [["add", {}]]})
    run("DELETE", "/instances/later")
    made = http.post(f"{base}/filters", json={"action": "ACCEPT"}).json()
    assert http.request("DELETE", f"{base}/filters/{made}", json={}).is_success


def _answers(http: httpx.Client) -> bool:
    try:
        return http.get("/servers").is_success
    except httpx.TransportError:
        return False


def test_index_is_rebuilt_and_taken_back_with_the_account_of_the_indexer(
    fortress: Fortress, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGUSER", "fleetlight_indexer")
    monkeypatch.setenv("PGPASSFILE", str(fortress.accounts / "indexer.pgpass"))
    uuid = _create_instance(fortress)
    config = fortress.folder / "rebuild.toml"
    fleet = f'[fleet]\ndatabase_url = "{_url(fortress.postgresql, "fleet")}"\n'
    config.write_text(fleet + _bus_section(fortress, "indexer") + _index_section(fortress, "indexer"))
    # What no relay has published, a comparison would wait for in vain.
    with running(fortress, "relay", _bus_section(fortress, "relay")):
        assert "is the current one; `--back`" in _fleetlight("index", "rebuild", "--config", config)
    with closing(open_writer(fortress.index("indexer"))) as writer:
        assert writer.read([uuid]).keys() == {uuid}
    assert "is the current one again" in _fleetlight("index", "rebuild", "--back", "--config", config)
    assert "dropped" in _fleetlight("index", "drop-old", "--config", config)


def _create_instance(fortress: Fortress) -> str:
    fleet_engine = create_database_engine(_owner_url(fortress.postgresql, "fleet"))
    cell_engine = create_database_engine(_owner_url(fortress.postgresql, "cell"))
    with closing(Fleet(fleet_engine)) as fleet:
        created = InstanceOperations(cell_engine, fleet, fortress.cell).create({"display_name": "guarded"})
    cell_engine.dispose()
    return created.uuid


def _get(port: int, path: str) -> tuple[str, bytes]:
    with closing(HTTPConnection("127.0.0.1", port, timeout=30)) as connection:
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.headers.get("Fleetlight-Route", ""), answer.read()
        except ConnectionError:
            return "", b""  # it is not up yet


def test_key_of_the_api_cannot_write(fortress: Fortress) -> None:
    with closing(open_writer(fortress.index("indexer"))) as writer:
        writer.prepare()
    with closing(open_writer(fortress.index("api"))) as writer:
        for attempt in (
            writer.prepare,
            writer.make_searchable,
            lambda: writer.write([make_document()]),
            lambda: writer.remove_cell("5a1c6f0e-8c8e-4d6f-9a52-0a3a1d2f7b11"),
        ):
            with pytest.raises(IndexRequestError, match="unauthorized"):
                attempt()


def test_key_of_the_indexer_does_not_reach_other_indexes(fortress: Fortress) -> None:
    with Elasticsearch(fortress.elasticsearch.url, ca_certs=str(fortress.elasticsearch.folder / "ca.crt")) as admin:
        admin.index(index="accounting", id="1", document={"salary": 1})
        with (
            pytest.raises(IndexRequestError, match="unauthorized"),
            closing(open_writer(fortress.index("indexer", prefix="accounting"))) as writer,
        ):
            writer.prepare()
        with Elasticsearch(
            f"https://127.0.0.1:{fortress.elasticsearch.port}",
            ca_certs=str(fortress.elasticsearch.folder / "ca.crt"),
            api_key=fortress.secret("indexer.index-key"),
        ) as indexer:
            attempts: list[Callable[[], object]] = [
                lambda: indexer.get(index="accounting", id="1"),
                lambda: indexer.delete(index="accounting", id="1"),
                lambda: indexer.indices.create(index="anything"),
                lambda: indexer.security.create_api_key(name="more"),
                indexer.nodes.info,
            ]
            for attempt in attempts:
                with pytest.raises(ApiError, match="security_exception"):
                    attempt()


def test_accounts_of_the_bus_reach_nothing_but_ours(fortress: Fortress) -> None:
    password = fortress.secret("relay.bus-password")
    tls = {"ca_certs": str(fortress.rabbitmq.folder / "ca.crt"), "server_hostname": None}
    url = f"amqps://fleetlight_relay:{password}@127.0.0.1:{fortress.rabbitmq.port}//"
    with kombu.Connection(url, ssl=tls) as connection, connection.channel() as channel:
        channel.queue_declare(queue=f"fleetlight.{fortress.cell.uuid}.of-a-test", auto_delete=True)
        with pytest.raises(AccessRefused):
            channel.queue_declare(queue="payroll")


def test_account_of_the_relay_of_one_cell_reaches_no_other_cell(fortress: Fortress, tmp_path: Path) -> None:
    management = ("--management-url", f"https://127.0.0.1:{management_port(fortress.rabbitmq.folder)}")
    administrator = ("--administrator", ADMINISTRATOR, "--password-file", fortress.folder / "administrator")
    common = ("--out", tmp_path, "--config", fortress.folder / "owner.toml")
    _fleetlight("accounts", "rabbitmq", *management, *administrator, "--cell", fortress.cell.name, *common)
    name = f"relay-{fortress.cell.name}"
    assert [each.name for each in tmp_path.iterdir()] == [f"{name}.bus-password"]
    password = (tmp_path / f"{name}.bus-password").read_text(encoding="utf-8").strip()
    tls = {"ca_certs": str(fortress.rabbitmq.folder / "ca.crt"), "server_hostname": None}
    url = f"amqps://fleetlight_{name}:{password}@127.0.0.1:{fortress.rabbitmq.port}//"
    with kombu.Connection(url, ssl=tls) as connection:
        with connection.channel() as channel:
            declare(channel, fortress.cell.uuid, has_quorum_queues=True)
        for other in (f"fleetlight.{CELL_UUID}.index", f"fleetlight.{fortress.cell.uuid}0.index", "payroll"):
            with connection.channel() as channel, pytest.raises(AccessRefused):
                channel.queue_declare(queue=other)


# What each account can do, to each table that somebody may change: S(elect), I(nsert), U(pdate), D(elete).
_RIGHTS = {
    "fleet": {
        "cells": ("S", "S", "S", "S"),
        "instance_mappings": ("SIU", "SIU", "S", "SIU"),
        "compared_mappings": ("S", "S", "S", "SIU"),
        "cell_keys": ("", "S", "S", ""),
        "producer_keys": ("", "S", "", ""),
        "failures": ("SD", "SIUD", "", ""),
        "dropped_failures": ("S", "SIUD", "", ""),
        "index_work": ("SIUD", "SIUD", "S", "S"),
        "audit_rounds": ("S", "SIU", "S", "S"),
        "restored_cells": ("S", "SI", "S", "S"),
        "ended_sessions": ("SID", "S", "S", "S"),
        "announced_instances": ("S", "SIUD", "", ""),
        "flavors": ("SIUD", "S", "S", "S"),
        "keypairs": ("SIUD", "S", "S", "S"),
        "saved_views": ("SIUD", "S", "S", "S"),
        "bulk_changes": ("SIUD", "S", "S", "S"),
        "bulk_items": ("SIUD", "S", "S", "S"),
        "quota_limits": ("SIUD", "S", "S", "S"),
        "server_groups": ("SIUD", "S", "S", "S"),
    },
    "cell": {
        "instances": ("SIU", "S", "S", "SIU"),
        # In single columns only: nobody but the relay says which number a change has.
        "changes": ("S", "S", "SUD", "S"),
        "cell_state": ("S", "S", "SU", "S"),
        "epochs": ("S", "S", "SID", "S"),
        "jobs": ("SIUD", "S", "S", "SIUD"),
        "job_operations": ("SIUD", "S", "S", "SIUD"),
        "job_log": ("SIUD", "S", "S", "SIUD"),
        "job_dependencies": ("SIUD", "S", "S", "SIUD"),
        "job_locks": ("SIUD", "S", "S", "SIUD"),
        "allocations": ("SIUD", "S", "S", "SIUD"),
        "migrations": ("SIU", "S", "S", "SIU"),
    },
}
_ACCOUNTS = ("api", "indexer", "relay", "worker")
_VERBS = {"S": "SELECT", "I": "INSERT", "U": "UPDATE", "D": "DELETE"}


@pytest.mark.parametrize("database", _RIGHTS)
@pytest.mark.parametrize("account", _ACCOUNTS)
def test_each_role_of_the_databases_can_do_what_its_process_does_and_no_more(
    fortress: Fortress, account: str, database: str
) -> None:
    with fortress.database(database, account) as connection:
        found = {
            table: "".join(
                letter
                for letter, verb in _VERBS.items()
                if connection.execute("SELECT has_table_privilege(%s, %s)", (table, verb)).fetchone() == (True,)
            )
            for table in _RIGHTS[database]
        }
        assert found == {table: rights[_ACCOUNTS.index(account)] for table, rights in _RIGHTS[database].items()}
        statements: tuple[LiteralString, ...] = ("DROP TABLE {}", "TRUNCATE {}")
        for statement in statements:
            with pytest.raises(psycopg.errors.InsufficientPrivilege), connection.transaction():
                connection.execute(sql.SQL(statement).format(sql.Identifier(next(iter(found)))))


@pytest.mark.parametrize("account", ["api", "worker"])
def test_who_announces_a_change_does_not_number_it(fortress: Fortress, account: str) -> None:
    def may_set(column: str) -> bool:
        statement = "SELECT has_column_privilege('changes', %s, 'INSERT')"
        return connection.execute(statement, (column,)).fetchone() == (True,)

    with fortress.database("cell", account) as connection:
        assert may_set("message")
        assert not may_set("sequence")
        assert not may_set("published_at")


def test_making_the_accounts_again_changes_no_secret(fortress: Fortress, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGUSER", "postgres")
    monkeypatch.setenv("PGPASSWORD", ADMINISTRATORS_PASSWORD)
    before = {file.name: file.read_text() for file in fortress.accounts.iterdir()}
    output = _fleetlight(
        "accounts", "postgresql", "--out", fortress.accounts, "--config", fortress.folder / "owner.toml"
    )
    assert {file.name: file.read_text() for file in fortress.accounts.iterdir()} == before
    assert output.count("(kept)") == 5
    assert all(re.search(r"[^:]{20,}$", text.strip()) and text.strip() not in output for text in before.values())
    assert {oct(file.stat().st_mode & 0o777) for file in fortress.accounts.iterdir()} == {"0o600"}


def test_key_that_counts_no_more_is_not_called_kept(fortress: Fortress, tmp_path: Path) -> None:
    password = tmp_path / "administrator"
    password.write_text(ADMINISTRATORS_PASSWORD)
    owner = ("--config", fortress.folder / "owner.toml")
    options = ("--administrator", ADMINISTRATOR, "--password-file", password, *owner)
    out = tmp_path / "accounts"
    assert _fleetlight("accounts", "elasticsearch", *options, "--out", out).count("(new)") == 2
    assert _fleetlight("accounts", "elasticsearch", *options, "--out", out).count("(kept)") == 2
    key = (out / "api.index-key").read_text()
    with Elasticsearch(fortress.elasticsearch.url, ca_certs=str(fortress.elasticsearch.folder / "ca.crt")) as admin:
        # As docs/operations/access-control.md says how.
        admin.security.invalidate_api_key(ids=[base64.b64decode(key).decode().partition(":")[0]])
    output = _refused("accounts", "elasticsearch", *options, "--out", out)
    assert f"does not accept the key in {out}/api.index-key" in output.replace("\n", "")
    assert key.strip() not in output


def test_virtual_host_that_is_not_there_costs_no_account_of_the_bus_its_password(
    fortress: Fortress, tmp_path: Path
) -> None:
    (password := tmp_path / "administrator").write_text(ADMINISTRATORS_PASSWORD)
    output = _refused(
        *("accounts", "rabbitmq", "--vhost", "mistyped", "--out", tmp_path / "elsewhere"),
        *("--management-url", f"https://127.0.0.1:{management_port(fortress.rabbitmq.folder)}"),
        *("--administrator", ADMINISTRATOR, "--password-file", password),
        *("--config", fortress.folder / "owner.toml"),
    )
    assert "has no virtual host 'mistyped'" in output
    assert list(tmp_path.glob("elsewhere/*")) == []
    with closing(Receiver(fortress.cell.transport_url, fortress.cell.uuid, 10, fortress.bus("relay"))) as receiver:
        receiver.receive(1, 1, 0.1)


def test_process_that_the_index_refuses_ends_in_words(fortress: Fortress, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGUSER", "fleetlight_indexer")
    monkeypatch.setenv("PGPASSFILE", str(fortress.accounts / "indexer.pgpass"))
    config = fortress.folder / "refused.toml"
    fleet = f'[fleet]\ndatabase_url = "{_url(fortress.postgresql, "fleet")}"\n'
    config.write_text(fleet + _bus_section(fortress, "indexer") + _index_section(fortress, "api"))
    command = [sys.executable, "-m", "fleetlight.cli", "indexer", "--config", str(config)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 1
    assert "Traceback" not in ended.stderr
    assert "status 403" in ended.stderr.splitlines()[-1]
    assert "`fleetlight accounts elasticsearch` makes keys" in ended.stderr.splitlines()[-1]


def test_who_may_not_make_accounts_is_told_who_may(fortress: Fortress, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGUSER", "fleetlight_indexer")
    monkeypatch.setenv("PGPASSFILE", str(fortress.accounts / "indexer.pgpass"))
    config = fortress.folder / "not-the-owner.toml"
    config.write_text(f'[fleet]\ndatabase_url = "{_url(fortress.postgresql, "fleet")}"\n')
    output = _refused("accounts", "postgresql", "--out", fortress.accounts, "--config", config)
    assert "permission denied" in output
    assert "made by the owner" in output


def test_owner_who_cannot_make_roles_is_told_what_is_lacking(fortress: Fortress, tmp_path: Path) -> None:
    with psycopg.connect(_owner_url(fortress.postgresql, "postgres"), autocommit=True) as connection:
        connection.execute("CREATE ROLE landlord LOGIN PASSWORD 'rent'")
        connection.execute("CREATE DATABASE rented OWNER landlord")
    url = _url(fortress.postgresql, "rented", "landlord:rent@")
    config = tmp_path / "landlord.toml"
    config.write_text(f'[fleet]\ndatabase_url = "{url}"\n')
    _fleetlight("database", "upgrade", "--config", config)
    output = _refused("accounts", "postgresql", "--out", tmp_path / "accounts", "--config", config)
    assert "the owner of the databases, which needs CREATEROLE" in output
    assert "`ALTER ROLE landlord CREATEROLE`" in output


def test_rights_follow_upgrades_and_new_cells_and_who_lacks_one_says_what_to_run(
    fortress: Fortress, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = ("--config", fortress.folder / "owner.toml")
    monkeypatch.setenv("PGUSER", "postgres")
    monkeypatch.setenv("PGPASSWORD", ADMINISTRATORS_PASSWORD)
    with psycopg.connect(_owner_url(fortress.postgresql, "fleet"), autocommit=True) as connection:
        connection.execute("CREATE DATABASE later")
        # As with a table that an upgrade has made.
        connection.execute("REVOKE ALL ON instance_mappings FROM fleetlight_worker")
    password = fortress.secret("worker.pgpass").rpartition(":")[2]
    as_worker = create_database_engine(_url(fortress.postgresql, "fleet", f"fleetlight_worker:{password}@"))
    with closing(Fleet(as_worker)) as fleet:
        with pytest.raises(FleetUnreachableError, match=r"permission denied.*`fleetlight accounts postgresql`"):
            fleet.count_mappings(fortress.cell.uuid)
        upgraded = _fleetlight("database", "upgrade", *owner)
        assert "accounts api, indexer, deliverer, relay, worker: up to date" in upgraded
        fleet.count_mappings(fortress.cell.uuid)
    urls = ("--database-url", _url(fortress.postgresql, "later"), "--transport-url", fortress.cell.transport_url)
    _fleetlight("cell", "add", "native", "later", *urls, *owner)
    _fleetlight("cell", "disable", "later", *owner)
    monkeypatch.delenv("PGPASSWORD")
    with fortress.database("later", "indexer") as indexer:
        assert indexer.execute("SELECT count(*) FROM instances").fetchone() == (0,)


def test_doctor_says_what_an_account_may_not_do(fortress: Fortress, monkeypatch: pytest.MonkeyPatch) -> None:
    owner = ("--config", fortress.folder / "owner.toml")
    config = fortress.folder / "doctor.toml"
    config.write_text(
        f'[fleet]\ndatabase_url = "{_url(fortress.postgresql, "fleet")}"\n'
        f"{_bus_section(fortress, 'indexer')}{_index_section(fortress, 'indexer')}"
    )

    def lacking() -> list[str]:
        with monkeypatch.context() as as_indexer:
            as_indexer.setenv("PGUSER", "fleetlight_indexer")
            as_indexer.setenv("PGPASSFILE", str(fortress.accounts / "indexer.pgpass"))
            result = CliRunner().invoke(
                app, ["doctor", "--output=json", "--config", str(config)], catch_exceptions=False
            )
        return [
            each["found"] for each in json.loads(result.stdout) if "may not" in each["found"] and each["what_to_do"]
        ]

    assert lacking() == []
    with psycopg.connect(_owner_url(fortress.postgresql, "fleet"), autocommit=True) as connection:
        connection.execute("REVOKE INSERT ON failures FROM fleetlight_indexer")
        connection.execute("REVOKE SELECT ON flavors FROM fleetlight_indexer")
    assert lacking() == ["fleetlight_indexer may not SELECT on flavors, INSERT on failures"]
    monkeypatch.setenv("PGPASSWORD", ADMINISTRATORS_PASSWORD)
    monkeypatch.setenv("PGUSER", "postgres")
    _fleetlight("database", "upgrade", *owner)
    monkeypatch.delenv("PGPASSWORD")
    assert lacking() == []


def test_wrong_key_and_wrong_authority_are_said_without_any_secret(fortress: Fortress, tmp_path: Path) -> None:
    stranger = tmp_path / "ca.crt"
    stranger.write_bytes((fortress.rabbitmq.folder / "ca.crt").read_bytes())
    wrong_key = "d3Jvbmc6" + "d3Jvbmd3cm9uZ3dyb25n"
    wrong_account = replace(
        fortress.cell, database_url=_url(fortress.postgresql, "cell", "fleetlight_relay:wrong-one@")
    )
    unsigned = replace(
        fortress.cell,
        database_url=_owner_url(fortress.postgresql, "cell").replace(str(fortress.postgresql.folder), str(tmp_path)),
    )
    cases: list[tuple[Callable[[], object], type[Exception], str]] = [
        (lambda: open_writer(fortress.index("indexer", api_key=wrong_key)).prepare(), IndexUnavailableError, "401"),
        (
            lambda: open_writer(fortress.index("indexer", ca_certs=stranger)).prepare(),
            IndexUnavailableError,
            "certificate verify failed",
        ),
        (lambda: _receive(fortress, fortress.bus("indexer", password="wrong-one")), BusUnavailableError, "refused"),
        (
            lambda: _receive(fortress, fortress.bus("indexer", ca_certs=fortress.elasticsearch.folder / "ca.crt")),
            BusUnavailableError,
            "certificate verify failed",
        ),
        (
            lambda: Publisher(
                fortress.cell.transport_url,
                fortress.cell.uuid,
                fortress.bus("relay", ca_certs=fortress.elasticsearch.folder / "ca.crt"),
            ).check(),
            BusUnavailableError,
            "certificate verify failed",
        ),
        (lambda: open_adapter(wrong_account).find("anything"), CellUnreachableError, "password authentication failed"),
        (lambda: open_adapter(unsigned).find("anything"), CellUnreachableError, "certificate verify failed"),
    ]
    secrets = [wrong_key, "wrong-one", *map(fortress.secret, ("indexer.index-key", "indexer.bus-password"))]
    for attempt, error, words in cases:
        with pytest.raises(error) as raised:
            attempt()
        assert re.search(words, str(raised.value), re.IGNORECASE)
        assert [secret for secret in secrets if secret in str(raised.value)] == []


def _receive(fortress: Fortress, settings: BusSettings) -> None:
    Receiver(fortress.cell.transport_url, fortress.cell.uuid, 10, settings).receive(1, 1, 0.1)
