"""The interface of index backends; one contract test suite holds them all to it.

Writing (`IndexWriter`) blocks and belongs to the indexer; searching (`IndexSearcher`) is asynchronous and belongs to
the API, whose account cannot write. Both raise IndexUnavailableError when the store does not answer, IndexRequestError
when it refuses, and nothing else.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import msgspec

from fleetlight.cells.digests import RangeDigest
from fleetlight.cells.model import LogPosition
from fleetlight.indexer.backends.seal import CHECKED_BY_SEARCHES, SEAL, Seal, SealState
from fleetlight.indexer.errors import IndexUnavailableError
from fleetlight.indexer.extra_fields import Extra
from fleetlight.query.counts import CountRequest, Counts, Group
from fleetlight.query.page import PageRequest
from fleetlight.resources.clock import Clock
from fleetlight.resources.fields import Record
from fleetlight.resources.instance import INSTANCE_FIELDS
from fleetlight.views.compute.view import View
from fleetlight.views.projection import Projection

OLDEST_TIME_VERSION = 1_000_000_000_000_000
"""A version from here on is a time in microseconds (2001 and later); below it is a revision, which never gets here."""


def is_time(version: int) -> bool:
    """Whether a document of this version comes from notifications without a revision."""
    return version >= OLDEST_TIME_VERSION


class Document(msgspec.Struct, frozen=True, gc=False):
    """What the index keeps of one instance, or of an item of another type (fleetlight.indexer.transform.other_items).

    version: the revision of the instance; an older one never overwrites a newer one.
    record: field name -> stored value, every field of INSTANCE_FIELDS present; of another type its stored record, with
        `deleted` and `deleted_at`.
    view: the ready pieces of the answers that show this instance (fleetlight.views.compute.view); other items have
        none.
    extra: what a newer producer says of it (fleetlight.indexer.extra_fields).
    """

    cell_uuid: str
    version: int
    record: Record
    view: View
    extra: Extra | None = None
    item_type: str = INSTANCE_FIELDS.name

    @property
    def id(self) -> str:
        return str(self.record["uuid"])

    @property
    def is_instance(self) -> bool:
        return self.item_type == INSTANCE_FIELDS.name


MISSHAPEN = (msgspec.MsgspecError, ValueError, TypeError, LookupError, AttributeError)
"""What reading or rendering a document raises that another program has written."""


@dataclass(frozen=True, slots=True)
class Rejection:
    """A document that the index will never take as it is, and why."""

    document: Document
    reason: str


@dataclass(frozen=True, slots=True)
class WriteResult:
    """applied: written. stale: something as new or newer was there, which is success. rejected: never possible.

    schema_violations: extra fields that contradict their schemas, and so are in their documents but cannot be searched
    for.
    """

    applied: int
    stale: int
    rejected: tuple[Rejection, ...] = ()
    schema_violations: int = 0


class PartlyWrittenError(IndexUnavailableError):
    """The index could not take the documents `remaining` now; `result` is what came of the others."""

    def __init__(self, cause: IndexUnavailableError, result: WriteResult, remaining: Sequence[Document]) -> None:
        super().__init__(str(cause))
        self.cause = cause
        self.result = result
        self.remaining = remaining


class LogState(msgspec.Struct, frozen=True):
    """How a cell that numbers nothing is followed, where its databases may have a log.

    positions: up to where the logs are in the index, by the address of each server. problem: why they are not read, and
        what mends that, as a sentence: the cell is compared meanwhile. None while they are read.
    """

    positions: dict[str, LogPosition] = msgspec.field(default_factory=dict)
    problem: str | None = None

    @classmethod
    def of(cls, kept: object) -> "LogState | None":
        """What the index keeps of a cell (COMMIT_LOGS); None where that is nothing, or of another version."""
        try:
            return None if kept is None else msgspec.convert(kept, cls)
        except msgspec.ValidationError:
            return None


@dataclass(frozen=True, slots=True)
class CellProgress:
    """How far the index follows one cell.

    watermark: every change up to this sequence is searchable.
    fresh_as_of: microseconds since the epoch; the index is known to be complete up to this moment of the cell's clock.
    is_complete: rows that were there before the first change have been synced too (or there were none).
    horizon: rows that fleetlight.query.retention calls forgotten need not be in the index. Kept apart from the rest, by
        fleetlight.indexer.reconcile.retention; only searchers report it.
    epoch: of the cell, under which the watermark counts, or an earlier one (fleetlight.indexer.writing.epoch_history).
    problem: why lists do without the index of a cell that it has had whole, as a sentence.
    log: None of a cell whose databases have none that an indexer has looked at. All three are kept as the horizon is.
    """

    cell_uuid: str
    watermark: int
    fresh_as_of: int
    is_complete: bool
    horizon: int = field(default=0, compare=False)
    epoch: str | None = field(default=None, compare=False)
    problem: str | None = field(default=None, compare=False)
    log: LogState | None = field(default=None, compare=False)

    def with_facts(self, facts: Mapping[tuple[str, str], Any], seal: SealState = CHECKED_BY_SEARCHES) -> "CellProgress":
        """As searchers report it; facts: state by its kind, one of CELL_FACTS, and the uuid of the cell.

        While the index of a cell is repaired it does not have all rows, even if an indexer that has not noticed the
        restore says so; nor does it while rows make place for others. What another program may have written since the
        seal held last is not known to be whole.
        """
        epoch = facts.get((EPOCHS, self.cell_uuid))
        problem = None
        if seal.reasons:
            problem = f"{seal.reasons[0]}; an indexer compares it with all cells"
        elif epoch == BEING_RECONCILED:
            problem = "the cell was restored, and its index is being made equal to it"
        elif (REPAIRS, self.cell_uuid) in facts:
            problem = (
                "the index was found to differ from the cell, and is repaired by an indexer, or by "
                "`fleetlight index verify --repair`"
            )
        held_at = self.fresh_as_of if seal.held_at is None else seal.held_at
        return replace(
            self,
            fresh_as_of=min(self.fresh_as_of, held_at),
            is_complete=self.is_complete and problem is None,
            horizon=int(facts.get((HORIZONS, self.cell_uuid), 0)),
            epoch=epoch,
            problem=problem,
            log=LogState.of(facts.get((COMMIT_LOGS, self.cell_uuid))),
        )


class FoundRow(msgspec.Struct, frozen=True, gc=False):
    """One found instance: where it sorts, and its item as the answer shows it.

    position: stored values of the order's keys, uuid last.
    A Struct, since a list makes a thousand of them: with a frozen dataclass the whole page took a quarter longer.
    """

    position: tuple[Any, ...]
    item: bytes


class FoundPage(msgspec.Struct, frozen=True, gc=False):
    """All rows of a page that has nothing to merge them with.

    items: of `rows` instances, with commas between them. last: the position of the last one; None without rows.
    """

    items: bytes
    rows: int
    last: tuple[Any, ...] | None


def counts_by_cell(found: Iterable[tuple[str, Group, int]], max_groups: int) -> dict[str, Counts]:
    """The answer of IndexSearcher.count. found: uuid of the cell, group, and number; one more than there may be."""
    groups: dict[str, dict[Group, int]] = {}
    is_partial = False
    for place, (cell_uuid, group, number) in enumerate(found):
        is_partial = place == max_groups
        if not is_partial:
            groups.setdefault(cell_uuid, {})[group] = number
    return {cell_uuid: Counts(of_cell, is_partial) for cell_uuid, of_cell in groups.items()}


HORIZONS = "horizon"
"""The kind of state that has the horizon of each cell, by its uuid."""

EPOCHS = "epochs"
"""The kind of state that has the epoch of each cell that the index follows (fleetlight.cells.epochs), by the cell's
uuid.
"""

BEING_RECONCILED = "being reconciled"
"""Stands in the place of an epoch while the index of a restored cell is being repaired."""

RECONCILIATIONS = "reconciliations"
"""The kind of state that has, by its uuid, how often the index of a cell was repaired since the cell was restored."""

COMMIT_LOGS = "commit-log"
"""The kind of state that has the LogState of each cell whose databases may have a log, by the cell's uuid."""

REPAIRS = "repairs"
"""The kind of state that has the uuid of each cell from which the index differs, and is not repaired yet."""

CELL_FACTS = (HORIZONS, EPOCHS, REPAIRS, COMMIT_LOGS, SEAL)
"""The kinds of state that CellProgress.with_facts reads."""


def ignore_removed(_rows: int) -> None:
    """For callers that do not show how far a removal is."""


@dataclass(frozen=True, slots=True)
class BareDocument:
    """What an index that this program cannot use has of an instance: its version, and the fields of its program."""

    version: int
    record: Record


class OtherItemStore(Protocol):
    """What an index keeps of items of other types than instances, beside `IndexWriter.write`, which takes them too.

    There are some thousand of a cell, so they are read all at once. What is known of them outlives rebuilds. `purge`
    and `remove_cell` are about them too, and count them not.
    """

    def items(self, item_type: str, cell_uuid: str) -> Mapping[str, Document]:
        """The searchable items of a cell, deleted ones too, by uuid."""

    def remove_items(self, item_type: str, cell_uuid: str, versions: Mapping[str, int]) -> None:
        """Remove items, by uuid, each only if it is not newer than its version here.

        Afterwards an item of any version can be written in their place.
        """

    def mark_items(self, item_type: str, cell_uuid: str, *, are_whole: bool) -> None:
        """Say whether the searchable items are all that the cell has, as of the watermark of the cell; at once."""

    def are_items_whole(self, item_type: str, cell_uuid: str) -> bool:
        """What was said last; False if nothing was."""


class IndexWriter(OtherItemStore, Protocol):
    def prepare(self) -> None:
        """Create what the backend needs, or bring it up to date; idempotent.

        What is missing of an index that was damaged is made anew, and progress that is about a physical index
        that is not there any more is forgotten. Raises IndexVersionError when only a rebuild can bring it up to date;
        state can be saved and loaded then.
        """

    def write(self, documents: Iterable[Document]) -> WriteResult:
        """Write documents, each only if it is newer than what is there. Retries nothing.

        documents: gone through once more when some of them are refused, so it must give the same ones again.
        Raises PartlyWrittenError when only some of them could be written now.
        """

    def make_searchable(self) -> None:
        """Return when everything written so far can be found."""

    def read(self, ids: Collection[str]) -> Mapping[str, Document]:
        """The documents there are among `ids`, in one request, searchable yet or not.

        Those that are damaged are left out, and named in the log.
        """

    def versions(self, ids: Collection[str]) -> Mapping[str, int]:
        """The versions of the documents there are among `ids`, damaged or not; otherwise as `read`."""

    def digests(
        self, cell_uuid: str, prefixes: Sequence[str], length: int, *, horizon: int = 0, external: bool = False
    ) -> Mapping[str, RangeDigest]:
        """Digests of searchable documents of the cell whose uuid begins with one of `prefixes`.

        They are computed by the store, and keyed as in fleetlight.cells.model.ChangelogAdapter, with versions for
        revisions.
        external: of the documents that come from notifications without a revision; else of all others. Those that are
        forgotten at `horizon` (fleetlight.query.retention) are left out. Both are true of `revisions` too.
        """

    def revisions(
        self, cell_uuid: str, prefixes: Sequence[str], *, horizon: int = 0, external: bool = False
    ) -> Mapping[str, int]:
        """The version by uuid of the documents that `digests` is about; about 1,000 at once, not more than 10,000."""

    def count_external(self, cell_uuid: str) -> int:
        """How many searchable documents of the cell come from notifications without a revision."""

    def remove(self, versions: Mapping[str, int]) -> None:
        """Remove documents, by uuid, each only if it is not newer than its version here.

        Afterwards a document of any version can be written in their place.
        """

    def save_progress(self, progress: Sequence[CellProgress]) -> None:
        """Save how far cells are followed.

        Raises IndexReplacedError when the index is no longer the one that `prepare` saw, as `make_searchable` does.
        """

    def load_progress(self) -> Mapping[str, CellProgress]:
        """Progress by cell uuid, of every cell that the index knows."""

    def count_extra_fields(self) -> Mapping[str, int]:
        """How many searchable documents have each extra field; keyed as fleetlight.indexer.extra_fields.Extra.fields
        says.
        """

    def find_extra(self, terms: Sequence[str], limit: int) -> Sequence[str]:
        """At most `limit` uuids of searchable documents that have one of these terms, in order."""

    def save_state(self, kind: str, values: Mapping[str, object | None]) -> None:
        """Keep facts about work on the index, by name, each a value that JSON can express; None forgets one."""

    def load_state(self, kind: str) -> Mapping[str, Any]:
        """The facts of one kind, by name, as JSON gives them back."""

    def purge(self, cell_uuid: str, horizon: int, on_batch: Callable[[int], None] = ignore_removed) -> int:
        """Remove documents of the cell that are forgotten at `horizon` (fleetlight.query.retention), in batches.

        on_batch: called after each batch with the number of rows removed so far. Returns how many there were.
        """

    def allow_writes(self) -> None:
        """Open what was closed, and end what keeps documents from being written: a pause that a killed rebuild has
        left (Generations.switch), or what was blocked by hand. Call only if no rebuild pauses now.

        What a store does by itself while its disk is full it also ends by itself.
        """

    def remove_cell(self, cell_uuid: str, on_batch: Callable[[int], None] = ignore_removed) -> int:
        """Forget a cell: its progress first, so that no list takes the rest for the whole, then its rows in batches.

        on_batch: called after each batch with the number of rows removed so far. Returns how many rows were removed,
        those that were not searchable yet among them; no process may write rows of the cell meanwhile. What is cut off
        can be repeated. Afterwards the same instances can be written again, whatever their versions.
        """

    def open_seal(self, clock: Clock) -> Seal:
        """The seal of the index that is written to; closed with this. clock: of the fleet."""

    def close(self) -> None: ...


class Generations(Protocol):
    """The physical indexes behind an index: the current one, the next one while it is filled, and the previous one.

    One process at a time may use it (fleetlight.indexer.writing.leases). All others read and write the current one and
    need not know.
    """

    def has_next(self) -> bool: ...

    def has_previous(self) -> bool: ...

    def names(self) -> tuple[str | None, str | None]:
        """What the current and the previous one are called on their server; None for none, or one without a name."""

    def is_unusable(self) -> bool:
        """Whether the current one is of a version that this program cannot use, older or newer."""

    def bare_documents(self, cell_uuid: str) -> Iterator[Sequence[BareDocument]]:
        """Of an unusable current one, in batches: all of the cell that came from notifications without a revision."""

    def create_next(self) -> None:
        """An empty one with the mapping of this program; there must be none."""

    def take_previous_as_next(self) -> None:
        """The previous one becomes the next one, without progress; there must be one, and no next one.

        Raises RebuildError if it is unusable.
        """

    def open_next(self) -> IndexWriter:
        """The writing side of the next one, with a progress of its own; to be closed before this is."""

    def switch(self, finish: Callable[[], None]) -> None:
        """Make the next one the current one, in one step for all readers, and keep the current one as the previous one.

        finish: called while no process can write to the current one; it brings the next one up to date. Writers get
        IndexUnavailableError meanwhile, readers go on. What it raises ends the pause, and nothing has changed.
        A previous one that was kept until now is dropped. Raises RebuildError when a person has blocked writing.
        """

    def drop_next(self) -> None:
        """Drop it if there is one."""

    def drop_previous(self) -> None:
        """Drop it if there is one."""

    def close(self) -> None: ...


class IndexSearcher(Protocol):
    async def search(self, request: PageRequest, cells: Collection[str], projection: Projection) -> Sequence[FoundRow]:
        """At most `request.limit` rows of the `cells` (uuids), in order.

        Items are made where the rows are read, in a thread: their bytes are still near the processor there, and the
        loop is free for others.
        Raises NotExpressibleError (fleetlight.query.errors) when the filter has a leaf that this index cannot answer
        exactly.
        """

    async def page(self, request: PageRequest, cells: Collection[str], projection: Projection) -> FoundPage:
        """What `search` finds, as one text: a thousand objects made by one thread are slow to touch for another."""

    async def count(self, request: CountRequest, cells: Collection[str]) -> Mapping[str, Counts]:
        """By uuid of those of `cells` that have any, all of one moment. Raises NotExpressibleError as `search` does.

        If there are more groups than one answer may have, all cells together, every one of them is partial.
        """

    async def items(self, item_type: str, cells: Collection[str]) -> Mapping[str, Sequence[Record]]:
        """The records of items of another type than instances that are not deleted, by uuid of the cell.

        Of those of `cells` alone whose items are said to be whole (OtherItemStore.mark_items).
        """

    async def progress(self) -> Mapping[str, CellProgress]:
        """Progress by cell uuid, of every cell that the index knows."""

    async def seal(self) -> SealState:
        """What is known of its seal."""

    async def close(self) -> None: ...
