"""Backups of a database of a cell or of the fleet, as those of its kind are made and put back."""

import sqlite3
from contextlib import closing
from pathlib import Path

from sqlalchemy import Engine, MetaData, text

from fleetlight.cells.tables import cell_metadata


class Backup:
    """The database behind `engine` as it is now. folder: for the file of a backup. tables: of a cell unless named."""

    def __init__(self, engine: Engine, folder: Path, tables: MetaData = cell_metadata) -> None:
        self._engine = engine
        self._tables = tables
        self._file = folder / "backup.db"
        if self._is_sqlite:
            _copy_database(self._database, self._file)
        else:
            _copy_rows(engine, tables, "public", "backup")

    def restore(self) -> None:
        if self._is_sqlite:
            _copy_database(self._file, self._database)
        else:
            _copy_rows(self._engine, self._tables, "backup", "public")

    @property
    def _is_sqlite(self) -> bool:
        return self._engine.dialect.name == "sqlite"

    @property
    def _database(self) -> Path:
        return Path(str(self._engine.url.database))


def _copy_database(source: Path, target: Path) -> None:
    """As SQLite makes and restores backups: also of and into a database that others have open."""
    with closing(sqlite3.connect(source)) as opened, closing(sqlite3.connect(target)) as written:
        opened.backup(written)


def _copy_rows(engine: Engine, tables: MetaData, source: str, target: str) -> None:
    """What a dump holds of a PostgreSQL database, from one schema of it into another one, in one transaction."""
    with engine.begin() as connection:
        connection.execute(text(f"CREATE SCHEMA IF NOT EXISTS {target}"))
        for table in tables.sorted_tables:
            connection.execute(text(f"CREATE TABLE IF NOT EXISTS {target}.{table.name} (LIKE {source}.{table.name})"))
        for table in reversed(tables.sorted_tables):
            connection.execute(text(f"DELETE FROM {target}.{table.name}"))  # noqa: S608
        for table in tables.sorted_tables:
            connection.execute(text(f"INSERT INTO {target}.{table.name} SELECT * FROM {source}.{table.name}"))  # noqa: S608
