"""What follows the cells, as long as a process wants it to: the relay of a cell, and the indexer."""

from contextlib import closing
from threading import Event

from prometheus_client import CollectorRegistry

from cells.adapters import open_changelog_adapter
from cells.database import create_database_engine
from cells.fleet import Fleet
from cells.model import Cell
from cells.relay import Relay
from cli.settings import Settings
from indexer.backends import open_writer
from indexer.metrics import IndexerMetrics
from indexer.service import IndexerService
from notifications.bus import Publisher, Receiver


def run_relay(settings: Settings, cell: Cell, stop: Event) -> None:
    """Relay the changes of one native cell until `stop` is set; connections of its own."""
    engine = create_database_engine(cell.database_url)
    publisher = Publisher(cell.transport_url, cell.uuid, settings.bus)
    try:
        Relay(engine, cell, publisher, settings.relay).run(stop)
    finally:
        publisher.close()
        engine.dispose()


def run_indexer(settings: Settings, fleet: Fleet, stop: Event) -> None:
    """Bring the changes of all cells into the index until `stop` is set.

    Raises IndexRequestError when the index refuses what the indexer needs.
    """

    def open_receiver(cell: Cell) -> Receiver:
        return Receiver(cell.transport_url, cell.uuid, settings.indexer.prefetch, settings.bus)

    with closing(open_writer(settings.index)) as writer:
        IndexerService(
            cells=fleet.cells,
            open_adapter=open_changelog_adapter,
            open_receiver=open_receiver,
            writer=writer,
            settings=settings.indexer,
            refresh_interval_s=settings.index.refresh_interval_s,
            cells_refresh_interval_s=settings.fleet.cells_refresh_interval_s,
            metrics=IndexerMetrics(CollectorRegistry()),
        ).run(stop)
