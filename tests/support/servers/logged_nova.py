"""Databases of Nova on a MariaDB of their own that keeps a log, and indexers that follow them into a SQLite index."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pymysql
import sqlalchemy as sa

from fleetlight.bus.no_bus import NoBus
from fleetlight.cells.capabilities import CellKind
from fleetlight.cells.database.engines import create_database_engine
from fleetlight.cells.fleet.fleet import Fleet
from fleetlight.cells.kinds.nova_db import tables
from fleetlight.cells.kinds.opening import open_adapter, open_changelog_adapter
from fleetlight.cells.migrations import upgrade_fleet
from fleetlight.cells.model import Cell
from fleetlight.indexer.backends.base import CellProgress, IndexWriter
from fleetlight.indexer.backends.opening import open_writer
from fleetlight.indexer.backends.settings import IndexSettings
from fleetlight.indexer.settings import IndexerSettings
from fleetlight.indexer.stream.service import IndexerService
from fleetlight.indexer.writing.leases import CellLeases
from fleetlight.query.filters import EVERYTHING
from fleetlight.query.page import PageRequest
from fleetlight.query.sort import INSTANCES_BY_UUID
from fleetlight.resources.clock import system_clock
from scripts.servers.mariadb import MariaDB
from scripts.servers.private import PrivateServer
from tests.support.fleets.indexer_worlds import in_thread
from tests.support.memory.stage import follower_parts
from tests.support.waiting import wait_until

_ACCOUNT = "fleetlight"
_PASSWORD = "read-only"


class LoggingMariaDB(MariaDB):
    """As deployments of Nova have it: kolla-ansible's and openstack-ansible's settings of the log."""

    _SETTINGS = (*MariaDB._SETTINGS, "log-bin=log", "binlog_format=ROW", "server-id=1")


@dataclass
class LoggedNova:
    """The databases `api`, `cell0`, `cell1` and so on, in schemas whose names begin with `prefix`."""

    server: PrivateServer
    prefix: str

    def url(self, database: str, account: str = f"{_ACCOUNT}:{_PASSWORD}") -> str:
        return f"mysql+pymysql://{account}@127.0.0.1:{self.server.port}/{quote(self.prefix + database, safe='')}"

    def schema(self, database: str) -> str:
        """Its name, for statements."""
        return "`" + f"{self.prefix}{database}".replace("`", "``") + "`"

    def create(self, databases: Sequence[str]) -> None:
        """With the tables that are read; the account may read them, and the log."""
        for database in databases:
            self.administer(f"CREATE DATABASE {self.schema(database)}")
            made = tables.API_TABLES if database == "api" else (*tables.CELL_TABLES, tables.compute_nodes)
            with self.engine(database) as engine:
                for table in made:
                    self._make(engine, table)
        self.grant(databases)

    def grant(self, databases: Sequence[str]) -> None:
        """Let the account read these databases, and the log."""
        self.administer(
            f"CREATE USER IF NOT EXISTS {_ACCOUNT}@'%' IDENTIFIED BY '{_PASSWORD}'",
            f"GRANT REPLICATION SLAVE, BINLOG MONITOR ON *.* TO {_ACCOUNT}@'%'",
        )
        self.administer(*(f"GRANT SELECT ON {self.schema(database)}.* TO {_ACCOUNT}@'%'" for database in databases))

    @contextmanager
    def engine(self, database: str) -> Iterator[sa.Engine]:
        """Of the owner of the databases."""
        engine = sa.create_engine(self.url(database, "root"), isolation_level="AUTOCOMMIT")
        try:
            yield engine
        finally:
            engine.dispose()

    def administer(self, *statements: str) -> None:
        opened = pymysql.connect(host="127.0.0.1", port=self.server.port, user="root", autocommit=True)
        with closing(opened), opened.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)

    def cell(self, name: str, uuid: str) -> Cell:
        return Cell(uuid, name, CellKind.NOVA_DB, self.url(name), "", api_database_url=self.url("api"), nova_uuid=uuid)

    def _make(self, engine: sa.Engine, table: sa.Table) -> None:
        """The columns that are read, and a key as Nova has it."""
        keys = {"id"} if "id" in table.c else {"instance_uuid"} & {*table.c.keys()} or {*table.c.keys()[:2]}
        columns = [
            sa.Column(
                each.name,
                _type_of(each),
                primary_key=each.name in keys,
                autoincrement=each.name == "id",
                # Without one, whoever changes a row locks the table.
                index=each.name in {"uuid", "instance_uuid"} - keys,
            )
            for each in table.columns
        ]
        sa.Table(table.name, sa.MetaData(), *columns).create(engine)


def _type_of(column: sa.Column[Any]) -> Any:
    stored = column.type.impl_instance if isinstance(column.type, sa.types.TypeDecorator) else column.type
    is_short = isinstance(stored, sa.String) and not isinstance(stored, sa.Text)
    return sa.String(255) if is_short else stored


@dataclass
class FollowedNova:
    """Cells that one indexer or several follow. fleet: where they are registered."""

    nova: LoggedNova
    fleet: Fleet
    index_settings: IndexSettings
    settings: IndexerSettings

    def register(self, name: str, uuid: str) -> Cell:
        """Add the cell whose database is `name`, with a uuid that is the one in Nova too."""
        cell = self.nova.cell(name, uuid)
        return self.fleet.add_cell(
            name,
            CellKind.NOVA_DB,
            cell.database_url,
            "",
            uuid=uuid,
            api_database_url=cell.api_database_url,
            nova_uuid=uuid,
        )

    @contextmanager
    def indexer(self, cells: Callable[[], Sequence[Cell]] | None = None) -> Iterator[IndexerService]:
        """An indexer with leases of its own, as in a process of its own."""
        with (
            closing(open_writer(self.index_settings)) as writer,
            closing(CellLeases(self.fleet.open_leases("an indexer"))) as leases,
        ):
            parts = follower_parts(
                writer,
                self.settings,
                lambda _: NoBus(),
                leases=leases,
                owners=self.fleet,
                failures=self.fleet.failures,
                journals=self.fleet.journals,
            )
            service = IndexerService(
                cells or self.fleet.cells,
                parts,
                open_adapter=open_changelog_adapter,
                refresh_interval_s=0.1,
                cells_refresh_interval_s=0.5,
            )
            with in_thread(service.run):
                yield service

    @contextmanager
    def index(self) -> Iterator[IndexWriter]:
        with closing(open_writer(self.index_settings)) as writer:
            writer.prepare()
            yield writer

    def progress(self, cell_uuid: str) -> CellProgress | None:
        with self.index() as index:
            return index.load_progress().get(cell_uuid)

    def wait_until_fresh(self, cell_uuid: str, since: int | None = None, timeout_s: float = 60) -> CellProgress:
        """Until the index says that it has all of the cell, as of `since` or later (microseconds; default: now)."""
        moment = system_clock() if since is None else since

        def is_fresh() -> CellProgress | None:
            progress = self.progress(cell_uuid)
            return progress if progress and progress.is_complete and progress.fresh_as_of >= moment else None

        found = wait_until(is_fresh, timeout_s)
        assert found is not None
        return found

    def differing(self, cell: Cell) -> Mapping[str, tuple[Any, Any]]:
        """By uuid, what the databases say and what the index says, where that is not the same.

        A deleted instance whose row was archived stays in the index.
        """
        with closing(open_adapter(cell)) as adapter:
            rows = {
                row.uuid: dict(row.record)
                for row in adapter.read_page(PageRequest(EVERYTHING, INSTANCES_BY_UUID, 200_000))
            }
        shown = {uuid: record for uuid, record in rows.items() if not record["hidden"]}
        with self.index() as index:
            index.make_searchable()
            uuids = sorted({*rows, *index.revisions(cell.uuid, "0123456789abcdef", external=True)})
            documents = {
                uuid: dict(document.record)
                for uuid, document in index.read(uuids).items()
                if document.cell_uuid == cell.uuid
            }
        differing = {}
        for uuid in uuids:
            row, document = shown.get(uuid), documents.get(uuid)
            if row is None and document is not None and document["deleted"]:
                continue
            if row != document:
                differing[uuid] = (row, document)
        return differing


@contextmanager
def followed_nova(
    nova: LoggedNova, folder: Path, index: IndexSettings | None = None, **settings: Any
) -> Iterator[FollowedNova]:
    """A fleet without a cell, and an index, beside the databases of `nova`."""
    folder.mkdir(exist_ok=True)
    engine = create_database_engine(f"sqlite:///{folder / 'fleet.db'}")
    upgrade_fleet(engine)
    with closing(Fleet(engine)) as fleet:
        yield FollowedNova(
            nova,
            fleet,
            index or IndexSettings(path=folder / "index.db"),
            IndexerSettings(**{"retry_wait_max_s": 0.2, "comparison_interval_s": 36_000.0} | settings),
        )
