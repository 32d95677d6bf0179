"""The stage of most tests of the indexer: a cell, its bus, the index and what the fleet database keeps, in memory."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from threading import Event
from typing import Any, Generic, TypeVar

import msgspec
from prometheus_client import CollectorRegistry

from fleetlight.bus.bus import Message
from fleetlight.cells.errors import CellUnreachableError
from fleetlight.cells.fleet.producer_keys import Announcer
from fleetlight.cells.model import Cell, CellAdapter
from fleetlight.indexer.backends.base import CellProgress, IndexWriter
from fleetlight.indexer.errors import DeadLetterReason
from fleetlight.indexer.extra_fields import Extra
from fleetlight.indexer.metrics import IndexerMetrics
from fleetlight.indexer.reconcile.cell_repair import CellRepair
from fleetlight.indexer.reconcile.dead_letter_retries import RetryResult, retry
from fleetlight.indexer.reconcile.differences import DifferenceKind, Verification
from fleetlight.indexer.reconcile.fill import CellRows
from fleetlight.indexer.reconcile.native_cell import NativeComparison
from fleetlight.indexer.reconcile.rebuild import RebuildParts
from fleetlight.indexer.reconcile.reconcile import verify
from fleetlight.indexer.reconcile.recorded_sync import sync_and_record
from fleetlight.indexer.settings import IndexerSettings
from fleetlight.indexer.stream.consumer import MessageSource
from fleetlight.indexer.stream.external_follower import ExternalFollower
from fleetlight.indexer.stream.follower import FollowerParts
from fleetlight.indexer.transform.documents import to_document
from fleetlight.indexer.writing.dead_letters import DeadLetter, to_failure
from fleetlight.indexer.writing.leases import CellLeases
from fleetlight.indexer.writing.throttle import Throttle
from fleetlight.resources.clock import system_clock
from tests.support.fleets.indexer_worlds import in_thread
from tests.support.memory.memory_bus import MemoryBus
from tests.support.memory.memory_cell import MemoryCell
from tests.support.memory.memory_fleet import MemoryFailures, MemoryJournals, MemoryLeases, MemoryOwners
from tests.support.memory.memory_generations import MemoryGenerations
from tests.support.memory.memory_index import MemoryIndex, versions
from tests.support.played.nova_cell import MemoryNovaCell

CellT = TypeVar("CellT", bound=MemoryCell | MemoryNovaCell)
NativeT = TypeVar("NativeT", bound=MemoryCell)


class Stage(Generic[CellT]):
    """One cell and all that an indexer works with. Each of them can be made to fail.

    now: the fleet's clock, in microseconds. announcer: who makes the messages that the relay does not make. registry:
    the metrics of whatever runs here.
    """

    def __init__(self, cell: CellT) -> None:
        self.cell = cell
        self.bus = MemoryBus()
        self.index = MemoryIndex()
        self.failures = MemoryFailures()
        self.journals = MemoryJournals()
        self.leases = MemoryLeases()
        self.owners = MemoryOwners()
        self.registry = CollectorRegistry()
        # As late as what the cell will announce, however long ago this module was imported.
        self.now = system_clock()
        self.announcer: Announcer = "rack-agent"

    def sample(self, name: str, **labels: str) -> float | None:
        """The value of a metric of the indexer, of the cell unless it has no labels."""
        return self.registry.get_sample_value(f"fleetlight_indexer_{name}", labels)

    def messages(self, outcome: str) -> float:
        """How many messages have come to that."""
        return self.sample("messages_total", cell=self.cell.cell.uuid, outcome=outcome) or 0

    def fail(
        self,
        message: Message,
        reason: DeadLetterReason = DeadLetterReason.REJECTED,
        detail: str = "the name is too long",
    ) -> str:
        """A message has become a failure, whose id this returns."""
        failure = to_failure(self.cell.cell.uuid, DeadLetter(message, reason, detail), self.now)
        self.failures.add([failure])
        return failure.id

    def retry(self) -> list[RetryResult]:
        """Try all failures again, a microsecond later."""
        failures = list(self.failures.kept.values())
        results = retry(
            failures,
            self.cell,
            self.index,
            self.failures,
            self.journals,
            owners=self.owners,
            announcer=lambda *_: self.announcer,
            clock=lambda: self.now + 1,
        )
        assert [result.failure_id for result in results] == [failure.id for failure in failures]
        return results


NovaStage = Stage[MemoryNovaCell]


class NativeStage(Stage[NativeT]):
    """A stage whose cell numbers its changes."""

    def open_cell(self, cell: Cell) -> NativeT:
        if self.cell.is_away:
            raise CellUnreachableError(cell.name, "it is away")
        return self.cell

    def write_rows(self, extra: Extra | None = None) -> None:
        """All rows of the cell are in the index as they are now, and can be found."""
        uuid = self.cell.cell.uuid
        self.index.write([to_document(uuid, row.revision, row.record, extra) for row in self.cell.rows.values()])
        self.index.make_searchable()

    def follow(self) -> None:
        """Everything that the cell has announced is in the index, as an indexer leaves it."""
        self.write_rows()
        self.index.save_progress([CellProgress(self.cell.cell.uuid, self.cell.last_sequence, 0, is_complete=True)])

    def sync(self, *, batch_size: int = 3, horizon: int = 0) -> None:
        """Somebody syncs the cell, as the indexer that was active before, or a command."""
        sync_and_record(self.cell.cell.uuid, CellRows(self.cell, batch_size=batch_size, horizon=horizon), self.index)

    def lose(self, uuid: str) -> None:
        """The index has the instance no more."""
        del self.index.documents[uuid]
        self.index.make_searchable()

    def alter(self, uuid: str, **changes: Any) -> None:
        """The document of an instance is another one."""
        self.index.documents[uuid] = msgspec.structs.replace(self.index.documents[uuid], **changes)
        self.index.make_searchable()

    def is_right(self) -> bool:
        """Whether the index has each row of the cell, and nothing else."""
        return versions(self.index) == self.cell.versions()

    def verify(self, *, repair: bool = False, catch_up_timeout_s: float = 10, **options: Any) -> Verification:
        """options: of NativeComparison."""
        comparison = NativeComparison(
            self.cell, self.index, catch_up_timeout_s=catch_up_timeout_s, owners=self.owners, **options
        )
        return verify(comparison, repair=repair)

    @property
    def repair(self) -> CellRepair:
        """What sealer and audit repair the cell with."""
        return CellRepair(
            lambda: [self.cell.cell],
            self.open_cell,
            self.open_cell,
            writer=self.index,
            leases=CellLeases(self.leases),
            owners=self.owners,
            journals=self.journals,
            clock=system_clock,
        )

    def rebuild_parts(self, generations: MemoryGenerations) -> RebuildParts:
        return RebuildParts(
            cells=lambda: [self.cell.cell],
            open_adapter=self.open_cell,
            current=self.index,
            generations=generations,
            leases=CellLeases(self.leases),
            owners=self.owners,
            pace=Throttle(None, Event()),
            batch_size=3,
            parallel=2,
        )


def kinds(verification: Verification) -> dict[str, DifferenceKind]:
    """The kind of each difference, by the uuid of its instance."""
    return {difference.uuid: difference.kind for difference in verification.differences}


def follower_parts(
    writer: IndexWriter,
    settings: IndexerSettings,
    open_receiver: Callable[[Cell], MessageSource],
    registry: CollectorRegistry | None = None,
    **others: Any,
) -> FollowerParts:
    """What followers of cells without a relay work with, all of it in memory but for what is given."""
    parts = FollowerParts(
        open_receiver,
        writer,
        CellLeases(MemoryLeases()),
        MemoryOwners(),
        lambda _cell, _headers, _body: False,
        MemoryFailures(),
        MemoryJournals(),
        settings,
        IndexerMetrics(registry or CollectorRegistry()),
    )
    return replace(parts, **others)


@contextmanager
def following(
    cell: Cell, parts: FollowerParts, open_adapter: Callable[[Cell], CellAdapter], saved: CellProgress | None = None
) -> Iterator[ExternalFollower]:
    """A follower of a cell that does not number its changes. saved: what the last one had reached."""
    saved = saved or CellProgress(cell.uuid, 0, 0, is_complete=False)
    follower = ExternalFollower(cell, saved, parts, open_adapter)
    with in_thread(follower.run):
        yield follower
