"""A fleet of cells on real servers, behind proxies: what the faults happen to."""

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit
from uuid import uuid4

import kombu
import psycopg
from psycopg import sql
from sqlalchemy import Engine, func, select
from sqlalchemy.engine import URL, make_url

from bench.faults.proxy import TcpProxy, tcp_proxy
from fleetlight.bus import topology
from fleetlight.cells.capabilities import CellKind
from fleetlight.cells.database.engines import create_database_engine
from fleetlight.cells.fleet.fleet import Fleet
from fleetlight.cells.migrations import upgrade_cell, upgrade_fleet
from fleetlight.cells.model import Cell
from fleetlight.cells.tables import changes
from fleetlight.cli.settings import Settings, load_settings
from fleetlight.resources.clock import Clock
from tests.support.fleets.instance_operations import InstanceOperations
from tests.support.servers.index_server import backend_at, index_client

CELLS = 8

Sections = Mapping[str, Mapping[str, float | str]]
"""Keys of a configuration by section, besides the addresses."""

# Short waits: what is waited for comes back within seconds here. And a page has all servers that there are. Outboxes
# are looked at less often than by default: eight relays that do so ten times a second, through the proxies, take a
# processor.
_SHORT_WAITS: Sections = {
    "fleet": {"cells_refresh_interval_s": 1.0, "takeover_after_s": 2.0},
    "index": {"refresh_interval_s": 0.5, "write_timeout_s": 10.0},
    "indexer": {"hole_timeout_s": 1.0, "retry_wait_max_s": 1.0, "audit_interval_s": 1.0, "audit_share": 0.5},
    "relay": {"retry_wait_max_s": 1.0, "heartbeat_interval_s": 0.5, "poll_interval_s": 0.4},
    "bus": {"confirm_timeout_s": 5.0},
    # A consumer of the feed goes from one API to another with its cursor.
    "api": {"max_limit": 10_000, "watch_key": "a secret of sixteen letters"},
    "search": {"enabled": True, "staleness_limit_s": 3.0, "retry_after_s": 1.0},
}


@dataclass(frozen=True, slots=True)
class Servers:
    """Where the servers are.

    postgresql: None puts fleet and cells into SQLite files. index_file: a SQLite index instead of Elasticsearch.
    """

    elasticsearch: str
    amqp: str
    postgresql: str | None = None
    index_file: Path | None = None

    @staticmethod
    def of_environment() -> "Servers | None":
        """Elasticsearch and RabbitMQ as the tests find them; None unless there are both."""
        elasticsearch = os.environ.get("FLEETLIGHT_TEST_ELASTICSEARCH_URL")
        amqp = os.environ.get("FLEETLIGHT_TEST_AMQP_URL")
        return Servers(elasticsearch, amqp) if elasticsearch and amqp else None


@dataclass(frozen=True)
class World:
    """A fleet of native cells, and the configuration of its processes, which reach all servers through `proxies`.

    proxies: "elasticsearch", "amqp", and with PostgreSQL "postgresql" and "first cell", which has one of its own; none
        where nothing is to be cut off.
    engines: past the proxies, to operate and to compare.
    """

    fleet: Fleet
    cells: tuple[Cell, ...]
    engines: Mapping[str, Engine]
    proxies: Mapping[str, TcpProxy]
    config: Path
    servers: Servers

    @property
    def settings(self) -> Settings:
        return load_settings(self.config, None)

    def operations(self, clock: Clock) -> list[InstanceOperations]:
        return [InstanceOperations(self.engines[cell.name], self.fleet, cell, clock) for cell in self.cells]

    def unpublished(self) -> int:
        """Changes that no relay has published yet, in all cells."""
        waiting = select(func.count()).select_from(changes).where(changes.c.published_at.is_(None))
        count = 0
        for engine in self.engines.values():
            with engine.connect() as connection:
                count += connection.execute(waiting).scalar_one()
        return count


@contextmanager
def new_world(
    folder: Path,
    servers: Servers,
    configured: Sections = _SHORT_WAITS,
    *,
    cell_count: int = CELLS,
    is_proxied: bool = True,
) -> Iterator[World]:
    """An empty fleet, removed from the servers at the end; its own files stay in `folder`.

    is_proxied: False for what is measured: its processes reach the servers themselves, and there are no proxies.
    """
    prefix = f"fleetlight-faults-{uuid4().hex}"
    with ExitStack() as stack:
        proxied_urls = {"elasticsearch": servers.elasticsearch, "amqp": servers.amqp} if is_proxied else {}
        proxies = {name: _proxy(stack, url) for name, url in proxied_urls.items()}
        direct, proxied = _databases(stack, folder, servers.postgresql, proxies, cell_count)
        fleet = Fleet(_engine(stack, direct["fleet"]))
        amqp_url = _through(proxies.get("amqp"), servers.amqp)
        cells = []
        for name in direct.keys() - {"fleet"}:
            cells.append(fleet.add_cell(name, CellKind.NATIVE, proxied[name], amqp_url))
            stack.callback(_remove_bus, servers.amqp, cells[-1].uuid)
        cells.sort(key=lambda cell: cell.name)
        engines = {cell.name: _engine(stack, direct[cell.name]) for cell in cells}
        config = folder / "fleetlight.toml"
        index_url = _through(proxies.get("elasticsearch"), servers.elasticsearch)
        config.write_text(_configuration(proxied["fleet"], index_url, prefix, servers.index_file, configured))
        if servers.index_file is None:
            stack.callback(_remove_index, servers.elasticsearch, prefix)
        yield World(fleet, tuple(cells), engines, proxies, config, servers)


def _configuration(fleet_url: str, index_url: str, prefix: str, index_file: Path | None, configured: Sections) -> str:
    index: dict[str, object] = (
        {"backend": backend_at(index_url), "urls": [index_url], "prefix": prefix}
        if index_file is None
        else {"backend": "sqlite", "path": str(index_file)}
    )
    addresses: dict[str, dict[str, object]] = {"fleet": {"database_url": fleet_url}, "index": index}
    lines = []
    for section in dict.fromkeys([*addresses, *configured]):
        lines.append(f"[{section}]")
        values = {**addresses.get(section, {}), **configured.get(section, {})}
        # Texts, numbers and lists are written in TOML as in JSON.
        lines += [f"{name} = {json.dumps(value)}" for name, value in values.items()]
    return "\n".join([*lines, ""])


def _databases(
    stack: ExitStack, folder: Path, postgresql_url: str | None, proxies: dict[str, TcpProxy], cell_count: int
) -> tuple[dict[str, str], dict[str, str]]:
    """URLs by name of database, "fleet" and the cells: as they are, and as the processes reach them."""
    cells = [f"cell{number}" for number in range(1, cell_count + 1)]
    if postgresql_url is None:
        urls = {name: f"sqlite:///{folder}/{name}.db" for name in ["fleet", *cells]}
        _upgrade(urls["fleet"], urls[cells[0]])
        for name in cells[1:]:
            shutil.copy(folder / f"{cells[0]}.db", folder / f"{name}.db")
        return urls, urls
    run = uuid4().hex
    direct = {name: make_url(postgresql_url).set(database=f"fleetlight_faults_{run}_{name}") for name in cells}
    direct["fleet"] = make_url(postgresql_url).set(database=f"fleetlight_faults_{run}_fleet")
    dsn = make_url(postgresql_url).set(drivername="postgresql").render_as_string(hide_password=False)

    def execute(statement: sql.Composed) -> None:
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute(statement)

    template = sql.Identifier(str(direct[cells[0]].database))
    for name in ["fleet", *cells]:
        database = sql.Identifier(str(direct[name].database))
        source = template if name in cells[1:] else sql.SQL("template1")
        execute(sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(database, source))
        stack.callback(execute, sql.SQL("DROP DATABASE {} WITH (FORCE)").format(database))
        if name == cells[0]:
            _upgrade(_text(direct["fleet"]), _text(direct[name]))
    urls = {name: _text(url) for name, url in direct.items()}
    if not proxies:
        return urls, urls
    proxies["postgresql"] = _proxy(stack, postgresql_url)
    proxies["first cell"] = _proxy(stack, postgresql_url)
    through = {name: proxies["first cell" if name == cells[0] else "postgresql"] for name in direct}
    return urls, {name: _text(url.set(port=through[name].port)) for name, url in direct.items()}


def _upgrade(fleet_url: str, cell_url: str) -> None:
    for url, upgrade in ((fleet_url, upgrade_fleet), (cell_url, upgrade_cell)):
        engine = create_database_engine(url)
        upgrade(engine)
        engine.dispose()


def _text(url: URL) -> str:
    return url.render_as_string(hide_password=False)


def _engine(stack: ExitStack, url: str) -> Engine:
    engine = create_database_engine(url)
    stack.callback(engine.dispose)
    return engine


def _proxy(stack: ExitStack, url: str) -> TcpProxy:
    parts = urlsplit(url)
    assert parts.hostname is not None
    assert parts.port is not None
    return stack.enter_context(tcp_proxy(parts.hostname, parts.port))


def _through(proxy: TcpProxy | None, url: str) -> str:
    """The same URL, through the proxy if there is one."""
    if proxy is None:
        return url
    parts = urlsplit(url)
    account = parts.netloc.rpartition("@")[0]
    return parts._replace(netloc=f"{account}{'@' if account else ''}127.0.0.1:{proxy.port}").geturl()


def _remove_index(url: str, prefix: str) -> None:
    with index_client(url, request_timeout=60) as client:
        names = list(client.indices.get(index=f"{prefix}*", expand_wildcards="all").body)
        if names:
            client.indices.delete(index=names)


def _remove_bus(url: str, cell_uuid: str) -> None:
    with kombu.Connection(url) as connection, connection.channel() as channel:
        for queue in (topology.work_queue_name(cell_uuid), topology.dead_name(cell_uuid)):
            channel.queue_delete(queue)
        for exchange in (topology.exchange_name(cell_uuid), topology.dead_name(cell_uuid)):
            channel.exchange_delete(exchange)
