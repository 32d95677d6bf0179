"""A native cell with a relay, a bus and an index, all real; and indexers that come and go."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Event, Thread

from prometheus_client import CollectorRegistry
from sqlalchemy import Engine, func, select

from fleetlight.bus.bus import Message, Publisher, Receiver
from fleetlight.bus.no_bus import NoBus
from fleetlight.bus.settings import BusSettings
from fleetlight.bus.traces import Traces
from fleetlight.cells.capabilities import CellKind
from fleetlight.cells.database.engines import create_database_engine
from fleetlight.cells.fleet.cell_keys import Keyring
from fleetlight.cells.fleet.fleet import Fleet
from fleetlight.cells.fleet.producer_keys import ProducerKeyring
from fleetlight.cells.kinds.native.relay import Relay
from fleetlight.cells.kinds.opening import open_adapter, open_changelog_adapter
from fleetlight.cells.migrations import upgrade_cell, upgrade_fleet
from fleetlight.cells.model import Cell, InstanceRow
from fleetlight.cells.settings import RelaySettings
from fleetlight.cells.tables import changes
from fleetlight.indexer.backends.base import CellProgress, Document, IndexWriter
from fleetlight.indexer.backends.opening import open_writer
from fleetlight.indexer.backends.settings import IndexSettings
from fleetlight.indexer.metrics import IndexerMetrics
from fleetlight.indexer.reconcile.audit import Auditor
from fleetlight.indexer.reconcile.cell_repair import CellRepair
from fleetlight.indexer.reconcile.sealer import Sealer
from fleetlight.indexer.settings import IndexerSettings
from fleetlight.indexer.stream.consumer import MessageSource
from fleetlight.indexer.stream.follower import FollowerParts
from fleetlight.indexer.stream.service import IndexerService
from fleetlight.indexer.transform.documents import to_document
from fleetlight.indexer.writing.leases import CellLeases
from fleetlight.query.filters import EVERYTHING
from fleetlight.query.page import PageRequest
from fleetlight.query.sort import SortOrder
from fleetlight.resources.clock import system_clock
from fleetlight.resources.indexed_items import INDEXED_ITEMS
from fleetlight.resources.instance import INSTANCE_FIELDS
from tests.support.fleets.instance_operations import InstanceOperations

INDEXER = IndexerSettings(batch_max_messages=50, batch_wait_s=0.02, hole_timeout_s=0.3, retry_wait_max_s=0.2)
RELAY = RelaySettings(heartbeat_interval_s=0.05, poll_interval_s=0.01, retry_wait_max_s=0.1)


@dataclass
class World:
    """fleet, cell, engine: of one native cell. index: where its instances are to be found."""

    fleet_url: str
    fleet: Fleet
    cell: Cell
    engine: Engine
    operations: InstanceOperations
    index: IndexSettings

    @contextmanager
    def relaying(
        self,
        loses: Callable[[Message], bool] = lambda _: False,
        *,
        signs: bool = True,
        fleet: Fleet | None = None,
        traces: Traces | None = None,
    ) -> Iterator[None]:
        """loses: says of each message whether the bus loses it. signs: as relays do that know of keys.

        fleet: who else has the cell, and knows with which key.
        """
        with relaying(
            self.engine,
            self.cell,
            fleet or self.fleet,
            lambda message: None if loses(message) else message,
            signs=signs,
            traces=traces,
        ):
            yield

    @contextmanager
    def indexing(self, bus: BusSettings | None = None, *, traces: Traces | None = None) -> Iterator[IndexerService]:
        with indexing(self.fleet, self.index, bus=bus, traces=traces) as service:
            yield service

    @contextmanager
    def auditing(self, service: IndexerService) -> Iterator[None]:
        """The audit of what the service follows, as fast as it can."""
        settings = INDEXER.model_copy(update={"audit_interval_s": 0.1, "audit_share": 1})
        with (
            closing(open_writer(self.index)) as writer,
            closing(CellLeases(self.fleet.open_leases("test repair"))) as leases,
        ):
            repair = _repair(self.fleet, writer, leases)
            auditor = Auditor(lambda: service.audited, repair, settings, IndexerMetrics(CollectorRegistry()))
            with in_thread(auditor.run):
                yield

    def rows(self) -> Sequence[InstanceRow]:
        with closing(open_changelog_adapter(self.cell)) as adapter:
            return adapter.read_page(PageRequest(EVERYTHING, SortOrder.of(INSTANCE_FIELDS, ()), 100_000))

    def published_sequence(self) -> int:
        with closing(open_changelog_adapter(self.cell)) as adapter:
            return adapter.published_sequence()

    def has_published_everything(self) -> bool:
        waiting = select(func.count()).select_from(changes).where(changes.c.published_at.is_(None))
        with self.engine.connect() as connection:
            return connection.execute(waiting).scalar_one() == 0

    def documents(self, uuids: Sequence[str]) -> dict[str, Document]:
        with closing(open_writer(self.index)) as reader:
            return dict(reader.read(uuids))

    def progress(self) -> CellProgress | None:
        with closing(open_writer(self.index)) as reader:
            return reader.load_progress().get(self.cell.uuid)

    def index_equals_cell(self) -> bool:
        """Whether the index has every row of the cell, equal in every field that it keeps, and says so."""
        rows = self.rows()
        progress = self.progress()
        assert progress is not None
        assert progress.is_complete
        assert progress.watermark == self.published_sequence()
        documents = self.documents([row.uuid for row in rows])
        assert {uuid: document.version for uuid, document in documents.items()} == {
            row.uuid: row.revision for row in rows
        }
        for row in rows:
            assert documents[row.uuid].record == to_document(row.cell_uuid, row.revision, row.record).record
        return True

    def index_has_the_items(self) -> bool:
        """Whether the index has every item of the cell that an index may have, and says so."""
        with closing(open_writer(self.index)) as reader, closing(open_changelog_adapter(self.cell)) as adapter:
            for item_type in INDEXED_ITEMS:
                assert reader.are_items_whole(item_type, self.cell.uuid)
                documents = reader.items(item_type, self.cell.uuid)
                living = {uuid: each for uuid, each in documents.items() if not each.record["deleted"]}
                rows = {row.uuid: row for row in adapter.item_rows(item_type).rows}
                assert {uuid: (document.version, document.record) for uuid, document in living.items()} == {
                    uuid: (row.revision, row.record) for uuid, row in rows.items()
                }
        return True


def _repair(fleet: Fleet, writer: IndexWriter, leases: CellLeases) -> CellRepair:
    return CellRepair(
        fleet.cells,
        open_changelog_adapter,
        open_adapter,
        writer=writer,
        leases=leases,
        owners=fleet,
        journals=fleet.journals,
        clock=system_clock,
    )


@contextmanager
def indexing(
    fleet: Fleet,
    index: IndexSettings,
    settings: IndexerSettings = INDEXER,
    *,
    lists_delay_s: float = 0,
    bus: BusSettings | None = None,
    traces: Traces | None = None,
) -> Iterator[IndexerService]:
    """An indexer of all cells of a fleet, and the sealer of its index, in threads.

    lists_delay_s: see fleetlight.indexer.stream.follower.FollowerParts; none where nobody lists.
    """

    def open_receiver(cell: Cell) -> MessageSource:
        return Receiver(cell.transport_url, cell.uuid, settings.prefetch, bus) if cell.transport_url else NoBus()

    keys, producers = Keyring(fleet.cell_keys), ProducerKeyring(fleet.producer_keys)
    keys.refresh()  # as processes do when they begin

    def cells() -> Sequence[Cell]:
        producers.refresh()
        return fleet.cells()

    with closing(open_writer(index)) as writer, closing(CellLeases(fleet.open_leases("test"))) as leases:
        # The service does so too, but tests look at the index at once.
        writer.prepare()
        parts = FollowerParts(
            open_receiver=open_receiver,
            writer=writer,
            leases=leases,
            owners=fleet,
            is_of_relay=keys.is_of_relay,
            announcer=producers.announcer,
            failures=fleet.failures,
            journals=fleet.journals,
            settings=settings,
            metrics=IndexerMetrics(CollectorRegistry()),
            lists_delay_s=lists_delay_s,
            traces=traces,
            note_restored=fleet.restored_cells.record,
        )
        service = IndexerService(
            cells, parts, open_adapter=open_changelog_adapter, refresh_interval_s=0.05, cells_refresh_interval_s=0.2
        )
        with in_thread(service.run), in_thread(Sealer(_repair(fleet, writer, leases), parts.metrics).run):
            yield service


class _DisturbedPublisher:
    def __init__(self, cell: Cell, arrives: Callable[[Message], Message | None]) -> None:
        self._publisher = Publisher(cell.transport_url, cell.uuid)
        self._arrives = arrives

    def publish(self, messages: Sequence[Message]) -> None:
        self._publisher.publish([arrived for each in messages if (arrived := self._arrives(each)) is not None])

    def close(self) -> None:
        self._publisher.close()


@contextmanager
def relaying(
    engine: Engine,
    cell: Cell,
    fleet: Fleet,
    arrives: Callable[[Message], Message | None],
    *,
    signs: bool = True,
    traces: Traces | None = None,
) -> Iterator[None]:
    """The relay of a cell in a thread. arrives: what comes of each message, None if the bus loses it.

    signs: as relays do that know of keys.
    """
    keys = Keyring(fleet.cell_keys)
    keys.refresh()  # as processes do when they begin
    with closing(_DisturbedPublisher(cell, arrives)) as publisher:
        sign = partial(keys.sign, cell.uuid) if signs else (lambda message: message)
        relay = Relay(engine, cell, publisher, RELAY, sign=sign, traces=traces)
        with in_thread(relay.run):
            yield


@contextmanager
def new_world(
    folder: Path, transport_url: str, cell_uuid: str, index: IndexSettings, cell_url: str | None = None
) -> Iterator[World]:
    """A fleet of one cell, in SQLite files of `folder` unless `cell_url` says where the cell is."""
    fleet_url = f"sqlite:///{folder}/fleet.db"
    fleet_engine = create_database_engine(fleet_url)
    upgrade_fleet(fleet_engine)
    fleet = Fleet(fleet_engine)
    cell_url = cell_url or f"sqlite:///{folder}/cell.db"
    cell = fleet.add_cell("one", CellKind.NATIVE, cell_url, transport_url, uuid=cell_uuid)
    engine = create_database_engine(cell.database_url)
    upgrade_cell(engine)
    yield World(fleet_url, fleet, cell, engine, InstanceOperations(engine, fleet, cell), index)
    engine.dispose()
    fleet.close()


@contextmanager
def in_thread(run: Callable[[Event], None]) -> Iterator[None]:
    stop = Event()
    thread = Thread(target=run, args=(stop,))
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(60)
        assert not thread.is_alive()
