"""Start, find and stop the servers of this checkout; what is running is remembered in the state folder."""

import fcntl
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from scripts.servers import docker, process
from scripts.servers.base import Server
from scripts.servers.elasticsearch import Elasticsearch, SecuredElasticsearch
from scripts.servers.errors import ServerError
from scripts.servers.folders import make_folder, state_folder
from scripts.servers.ganeti import Ganeti
from scripts.servers.mariadb import MariaDB
from scripts.servers.opensearch import OpenSearch
from scripts.servers.postgresql import PostgreSQL, SecuredPostgreSQL
from scripts.servers.process import Process
from scripts.servers.rabbitmq import RabbitMQ, SecuredRabbitMQ
from scripts.servers.redis import Redis

SERVERS: dict[str, Server] = {
    server.NAME: server for server in (Elasticsearch(), RabbitMQ(), PostgreSQL(), MariaDB(), Redis(), Ganeti())
}
SECURED: dict[str, Server] = {
    server.NAME: server for server in (SecuredElasticsearch(), SecuredRabbitMQ(), SecuredPostgreSQL())
}
WHEN_NAMED: dict[str, Server] = {OpenSearch.NAME: OpenSearch(), **SECURED}
"""Those that are started only when they are named."""


@dataclass(frozen=True, slots=True)
class Started:
    """A server that we started: a process from a package, or a container if `process` is None."""

    port: int
    process: Process | None


@dataclass(frozen=True, slots=True)
class FoundServer:
    """A server that can be used. origin: where it comes from, in words; is_new: started by this very call."""

    server: Server
    url: str
    origin: str
    is_new: bool = False


def find(server: Server) -> FoundServer | None:
    """The server named in the environment, or the one that we started and that still answers."""
    url = os.environ.get(server.VARIABLE)
    if url:
        return FoundServer(server, url, "named in the environment")
    started = _recall(server)
    if started is None or not server.is_ready(started.port):
        return None
    return FoundServer(server, server.url(started.port), "in Docker" if started.process is None else "from a package")


def start(server: Server) -> FoundServer:
    """The server, started if it is not there yet. Raises ServerError, with nothing left behind, if it cannot be had."""
    with _lock(server):
        found = find(server)
        if found is not None:
            return found
        _remove(server)
        try:
            is_in_docker = server.CONTAINER_PORT is not None and docker.is_available()
            return _start_in_docker(server) if is_in_docker else _start_from_package(server)
        except ServerError:
            _remove(server)
            raise


def stop(server: Server) -> bool:
    """Stop what we started and remove its data. Returns whether there was anything to stop."""
    with _lock(server):
        return _remove(server)


def _start_in_docker(server: Server) -> FoundServer:
    _folder(server).mkdir(parents=True)
    _remember(server, Started(0, None))
    port = docker.start(server)
    _remember(server, Started(port, None))
    return FoundServer(server, server.url(port), "in Docker", is_new=True)


def _start_from_package(server: Server) -> FoundServer:
    folder = _folder(server)
    folder.mkdir(parents=True)
    process.hand_over(folder)
    port = process.free_port()
    server.set_up(folder, port)
    started = server.launch(folder, port)
    _remember(server, Started(port, started))
    process.wait_until_ready(server.NAME, started, lambda: server.is_ready(port), folder, server.READY_WITHIN_S)
    return FoundServer(server, server.url(port), "from a package", is_new=True)


def _remove(server: Server) -> bool:
    """Stop what is remembered, in whatever state it is, and remove its folder."""
    folder = _folder(server)
    if not folder.exists():
        return False
    started = _recall(server)
    if started is not None and started.process is None:
        docker.stop(server)
    elif started is not None and started.process is not None:
        process.stop(server.NAME, started.process, server.STOP_SIGNAL)
        server.clean_up(folder)
    shutil.rmtree(folder)
    return True


def _remember(server: Server, started: Started) -> None:
    (_folder(server) / "server.json").write_text(json.dumps(asdict(started)))


def _recall(server: Server) -> Started | None:
    memory = _folder(server) / "server.json"
    if not memory.exists():
        return None
    content = json.loads(memory.read_text())
    return Started(content["port"], Process(**content["process"]) if content["process"] else None)


def _folder(server: Server) -> Path:
    return state_folder() / server.NAME


@contextmanager
def _lock(server: Server) -> Iterator[None]:
    """Two calls at the same time do not start two servers; the second waits for the first."""
    make_folder(state_folder())
    with (state_folder() / f"{server.NAME}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
