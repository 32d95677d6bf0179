"""Databases for tests: the migrations run once for each schema, and every other empty SQLite file gets a copy.

Half of the time of a test of the API was to migrate the databases of its fleet.
"""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from sqlalchemy import Engine

from cells import migrations
from cells.database import create_database_engine

_run = migrations._upgrade


@pytest.fixture(scope="session", autouse=True)
def migrated_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """`upgrade_fleet` and `upgrade_cell` copy what they made before, where there is no file yet."""
    folder = tmp_path_factory.mktemp("migrated")

    def upgrade(engine: Engine, schema: str) -> None:
        path = _path_of_new_file(engine)
        if path is None or not _copied(_template(folder, schema), path):
            _run(engine, schema)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(migrations, "_upgrade", upgrade)
        yield


@pytest.fixture
def migrated_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The migrations run, whatever was made before: for tests of themselves."""
    monkeypatch.setattr(migrations, "_upgrade", _run)


def _path_of_new_file(engine: Engine) -> Path | None:
    """None for another kind of database, for a file that is there, and for one that must be."""
    url = engine.url
    if url.get_backend_name() != "sqlite" or url.query or Path(str(url.database)).exists():
        return None
    return Path(str(url.database))


def _template(folder: Path, schema: str) -> Path:
    template = folder / f"{schema}.db"
    if not template.exists():
        engine = create_database_engine(f"sqlite:///{template}")
        _run(engine, schema)
        engine.dispose()  # or what was written is still in another file
    return template


def _copied(template: Path, path: Path) -> bool:
    """Whether `path` is a copy now; not when another one has made the file meanwhile, or nobody can."""
    copy = path.with_name(f"{path.name}.{uuid4().hex}")
    try:
        shutil.copyfile(template, copy)
        os.link(copy, path)
    except OSError:
        return False
    finally:
        copy.unlink(missing_ok=True)
    return True
