"""Databases for tests: the migrations run once for each schema, and every other empty database gets what they made.

Half of the time of a test of the API was to migrate the databases of its fleet. A SQLite file is copied; a PostgreSQL
database gets the statements of the first time, in one request.
"""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from sqlalchemy import Engine, event, text
from sqlalchemy.exc import DBAPIError

from cells import migrations
from cells.database.engines import create_database_engine, writing

_run = migrations._upgrade


@pytest.fixture(scope="session", autouse=True)
def migrated_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """`upgrade_fleet` and `upgrade_cell` repeat what they did before, where there is nothing yet."""
    folder = tmp_path_factory.mktemp("migrated")
    scripts: dict[str, str] = {}

    def upgrade(engine: Engine, schema: str) -> None:
        is_done = (
            _copied(folder / f"{schema}.db", schema, engine)
            if engine.dialect.name == "sqlite"
            else _repeated(scripts, schema, engine)
        )
        if not is_done:
            _run(engine, schema)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(migrations, "_upgrade", upgrade)
        yield


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


def _repeated(scripts: dict[str, str], schema: str, engine: Engine) -> bool:
    """Whether the database has its tables now; not where it had some. The first time is written down in `scripts`."""
    with engine.connect() as connection:
        if connection.scalar(text("SELECT to_regclass(:name)"), {"name": f"fleetlight_{schema}_version"}) is not None:
            return False
    if schema not in scripts:
        scripts[schema] = _recorded(schema, engine)
        return True
    try:
        with writing(engine) as connection:
            connection.exec_driver_sql(scripts[schema])
    except DBAPIError:  # somebody else was faster
        return False
    return True


def _recorded(schema: str, engine: Engine) -> str:
    """Migrate, and return what was written, as one script."""
    statements: list[str] = []

    def record(_connection: Any, cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        if not statement.lstrip().startswith("SELECT"):
            client = psycopg.ClientCursor(cursor.connection)
            rows = parameters if isinstance(parameters, list) else [parameters]
            statements.extend(client.mogrify(statement, row or None) for row in rows)

    event.listen(engine, "before_cursor_execute", record)
    try:
        _run(engine, schema)
    finally:
        event.remove(engine, "before_cursor_execute", record)
    return ";".join(statements)
