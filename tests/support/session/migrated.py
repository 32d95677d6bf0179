"""Databases for tests: the migrations run once for each schema, and every other empty database gets what they made.

Half of the time of a test of the API was to migrate the databases of its fleet. A SQLite file is copied; a PostgreSQL
database is replaced by a copy of one that was migrated.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import LiteralString
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql
from sqlalchemy import URL, Engine, text

from fleetlight.cells import migrations
from fleetlight.cells.database.engines import create_database_engine

SHARED_VARIABLE = "FLEETLIGHT_TEST_MIGRATED"
_run = migrations._upgrade


@pytest.fixture(scope="session", autouse=True)
def migrated_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """`upgrade_fleet` and `upgrade_cell` repeat what they did before, where there is nothing yet."""
    # scripts/mutants.py runs tests in many processes, one after the other, which share what the first of them made.
    shared = os.environ.get(SHARED_VARIABLE)
    folder = Path(shared) if shared else tmp_path_factory.mktemp("migrated")
    templates: dict[tuple[URL, str], str] = {}

    def upgrade(engine: Engine, schema: str) -> None:
        is_done = (
            _copied(folder / f"{schema}.db", schema, engine)
            if engine.dialect.name == "sqlite"
            else _replaced(templates, schema, engine)
        )
        if not is_done:
            _run(engine, schema)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(migrations, "_upgrade", upgrade)
        yield
    for (server, _), name in templates.items():
        with suppress(psycopg.OperationalError):  # the server of a test, or a proxy, which has gone
            _execute(server, "DROP DATABASE {name} WITH (FORCE)", name=name)


@pytest.fixture
def migrated_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The migrations run, whatever was made before: for tests of themselves."""
    monkeypatch.setattr(migrations, "_upgrade", _run)


def _copied(template: Path, schema: str, engine: Engine) -> bool:
    """Whether the file is a copy now; not where there is one, or where one must be."""
    path = Path(str(engine.url.database))
    if engine.url.query or path.exists():
        return False
    if not template.exists():
        first = create_database_engine(f"sqlite:///{template}")
        _run(first, schema)
        first.dispose()  # or what was written is still in another file
    copy = path.with_name(f"{path.name}.{uuid4().hex}")
    try:
        shutil.copyfile(template, copy)
        os.link(copy, path)
    except OSError:  # somebody else was faster, or nobody can
        return False
    finally:
        copy.unlink(missing_ok=True)
    return True


def _replaced(templates: dict[tuple[URL, str], str], schema: str, engine: Engine) -> bool:
    """Whether the database has its tables now; not where it had some, or where its owner may not make another.

    `templates`: the databases to copy, by server and schema.
    """
    if engine.url.password is not None:
        return False
    with engine.connect() as connection:
        if connection.scalar(text("SELECT count(*) FROM pg_class WHERE relnamespace = 'public'::regnamespace")):
            return False
    engine.dispose()  # or the database is in use
    server = engine.url.set(drivername="postgresql", database="postgres")
    name = templates.get((server, schema))
    if name is None:
        name = templates[server, schema] = f"fleetlight_template_{uuid4().hex}"
        _execute(server, "CREATE DATABASE {name}", name=name)
        first = create_database_engine(engine.url.set(database=name).render_as_string(hide_password=False))
        _run(first, schema)
        first.dispose()
    of_test = str(engine.url.database)
    _execute(server, "DROP DATABASE {name} WITH (FORCE)", name=of_test)
    _execute(server, "CREATE DATABASE {name} TEMPLATE {template} STRATEGY FILE_COPY", name=of_test, template=name)
    return True


def _execute(server: URL, statement: LiteralString, **names: str) -> None:
    identifiers = {key: sql.Identifier(name) for key, name in names.items()}
    with psycopg.connect(server.render_as_string(hide_password=False), autocommit=True) as connection:
        connection.execute(sql.SQL(statement).format(**identifiers))
