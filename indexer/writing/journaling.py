"""The journal of a cell without numbered changes, for watches: each change is in it before it is in the index.

The index does not wait for the journal. While the fleet database, which holds journals, is down, the indexer writes
changes to the index alone, and notes there that the journal is broken off; it begins a new one as soon as it can, and
watches notice (docs/decisions/0004).
"""

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Protocol

import structlog

from fleetlight.cells.epochs import Position
from fleetlight.cells.errors import FleetUnreachableError
from fleetlight.cells.fleet.journals import DetectedChange
from fleetlight.indexer.backends.base import Document, IndexWriter, WriteResult
from fleetlight.indexer.writing.announced import AnnouncedStore
from fleetlight.indexer.writing.retrying_writer import WritesAndReads
from fleetlight.resources.clock import Clock, system_clock

_log = structlog.get_logger(__name__)

JOURNALS = "journal"
"""The kind of state that has, by cell uuid, the epoch of the journal with all changes of this index, and the sequence
that it had reached: a journal with a lower one was restored with an older copy of the fleet database."""

_INTERVAL_S = 2.0
_WENT_BACK = "it went back to an older copy"


class JournalStore(Protocol):
    """The part of fleetlight.cells.fleet.journals.Journals that the indexer uses; raises FleetUnreachableError."""

    @property
    def announced(self) -> AnnouncedStore: ...

    def position(self, cell_uuid: str) -> Position | None: ...
    def start_over(self, cell_uuid: str) -> str: ...
    def append(self, cell_uuid: str, detected_changes: Sequence[DetectedChange]) -> Position | None: ...
    def confirm(self, cell_uuid: str, at: int) -> None: ...


class CellJournal:
    """The journal of one cell; thread-safe. Every call raises what the index raises.

    state: the index that gets the changes.
    """

    def __init__(
        self, cell_uuid: str, journals: JournalStore, state: IndexWriter, *, clock: Clock = system_clock
    ) -> None:
        self._cell_uuid = cell_uuid
        self._journals = journals
        self._state = state
        self._clock = clock
        self._due_s = 0.0
        self._reached: Position | None = None

    def record(self, detected_changes: Sequence[DetectedChange]) -> None:
        """Record changes before they are written to the index; break off if the fleet database is down."""
        try:
            now = self._journals.append(self._cell_uuid, detected_changes)
        except FleetUnreachableError as error:
            _log.warning("indexer.journal_broken_off", cell=self._cell_uuid, reason=error.reason)
            self.break_off()
            return
        if now is not None and _went_back(self._reached, Position(now.epoch, now.sequence - len(detected_changes))):
            _log.warning("indexer.journal_broken_off", cell=self._cell_uuid, reason=_WENT_BACK)
            self.break_off()
        self._reached = now

    def break_off(self) -> None:
        """Note that the index gets, or may have, changes that the journal lacks, so that a new journal must begin."""
        self._state.save_state(JOURNALS, {self._cell_uuid: None})

    def of_comparison(self, *, was_whole: bool) -> "CellJournal | None":
        """The journal for a comparison; None if the index never had the whole cell, which the comparison would record
        otherwise: then a new journal begins after it. was_whole: whether the index had the whole cell before.
        """
        if was_whole:
            return self
        self.break_off()
        return None

    def record_deleted(self, documents: Iterable[Document]) -> None:
        """Record removals before documents are removed from the index."""
        # A removal needs a higher version than the recorded document.
        self.record([DetectedChange(each.id, each.version + 1, each.record, is_gone=True) for each in documents])

    def keep_up(self) -> None:
        """Confirm that the cell is followed, and begin a new journal if the old one is broken off, or the fleet
        database was restored from an older copy. Call it often: it works every two seconds.
        """
        if time.monotonic() < self._due_s:
            return
        self._due_s = time.monotonic() + _INTERVAL_S
        saved = self._state.load_state(JOURNALS).get(self._cell_uuid)
        known = Position(*saved) if isinstance(saved, list) else None
        try:
            now = self._journals.position(self._cell_uuid)
            if known is None or now is None or known.epoch != now.epoch or _went_back(known, now):
                now = Position(self._journals.start_over(self._cell_uuid), 0)
            if now != known:
                self._state.save_state(JOURNALS, {self._cell_uuid: [now.epoch, now.sequence]})
            self._reached = now
            self._journals.confirm(self._cell_uuid, self._clock())
        except FleetUnreachableError as error:
            # Watches then do not count the cell as followed, which is right.
            _log.debug("indexer.journal_unreachable", cell=self._cell_uuid, reason=error.reason)


def _went_back(known: Position | None, now: Position) -> bool:
    return known is not None and known.epoch == now.epoch and now.sequence < known.sequence


class JournalingWriter:
    """Records documents in the journal, then writes them."""

    def __init__(self, writer: WritesAndReads, journal: CellJournal) -> None:
        self._writer = writer
        self._journal = journal

    def write(self, documents: Iterable[Document]) -> WriteResult:
        """As the writer; documents that it then refuses are in the journal, too."""
        documents = list(documents)
        self._journal.record([DetectedChange(each.id, each.version, each.record) for each in documents])
        return self._writer.write(documents)

    def read(self, ids: Collection[str]) -> Mapping[str, Document]:
        return self._writer.read(ids)
