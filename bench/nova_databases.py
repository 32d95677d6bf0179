"""Databases of a Nova deployment for benchmarks, on a PostgreSQL server: true schemas, filled by copying one instance.

Nova itself makes the schemas and that instance (bench.nova_peer); the copies are made by the server.
"""

import json
import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any
from uuid import uuid4

from sqlalchemy import Connection, create_engine, text
from sqlalchemy.engine import URL, make_url

from tests.nova.questions import identifier

_PEER = Path(__file__).with_name("nova_peer.py")
_NAMESPACE = "fleetlight_bench"
_TIMEOUT_S = 280
# `g` is the number of the copy, `p` the row that is copied. What is not named is copied as it is. The first column of a
# table says which instance a row belongs to.
_UUID = "md5('instance ' || g)::uuid::text"
_SECONDS = "(('x' || substr(md5('time ' || g), 1, 7))::bit(28)::int % 31536000)"
_OWN: dict[str, dict[str, str]] = {
    "instances": {
        "uuid": _UUID,
        "created_at": f"p.created_at - {_SECONDS} * interval '1 second'",
        "updated_at": f"p.created_at - {_SECONDS} * interval '1 second' + interval '1 hour'",
        "display_name": "'web-' || g || '.shop.example.org'",
        "hostname": "'web-' || g",
        "project_id": "md5('project ' || g % 100)",
        "reservation_id": "'r-' || substr(md5('reservation ' || g), 1, 8)",
    },
    "instance_extra": {"instance_uuid": _UUID},
    "instance_info_caches": {"instance_uuid": _UUID},
    "instance_metadata": {"instance_uuid": _UUID},
    "instance_system_metadata": {"instance_uuid": _UUID},
    "block_device_mapping": {
        "instance_uuid": _UUID,
        "uuid": "gen_random_uuid()::text",
        "volume_id": "gen_random_uuid()::text",
    },
    "tags": {"resource_id": _UUID},
    "request_specs": {"instance_uuid": _UUID},
}
_COLUMNS = text("SELECT column_name FROM information_schema.columns WHERE table_name = :table AND column_name <> 'id'")
_PROTOTYPE = identifier("prototype")


@dataclass(frozen=True)
class NovaDatabases:
    """api_url: of the API database. cells: the URL of each cell's database by the uuid that it has in Nova."""

    folder: Path
    api_url: str
    cells: dict[str, str]


class NovaServer:
    """A PostgreSQL server with an API database of Nova's, and a cell database to make others of."""

    def __init__(self, url: str, python: Path, folder: Path, count: int) -> None:
        """count: instances of a deployment. python: of the environment that has Nova."""
        self._server = make_url(url)
        self._python = python
        self._folder = folder
        self._count = count
        self._names: list[str] = []
        self._api = self._create()
        self._template = self._create()

    def prepare(self) -> None:
        """Make what deployments are made from."""
        world = {"api": _for_nova(self._api), "template": _for_nova(self._template), "folder": str(self._folder)}
        (self._folder / "world.json").write_text(json.dumps(world))
        self._run("prepare").wait_for_end()
        with _begun(self._api) as connection:
            _copy(connection, ["request_specs"], range(self._count))

    @contextmanager
    def deployment(self, cells: int) -> Iterator[NovaDatabases]:
        """All instances, spread evenly over so many cells."""
        urls = {str(uuid4()): self._create(self._template) for _ in range(cells)}
        tables = [name for name in _OWN if name != "request_specs"]
        for number, url in enumerate(urls.values()):
            with _begun(url) as connection:
                _copy(connection, tables, range(number, self._count, cells))
        with _begun(self._api) as connection:
            connection.execute(text("DELETE FROM instance_mappings"))
            connection.execute(text("DELETE FROM cell_mappings"))
            insert = text(
                "INSERT INTO cell_mappings (uuid, name, transport_url, database_connection) "
                "VALUES (:uuid, :uuid, 'none:///', :url)"
            )
            connection.execute(insert, [{"uuid": uuid, "url": _for_nova(url)} for uuid, url in urls.items()])
        yield NovaDatabases(self._folder, _address(self._api), {uuid: _address(url) for uuid, url in urls.items()})
        for url in urls.values():
            self._drop(str(url.database))

    @contextmanager
    def peer(self, threads: int) -> Iterator["Peer"]:
        """Nova, over the deployment of now. threads: its `cell_worker_thread_pool_size`."""
        peer = self._run("serve", str(threads))
        try:
            yield peer
        finally:
            peer.wait_for_end()

    def close(self) -> None:
        for name in list(self._names):
            self._drop(name)

    def _run(self, *command: str) -> "Peer":
        return Peer([str(self._python), str(_PEER), str(self._folder / "world.json"), *command], self._folder)

    def _create(self, template: URL | None = None) -> URL:
        name = f"{_NAMESPACE}_{uuid4().hex}"
        self._execute(f"CREATE DATABASE {name}" + (f" TEMPLATE {template.database}" if template is not None else ""))
        self._names.append(name)
        return self._server.set(database=name)

    def _drop(self, name: str) -> None:
        self._execute(f"DROP DATABASE {name} WITH (FORCE)")
        self._names.remove(name)

    def _execute(self, statement: str) -> None:
        engine = create_engine(self._server, isolation_level="AUTOCOMMIT")
        with engine.connect() as connection:
            connection.execute(text(statement))
        engine.dispose()


class Peer:
    """A process of Nova's environment that is asked with lines of JSON."""

    def __init__(self, command: Sequence[str], folder: Path) -> None:
        # With bytecode it starts in two seconds, without in twenty.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        self._log = folder / "nova.log"
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, env=environment
            )

    def ask(self, **asked: Any) -> Any:
        """The answer to one line."""
        line = json.dumps(asked)
        _pipe(self._process.stdin).write(line + "\n")
        _pipe(self._process.stdin).flush()
        answer = _pipe(self._process.stdout).readline()
        assert answer, self._log.read_text()[-3000:]
        return json.loads(answer)

    def wait_for_end(self) -> None:
        self._process.communicate(timeout=_TIMEOUT_S)
        assert self._process.returncode == 0, self._log.read_text()[-3000:]


def _pipe(stream: IO[str] | None) -> IO[str]:
    assert stream is not None
    return stream


@contextmanager
def _begun(url: URL) -> Iterator[Connection]:
    engine = create_engine(url)
    with engine.begin() as connection:
        yield connection
    engine.dispose()


def _copy(connection: Connection, tables: Sequence[str], numbers: range) -> None:
    """Copies of the one instance that is there, which goes; with statistics, as a server in use has them."""
    for table in tables:
        own = _OWN[table]
        found = connection.execute(_COLUMNS, {"table": table}).scalars()
        values = {f'"{name}"': own.get(name, f'p."{name}"') for name in found}
        connection.execute(
            text(
                f"INSERT INTO {table} ({', '.join(values)}) SELECT {', '.join(values.values())} "  # noqa: S608
                f"FROM {table} p, generate_series({numbers.start}, {numbers.stop - 1}, {numbers.step}) g"
            )
        )
    for table in reversed(tables):
        key = next(iter(_OWN[table]))
        connection.execute(text(f"DELETE FROM {table} WHERE {key} = :prototype"), {"prototype": _PROTOTYPE})  # noqa: S608
        connection.execute(text(f"ANALYZE {table}"))


def _for_nova(url: URL) -> str:
    return _address(url.set(drivername="postgresql+psycopg2"))


def _address(url: URL) -> str:
    return url.render_as_string(hide_password=False)
