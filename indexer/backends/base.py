"""The interface of index backends, which one suite of contract tests checks for all.

Writing (`IndexWriter`) blocks, and is for the indexer; searching (`IndexSearcher`) is asynchronous, and is for the API,
whose account cannot write. Both raise IndexUnavailableError if the store does not answer, IndexRequestError if it
refuses a request, and no other errors.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
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
"""Versions from here on are times in microseconds (2001 and later); lower ones are revisions, which stay far below."""


def is_time(version: int) -> bool:
    """Whether this is the version of a document from notifications without a revision."""
    return version >= OLDEST_TIME_VERSION


class Document(msgspec.Struct, frozen=True, gc=False):
    """The document of one instance, or of an item of another type (fleetlight.indexer.transform.other_items).

    version: the revision of the instance; an older one never overwrites a newer one.
    record: stored values by field name, with every field of INSTANCE_FIELDS; for another type its own record, with
        `deleted` and `deleted_at`.
    view: ready pieces of the answers that show this instance (fleetlight.views.compute.view); empty for other items.
    extra: fields of a newer producer (fleetlight.indexer.extra_fields).
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
"""The errors of reading or rendering a document that another program has written."""


@dataclass(frozen=True, slots=True)
class Rejection:
    """A document that the index will never accept as it is, and the reason."""

    document: Document
    reason: str


@dataclass(frozen=True, slots=True)
class WriteResult:
    """applied: the number written. stale: skipped since a version as new was there, which is success. rejected: never
    possible. schema_violations: extra fields that contradict their schemas; documents keep them, but no search finds
    them.
    """

    applied: int
    stale: int
    rejected: tuple[Rejection, ...] = ()
    schema_violations: int = 0


class PartlyWrittenError(IndexUnavailableError):
    """The index could not take the documents `remaining` now; `result` is that of the others."""

    def __init__(self, cause: IndexUnavailableError, result: WriteResult, remaining: Sequence[Document]) -> None:
        super().__init__(str(cause))
        self.cause = cause
        self.result = result
        self.remaining = remaining


class LogState(msgspec.Struct, frozen=True):
    """How a cell without numbered changes is followed by the logs of its databases.

    positions: how far each log is in the index, by the address of the server. problem: why the logs are not read, and
        how to change that, as a sentence; the cell is compared meanwhile. None while they are read.
    """

    positions: dict[str, LogPosition] = msgspec.field(default_factory=dict)
    problem: str | None = None

    @classmethod
    def of(cls, kept: object) -> "LogState | None":
        """Parse what the index keeps of a cell (COMMIT_LOGS); None if that is nothing, or of another version."""
        try:
            return None if kept is None else msgspec.convert(kept, cls)
        except msgspec.ValidationError:
            return None


@dataclass(frozen=True, slots=True)
class CellProgress:
    """How far the index follows one cell.

    watermark: every change up to this sequence is searchable.
    fresh_as_of: Unix time in microseconds, by the cell's clock, up to which the index is known to be complete.
    is_complete: rows from before the first change have been synced too, or there were none.
    horizon: rows that fleetlight.query.retention calls forgotten may be missing from the index.
    epoch: of the cell, in which the watermark counts, or an earlier one (fleetlight.indexer.writing.epoch_history).
    problem: why lists do without the index of a cell that it once had whole, as a sentence.
    log: None if no indexer has looked at logs of the cell's databases.
    These four are stored apart from the rest, and only searchers fill them in.
    saved_as: identifies the write that saved it, where the backend numbers writes.
    """

    cell_uuid: str
    watermark: int
    fresh_as_of: int
    is_complete: bool
    horizon: int = field(default=0, compare=False)
    epoch: str | None = field(default=None, compare=False)
    problem: str | None = field(default=None, compare=False)
    log: LogState | None = field(default=None, compare=False)
    saved_as: tuple[int, int] | None = field(default=None, compare=False)

    def with_facts(self, facts: Mapping[tuple[str, str], Any], seal: SealState = CHECKED_BY_SEARCHES) -> "CellProgress":
        """Add what searchers report. facts: state by kind, one of CELL_FACTS, and uuid of the cell.

        While the index of a cell is repaired it counts as incomplete, even if an indexer that has not noticed the
        restore calls it complete; so it does while rows are replaced. It is not fresh past the moment when its seal
        last held, since another program may have written to it after that.
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
    """One found instance: its position in the order, and its item as the answer shows it.

    position: stored values of the order's keys, with the uuid last.
    A Struct, because with frozen dataclasses a list of a thousand rows took a quarter longer.
    """

    position: tuple[Any, ...]
    item: bytes


class FoundPage(msgspec.Struct, frozen=True, gc=False):
    """All rows of a page that need not be merged with others.

    items: the items of `rows` instances, separated by commas. last: the position of the last row; None without rows.
    """

    items: bytes
    rows: int
    last: tuple[Any, ...] | None


def counts_by_cell(found: Iterable[tuple[str, Group, int]], max_groups: int) -> dict[str, Counts]:
    """The result of IndexSearcher.count. found: cell uuid, group and number; up to one more than `max_groups`."""
    groups: dict[str, dict[Group, int]] = {}
    is_partial = False
    for place, (cell_uuid, group, number) in enumerate(found):
        is_partial = place == max_groups
        if not is_partial:
            groups.setdefault(cell_uuid, {})[group] = number
    return {cell_uuid: Counts(of_cell, is_partial) for cell_uuid, of_cell in groups.items()}


HORIZONS = "horizon"
"""The kind of state with the horizon of each cell, by its uuid."""

EPOCHS = "epochs"
"""The kind of state with the epoch in which the index follows each cell (fleetlight.cells.epochs), by the cell's
uuid.
"""

BEING_RECONCILED = "being reconciled"
"""Replaces the epoch while the index of a restored cell is being repaired."""

RECONCILIATIONS = "reconciliations"
"""The kind of state with the number of repairs since a cell was restored, by its uuid."""

COMMIT_LOGS = "commit-log"
"""The kind of state with the LogState of each cell whose databases may have a log, by its uuid."""

REPAIRS = "repairs"
"""The kind of state that lists, by uuid, each cell from which the index differs and is not repaired yet."""

CELL_FACTS = (HORIZONS, EPOCHS, REPAIRS, COMMIT_LOGS, SEAL)
"""The kinds of state that CellProgress.with_facts reads."""


def ignore_removed(_rows: int) -> None:
    """For callers that do not show the progress of a removal."""


@dataclass(frozen=True, slots=True)
class BareDocument:
    """An instance in an index that this program cannot use: its version, and its fields."""

    version: int
    record: Record


class OtherItemStore(Protocol):
    """Items of types other than instances in an index; `IndexWriter.write` writes them.

    A cell has some thousand of them, so all are read at once. They survive rebuilds. `purge` and `remove_cell` remove
    them too, without counting them.
    """

    def items(self, item_type: str, cell_uuid: str) -> Mapping[str, Document]:
        """The searchable items of a cell by uuid, including deleted ones."""

    def remove_items(self, item_type: str, cell_uuid: str, versions: Mapping[str, int]) -> None:
        """Remove items by uuid, each only if it is not newer than this version.

        Afterwards an item of any version can be written in its place.
        """

    def mark_items(self, item_type: str, cell_uuid: str, *, are_whole: bool) -> None:
        """Record whether the searchable items are all that the cell has, as of its watermark; takes effect at once."""

    def are_items_whole(self, item_type: str, cell_uuid: str) -> bool:
        """What `mark_items` last recorded; False if nothing was."""


class IndexWriter(OtherItemStore, Protocol):
    def prepare(self) -> None:
        """Create what the backend needs, or bring it up to date; idempotent.

        Missing parts of a damaged index are created anew, and progress of a physical index that is gone is forgotten.
        Raises IndexVersionError if only a rebuild can bring the index up to date; state can then still be saved and
        loaded.
        """

    def write(self, documents: Iterable[Document]) -> WriteResult:
        """Write documents, each only if it is newer than the one there. Retries nothing.

        documents: must give the same ones when iterated again, which happens if some are refused.
        Raises PartlyWrittenError if only some could be written now.
        """

    def make_searchable(self) -> None:
        """Return when everything written so far is searchable."""

    def read(self, ids: Collection[str]) -> Mapping[str, Document]:
        """The existing documents among `ids`, in one request, whether searchable yet or not.

        Damaged documents are left out, and logged.
        """

    def versions(self, ids: Collection[str]) -> Mapping[str, int]:
        """The versions of the existing documents among `ids`, damaged ones included; otherwise as `read`."""

    def digests(
        self, cell_uuid: str, prefixes: Sequence[str], length: int, *, horizon: int = 0, external: bool = False
    ) -> Mapping[str, RangeDigest]:
        """Digests of searchable documents of the cell whose uuid begins with one of `prefixes`.

        The store computes them; keys are as in fleetlight.cells.model.ChangelogAdapter, with versions for revisions.
        external: only documents from notifications without a revision, else only the others. Documents forgotten at
        `horizon` (fleetlight.query.retention) are left out. Both also apply to `revisions`.
        """

    def revisions(
        self, cell_uuid: str, prefixes: Sequence[str], *, horizon: int = 0, external: bool = False
    ) -> Mapping[str, int]:
        """The versions by uuid of the documents in `digests`; at most 10,000, so ask for about 1,000."""

    def count_external(self, cell_uuid: str) -> int:
        """The number of searchable documents of the cell from notifications without a revision."""

    def remove(self, versions: Mapping[str, int]) -> None:
        """Remove documents by uuid, each only if it is not newer than this version.

        Afterwards a document of any version can be written in its place.
        """

    def save_progress(
        self, progress: Sequence[CellProgress], over: Mapping[str, CellProgress] | None = None
    ) -> Set[str]:
        """Save the progress of cells, but not over what another process has saved since it was loaded.

        over: what `load_progress` returned; the progress of other cells is saved whatever is there. Returns the cells
        whose progress was not saved.
        Raises IndexReplacedError if the index is no longer the one that `prepare` saw; so does `make_searchable`.
        """

    def load_progress(self) -> Mapping[str, CellProgress]:
        """The progress of every cell that the index knows, by uuid."""

    def count_extra_fields(self) -> Mapping[str, int]:
        """The number of searchable documents with each extra field; keys are those of
        fleetlight.indexer.extra_fields.Extra.fields.
        """

    def find_extra(self, terms: Sequence[str], limit: int) -> Sequence[str]:
        """At most `limit` uuids, in order, of searchable documents with one of these terms."""

    def save_state(self, kind: str, values: Mapping[str, object | None]) -> None:
        """Save facts about work on the index by name, as values that JSON can express; None deletes a fact."""

    def load_state(self, kind: str) -> Mapping[str, Any]:
        """The facts of one kind by name, as decoded from JSON."""

    def purge(self, cell_uuid: str, horizon: int, on_batch: Callable[[int], None] = ignore_removed) -> int:
        """Remove the cell's documents that are forgotten at `horizon` (fleetlight.query.retention), in batches.

        on_batch: receives the number of rows removed so far. Returns their total.
        """

    def allow_writes(self) -> None:
        """Open what is closed, and end blocks on writing: the pause of a killed rebuild (Generations.switch), or a
        block set by hand. Call this only if no rebuild has paused writing now.

        Blocks that the store sets while its disk is full end by themselves.
        """

    def remove_cell(self, cell_uuid: str, on_batch: Callable[[int], None] = ignore_removed) -> int:
        """Remove a cell: first its progress, so that no list takes a part for the whole, then its rows in batches.

        on_batch: receives the number of rows removed so far. Returns their total, including rows that were not
        searchable yet. No process may write rows of the cell meanwhile. A removal that was cut off can be repeated.
        Afterwards the same instances can be written again, whatever their versions.
        """

    def open_seal(self, clock: Clock) -> Seal:
        """Open the seal of this index; it is closed with the writer. clock: of the fleet."""

    def close(self) -> None: ...


class Generations(Protocol):
    """The physical indexes behind an index: the current one, the next one while it is filled, and the previous one.

    One process at a time may use it (fleetlight.indexer.writing.leases). All others use the current one, and need not
    know about this.
    """

    def has_next(self) -> bool: ...

    def has_previous(self) -> bool: ...

    def names(self) -> tuple[str | None, str | None]:
        """Names of the current and the previous index on the server; None if there is none, or it has no name."""

    def is_unusable(self) -> bool:
        """Whether this program cannot use the current index, because it has an older or newer version."""

    def bare_documents(self, cell_uuid: str) -> Iterator[Sequence[BareDocument]]:
        """Yield, in batches, all of the cell's documents in an unusable index that came without a revision."""

    def create_next(self) -> None:
        """Create an empty next index with this program's mapping; there must be none."""

    def take_previous_as_next(self) -> None:
        """Make the previous index the next one, without progress; there must be a previous one, and no next one.

        Raises RebuildError if the previous one is unusable.
        """

    def open_next(self) -> IndexWriter:
        """Open a writer for the next index, with its own progress; close it before closing this."""

    def switch(self, finish: Callable[[], None]) -> None:
        """Make the next index the current one, in one step for all readers, and keep the old one as the previous index.

        finish: brings the next index up to date; it is called while no process can write to the current one. Writers
        then get IndexUnavailableError; readers go on. If it raises, the pause ends and nothing has changed. An earlier
        previous index is dropped. Raises RebuildError if an operator has blocked writing.
        """

    def drop_next(self) -> None:
        """Drop the next index, if there is one."""

    def drop_previous(self) -> None:
        """Drop the previous index, if there is one."""

    def close(self) -> None: ...


class IndexSearcher(Protocol):
    async def search(self, request: PageRequest, cells: Collection[str], projection: Projection) -> Sequence[FoundRow]:
        """At most `request.limit` rows of the `cells` (uuids), in order.

        Items are rendered in the thread that reads the rows, while their bytes are still in the processor's cache; this
        keeps the event loop free. Raises NotExpressibleError (fleetlight.query.errors) if this index cannot evaluate a
        leaf of the filter exactly.
        """

    async def page(self, request: PageRequest, cells: Collection[str], projection: Projection) -> FoundPage:
        """The rows of `search` as one text, since objects made by one thread are slow to access from another."""

    async def count(self, request: CountRequest, cells: Collection[str]) -> Mapping[str, Counts]:
        """Counts by uuid for those `cells` that have any, all as of one moment. Raises NotExpressibleError.

        If all cells together have more groups than one answer may have, each cell's counts are partial.
        """

    async def items(self, item_type: str, cells: Collection[str]) -> Mapping[str, Sequence[Record]]:
        """The records of items of another type than instances by uuid of the cell, without deleted ones.

        Only for those `cells` whose items are marked as whole (OtherItemStore.mark_items).
        """

    async def progress(self) -> Mapping[str, CellProgress]:
        """The progress of every cell that the index knows, by uuid."""

    async def seal(self) -> SealState:
        """The state of the seal."""

    async def close(self) -> None: ...
