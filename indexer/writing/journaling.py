"""The journal of a cell that numbers nothing, for watches: it has each change before the index has it.

The index never waits for that. While the fleet database, where journals are, is away, the index is written all the
same; then the journal is not one of this index any more, which is noted in the index, and a new one begins as soon as
that can be. Watches learn of that (docs/decisions/0004).
"""

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Protocol

import structlog

from fleetlight.cells.epochs import Position
from fleetlight.cells.errors import FleetUnreachableError
from fleetlight.cells.fleet.journals import DetectedChange
from fleetlight.indexer.backends.base import Document, WriteResult
from fleetlight.indexer.writing.announced import AnnouncedStore
from fleetlight.indexer.writing.retrying_writer import WritesAndReads
from fleetlight.resources.clock import Clock, system_clock

_log = structlog.get_logger(__name__)

JOURNALS = "journal"
"""The kind of state that has the epoch of the journal which has all that is in this index, by cell uuid.

With the number that it had reached: a journal that goes less far went back with the fleet database.
"""

_INTERVAL_S = 2.0
_WENT_BACK = "it went back to an older copy"


class JournalStore(Protocol):
    """What is needed of fleetlight.cells.fleet.journals.Journals; raises FleetUnreachableError."""

    @property
    def announced(self) -> AnnouncedStore: ...

    def position(self, cell_uuid: str) -> Position | None: ...
    def start_over(self, cell_uuid: str) -> str: ...
    def append(self, cell_uuid: str, detected_changes: Sequence[DetectedChange]) -> Position | None: ...
    def confirm(self, cell_uuid: str, at: int) -> None: ...


class StateStore(Protocol):
    """The part of an IndexWriter that keeps facts about work on the index."""

    def save_state(self, kind: str, values: Mapping[str, object | None]) -> None: ...
    def load_state(self, kind: str) -> Mapping[str, Any]: ...


class CellJournal:
    """The journal of one cell; threads may share one. Every call raises what the index raises.

    state: of the index that the findings go to.
    """

    def __init__(
        self, cell_uuid: str, journals: JournalStore, state: StateStore, *, clock: Clock = system_clock
    ) -> None:
        self._cell_uuid = cell_uuid
        self._journals = journals
        self._state = state
        self._clock = clock
        self._due_s = 0.0
        self._reached: Position | None = None

    def record(self, detected_changes: Sequence[DetectedChange]) -> None:
        """These are going to be in the index."""
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
        """The index gets, or may have got, what the journal does not have: a new one has to begin."""
        self._state.save_state(JOURNALS, {self._cell_uuid: None})

    def of_comparison(self, *, was_whole: bool) -> "CellJournal | None":
        """The journal for a comparison. was_whole: whether the index has had all of the cell before.

        None if not, since the whole cell would be recorded: its journal begins when the index has it.
        """
        if was_whole:
            return self
        self.break_off()
        return None

    def record_deleted(self, documents: Iterable[Document]) -> None:
        """These are going to be removed from the index."""
        # It has to be newer than what was recorded of the document itself.
        self.record([DetectedChange(each.id, each.version + 1, each.record, is_gone=True) for each in documents])

    def keep_up(self) -> None:
        """Say that the cell is followed, and begin a new journal if the old one is not one of this index.

        So it is when the fleet database was restored from an older copy. Call it often: it does something every two
        seconds.
        """
        if time.monotonic() < self._due_s:
            return
        self._due_s = time.monotonic() + _INTERVAL_S
        known = _position(self._state.load_state(JOURNALS).get(self._cell_uuid))
        try:
            now = self._journals.position(self._cell_uuid)
            if known is None or now is None or known.epoch != now.epoch or _went_back(known, now):
                now = Position(self._journals.start_over(self._cell_uuid), 0)
            if now != known:
                self._state.save_state(JOURNALS, {self._cell_uuid: [now.epoch, now.sequence]})
            self._reached = now
            self._journals.confirm(self._cell_uuid, self._clock())
        except FleetUnreachableError as error:
            # No watch learns that the cell is followed, and that is right.
            _log.debug("indexer.journal_unreachable", cell=self._cell_uuid, reason=error.reason)


def _position(saved: object) -> Position | None:
    """None while nothing is saved: then the journal begins anew."""
    return Position(*saved) if isinstance(saved, list) else None


def _went_back(known: Position | None, now: Position) -> bool:
    return known is not None and known.epoch == now.epoch and now.sequence < known.sequence


class JournalingWriter:
    """Writes documents after the journal has them."""

    def __init__(self, writer: WritesAndReads, journal: CellJournal) -> None:
        self._writer = writer
        self._journal = journal

    def write(self, documents: Iterable[Document]) -> WriteResult:
        documents = list(documents)
        self._journal.record([DetectedChange(each.id, each.version, each.record) for each in documents])
        return self._writer.write(documents)

    def read(self, ids: Collection[str]) -> Mapping[str, Document]:
        return self._writer.read(ids)
