"""True databases of Nova on each kind of server, and what Nova itself answers over them.

They are made once for a run and only read, so all workers of pytest-xdist share them; the last one removes them.
"""

import fcntl
import json
import os
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal
from uuid import uuid4

import pytest
import sqlalchemy as sa

from tests.nova.questions import USAGE, Asked, requests_for
from tests.support.session.requirements import MARIADB, NOVA, POSTGRESQL

NovaServer = Literal["sqlite", "postgresql", "mariadb"]

_SCRIPTS = Path(__file__).resolve().parents[2] / "nova"
_DATABASES = ("api", "cell0", "cell1", "cell2")
_TIMEOUT_S = 280
# Of the address in [database]connection, which is that of cell2.
_TEMPLATES: Mapping[NovaServer, str] = {
    "sqlite": "{scheme}:////{path}",
    "postgresql": "{scheme}://{username}@{hostname}:{port}/{path}",
    "mariadb": "{scheme}://{username}@{hostname}:{port}/{path}",
}


@dataclass(frozen=True)
class NovaWorld:
    """A deployment with two cells and cell0 (tests/nova/make_world.py). urls: `api`, `cell0`, `cell1`, `cell2`.

    folder: where its nova.conf is.
    """

    server: NovaServer
    folder: Path
    urls: Mapping[str, str]
    answers: Mapping[str, Mapping[str, Any]]

    def answer(self, asked: Asked) -> tuple[int, Any]:
        """The status and the body that Nova answers with."""
        answer = self.answers[str(asked)]
        return answer["status"], answer["body"]


@contextmanager
def nova_world(server: NovaServer, shared: Path, worker: str) -> Iterator[NovaWorld]:
    """The world on that kind of server. shared: a folder that all workers have in common."""
    folder = shared / "nova" / server
    folder.mkdir(parents=True, exist_ok=True)
    user = folder / f"used-by-{worker}"
    with _locked(folder):
        if not (folder / "answers.json").exists():
            _make(server, folder)
        user.touch()
        world = _read(server, folder)
    try:
        yield world
    finally:
        with _locked(folder):
            user.unlink()
            if not list(folder.glob("used-by-*")):
                (folder / "answers.json").unlink()
                drop_databases(server, world.urls.values())


def _make(server: NovaServer, folder: Path) -> None:
    urls = {name: create_database(server, folder) for name in _DATABASES}
    world = folder / "world.json"
    world.write_text(json.dumps({**urls, "folder": str(folder), "templated": _TEMPLATES[server]}))
    _run("make_world.py", world)
    asked = [*requests_for(server), USAGE]
    lines = _run("answer.py", world, "\n".join(json.dumps(asdict(each)) for each in asked)).splitlines()
    answers = dict(zip(map(str, asked), map(json.loads, lines), strict=True))
    (folder / "answers.json").write_text(json.dumps(answers))


def _read(server: NovaServer, folder: Path) -> NovaWorld:
    world = json.loads((folder / "world.json").read_text())
    answers = json.loads((folder / "answers.json").read_text())
    return NovaWorld(server, folder, {name: world[name] for name in _DATABASES}, answers)


def _run(script: str, world: Path, lines: str = "") -> str:
    ready = NOVA.locate()
    assert ready is not None
    # With bytecode it starts in two seconds, without in twenty.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        [Path(ready).parent / "bin" / "python", "-P", _SCRIPTS / script, world],
        input=lines,
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def create_database(server: NovaServer, folder: Path) -> str:
    """An empty database; the URL has the driver that Nova's environment has."""
    name = f"fleetlight_test_{uuid4().hex}"
    if server == "sqlite":
        return f"sqlite:///{folder / name}.db"
    address = _execute(server, f"CREATE DATABASE {name}")
    driver = "postgresql+psycopg2" if server == "postgresql" else "mysql+pymysql"
    return address.set(drivername=driver, database=name).render_as_string(hide_password=False)


def drop_databases(server: NovaServer, urls: Iterable[str]) -> None:
    for url in urls:
        name = str(sa.make_url(url).database)
        if server == "sqlite":
            Path(name).unlink()
        elif server == "postgresql":
            _execute(server, f"DROP DATABASE {name} WITH (FORCE)")
        else:
            _execute(server, f"DROP DATABASE {name}")


def _execute(server: NovaServer, statement: str) -> sa.URL:
    requirement = POSTGRESQL if server == "postgresql" else MARIADB
    located = requirement.locate()
    assert located is not None
    engine = sa.create_engine(located, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(sa.text(statement))
    engine.dispose()
    return engine.url


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    with (folder.parent / f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@pytest.fixture(scope="session")
def nova_environment() -> str:
    """Folder that says that Nova is installed; a test that asks for it needs Nova."""
    located = NOVA.locate()
    assert located is not None, "this test needs Nova: run scripts/nova-environment"
    return located


@pytest.fixture(scope="session")
def mariadb_url() -> str:
    """URL of a database of a MariaDB server; tests make their own."""
    located = MARIADB.locate()
    assert located is not None, f"this test needs MariaDB: set {MARIADB.variable}"
    return located


@pytest.fixture(scope="session")
def nova_worlds(
    nova_environment: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[NovaServer], NovaWorld]]:
    """Deployments of Nova that are there until the last test of the worker: making one takes half a minute."""
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    base = tmp_path_factory.getbasetemp()
    shared, name = (base, "alone") if worker is None else (base.parent, worker)
    with ExitStack() as kept:
        yield cache(lambda server: kept.enter_context(nova_world(server, shared, name)))


@pytest.fixture(
    scope="session",
    params=[
        pytest.param("sqlite", marks=pytest.mark.night),
        pytest.param("postgresql", marks=[pytest.mark.postgresql, pytest.mark.night]),
        pytest.param("mariadb", marks=pytest.mark.mariadb),
    ],
)
def nova_deployment(request: pytest.FixtureRequest, nova_worlds: Callable[[NovaServer], NovaWorld]) -> NovaWorld:
    """A deployment of Nova, on each kind of server."""
    return nova_worlds(request.param)
