"""A small deployment of Nova in SQLite files: only the tables that are read, which Nova need not be there for."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import sqlalchemy
from sqlalchemy import Executable, Table, create_engine

from fleetlight.cells.kinds.nova_db import tables
from tests.support.fleets.documents import CREATED_AT, make_uuid

CELL0 = "00000000-0000-0000-0000-000000000000"
CELL1 = "c1c1c1c1-0000-4000-8000-000000000001"


@dataclass(frozen=True)
class SmallNova:
    """urls: of `api`, `cell0` and `cell1`."""

    urls: Mapping[str, str]

    def add(self, cell: str, number: int, **values: object) -> str:
        """An instance of a cell, and where it is; returns its uuid."""
        uuid = make_uuid(number)
        row = {
            "id": number,
            "uuid": uuid,
            "deleted": 0,
            "hidden": False,
            "project_id": "demo",
            "user_id": "ada",
            "display_name": f"web-{number}",
            "vm_state": "active",
            "created_at": CREATED_AT + number,
        }
        self.insert(cell, tables.instances, row | values)
        mapping = {
            "id": number,
            "instance_uuid": uuid,
            "cell_id": int(cell[-1]) + 1,
            "project_id": "demo",
            "user_id": "ada",
            "created_at": CREATED_AT,
            "queued_for_delete": False,
        }
        self.insert("api", tables.instance_mappings, mapping)
        return uuid

    def set_transport_url(self, cell: str, url: str) -> None:
        statement = sqlalchemy.text("UPDATE cell_mappings SET transport_url = :url WHERE name = :cell")
        self.execute("api", statement.bindparams(url=url, cell=cell))

    def insert(self, database: str, table: Table, row: Mapping[str, object]) -> None:
        self.execute(database, sqlalchemy.insert(table).values(row))

    def execute(self, database: str, statement: Executable) -> None:
        engine = create_engine(self.urls[database])
        with engine.begin() as connection:
            connection.execute(statement)
        engine.dispose()


def small_nova(folder: Path, api_url: str | None = None) -> SmallNova:
    """cell0 and cell1, without an instance. api_url: of an empty database for what is of the whole deployment."""
    urls = {name: f"sqlite:///{folder / name}.db" for name in ("api", "cell0", "cell1")}
    if api_url is not None:
        urls["api"] = api_url
    for url in urls.values():
        engine = create_engine(url)
        tables.metadata.create_all(engine)
        engine.dispose()
    made = SmallNova(urls)
    made.execute("api", sqlalchemy.text("ALTER TABLE cell_mappings ADD COLUMN transport_url TEXT"))
    for number, (name, uuid) in enumerate((("cell0", CELL0), ("cell1", CELL1)), 1):
        row = {"id": number, "uuid": uuid, "name": name, "database_connection": urls[name]}
        made.insert("api", tables.cell_mappings, row)
    return made
