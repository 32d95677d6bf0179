"""Retries failed messages for an operator: they are interpreted as by the consumer, and solved if the index then has
what they say, or what their cell has of the instance.

The cell is right: for a change of one of its rows the current row is written, not the old message, so that a message
that waited for long cannot bring back what was deleted and forgotten meanwhile.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from fleetlight.bus.topology import SEQUENCE_HEADER
from fleetlight.cells.errors import CellUnreachableError
from fleetlight.cells.fleet.failures import Failure
from fleetlight.cells.fleet.producer_keys import Announcer
from fleetlight.cells.model import CellAdapter, ChangelogAdapter, InstanceRow
from fleetlight.indexer.backends.base import IndexWriter, is_time
from fleetlight.indexer.errors import DeadLetterReason, MalformedMessageError
from fleetlight.indexer.reconcile.external_cell import ExternalRows
from fleetlight.indexer.reconcile.retention import load_horizons
from fleetlight.indexer.transform.announcers import Announcers, KnowsAnnouncers
from fleetlight.indexer.transform.batches import Batch, RowReading
from fleetlight.indexer.transform.documents import ExternalChange, NativeChange
from fleetlight.indexer.transform.messages import Meaning, interpret, read_headers
from fleetlight.indexer.writing.announced import to_announced
from fleetlight.indexer.writing.dead_letters import KeepsFailures
from fleetlight.indexer.writing.journaling import CellJournal, JournalingWriter, JournalStore
from fleetlight.indexer.writing.kept_extras import ExtraFieldKeeper
from fleetlight.indexer.writing.ownership import KnowsOwners, OwnWriter, deployment_of
from fleetlight.indexer.writing.rereading import RendersRows, render_rows, rows_of
from fleetlight.indexer.writing.retrying_writer import WritesAndReads
from fleetlight.resources.clock import Clock, system_clock


@dataclass(frozen=True, slots=True)
class RetryResult:
    """The result for one failure: it is solved and off the list, or it remains; `what` explains why, as a sentence."""

    failure_id: str
    is_solved: bool
    what: str


@dataclass(slots=True)
class _Attempt:
    """meanings, problems: by failure id; each failure is in one of them. rows: of the cell, by uuid."""

    meanings: dict[str, Meaning] = field(default_factory=dict)
    problems: dict[str, MalformedMessageError] = field(default_factory=dict)
    rows: dict[str, InstanceRow] = field(default_factory=dict)

    def instance_of(self, failure: Failure) -> str | None:
        meaning = self.meanings.get(failure.id)
        return meaning.uuid if isinstance(meaning, NativeChange | ExternalChange) else failure.summary.instance_uuid


def retry(
    failures: Sequence[Failure],
    adapter: CellAdapter,
    writer: IndexWriter,
    store: KeepsFailures,
    journals: JournalStore,
    *,
    owners: KnowsOwners,
    announcer: KnowsAnnouncers,
    clock: Clock = system_clock,
) -> list[RetryResult]:
    """Retry failures of one cell, at most some hundred at once; returns the results in order.

    journals: receive changes of cells without numbers, and instances that were only announced. owners: knows the cell
    of each instance. announcer: finds the sender of a message on a cell's bus. clock: of the fleet. Raises
    CellUnreachableError, FleetUnreachableError, and what the writer raises; then all failures remain.
    """
    cell = adapter.cell
    is_native = cell.can.numbers_changes
    read_rows = partial(rows_of, adapter)
    reading = None if is_native else RowReading(read_rows, cell.can.unknown_fields)
    batch = Batch(cell.uuid, load_horizons(writer).get(cell.uuid, 0), reading, now=clock())
    announcers = _Announcing(adapter, Announcers(cell, announcer)) if is_native else None
    attempt = _interpret(failures, cell.uuid, batch, announcers)
    uuids = {uuid for failure in failures if (uuid := attempt.instance_of(failure)) is not None}
    attempt.rows = read_rows(uuids)
    # For a cell without revisions the batch itself reads the rows, and adds what only messages have.
    by_row: Collection[str] = attempt.rows.keys() if is_native else attempt.rows.keys() - set(batch.to_read)
    own: WritesAndReads = writer
    if not is_native:
        own = JournalingWriter(writer, CellJournal(cell.uuid, journals, writer, clock=clock))
    own = OwnWriter(own, cell.uuid, owners, deployment_of(adapter))
    render: RendersRows = render_rows if is_native else ExternalRows(adapter, own).documents
    documents, rejected = render([attempt.rows[uuid] for uuid in by_row])
    documents += [document for document in batch.documents(own.read) if document.id not in by_row]
    if batch.unreadable:
        raise CellUnreachableError(cell.name, "it went away while its rows were read")
    if is_native:
        # Lists that ask the cell get instances that were only announced from the journal, also after this retry.
        announced = [to_announced(each) for each in documents if each.is_instance and is_time(each.version)]
        journals.announced.keep(cell.uuid, announced)
    rejected += (ExtraFieldKeeper(own, own) if is_native else own).write(documents).rejected
    writer.make_searchable()
    refused = {
        **batch.failed,
        **{each.document.id: MalformedMessageError(DeadLetterReason.REJECTED, each.reason) for each in rejected},
    }
    results: list[RetryResult] = []
    unsolved: list[Failure] = []
    for failure in failures:
        conclusion = _conclude(failure, attempt, refused)
        if isinstance(conclusion, MalformedMessageError):
            unsolved.append(_failed_again(failure, conclusion, clock()))
        results.append(RetryResult(failure.id, isinstance(conclusion, str), str(conclusion)))
    store.add(unsolved)
    store.drop([result.failure_id for result in results if result.is_solved])
    return results


class _Announcing:
    """Finds the senders of failed messages without a revision, for a native cell."""

    def __init__(self, adapter: CellAdapter, announcers: Announcers) -> None:
        self._adapter = adapter
        self._announcers = announcers

    def of(self, failure: Failure) -> Announcer:
        """Who announced it. Raises CellUnreachableError."""
        if self._is_in_changelog(failure):
            return self._announcers.outbox
        return self._announcers.of_message(failure.headers, failure.body)

    def _is_in_changelog(self, failure: Failure) -> bool:
        """Whether the outbox has the message; headers alone do not prove that."""
        sequence = failure.headers.get(SEQUENCE_HEADER)
        if not isinstance(sequence, int) or not isinstance(self._adapter, ChangelogAdapter):
            return False
        changes = self._adapter.changes_after(sequence - 1, 1)
        return any((each.sequence, each.message) == (sequence, failure.body) for each in changes)


def _interpret(failures: Sequence[Failure], cell_uuid: str, batch: Batch, announcing: _Announcing | None) -> _Attempt:
    """Interpret the messages; notifications from outside are added to the batch."""
    attempt = _Attempt()
    for failure in failures:
        if failure.summary.reason == DeadLetterReason.TOO_LARGE:
            # The body of such a message was not kept.
            attempt.problems[failure.id] = MalformedMessageError(DeadLetterReason.TOO_LARGE, failure.summary.detail)
            continue
        try:
            _, revision, _ = read_headers(cell_uuid, failure.headers)
            meaning = interpret(failure.body, revision)
            if not isinstance(meaning, NativeChange):
                is_announced = isinstance(meaning, ExternalChange)
                batch.add(meaning, announcer=announcing.of(failure) if announcing and is_announced else None)
        except MalformedMessageError as error:
            attempt.problems[failure.id] = error
            continue
        attempt.meanings[failure.id] = meaning
    return attempt


def _conclude(
    failure: Failure, attempt: _Attempt, refused: dict[str, MalformedMessageError]
) -> str | MalformedMessageError:
    """The reason why the failure is solved, or the error for which it is not."""
    uuid = attempt.instance_of(failure)
    if uuid is not None and uuid in refused:
        return refused[uuid]
    if uuid is not None and uuid in attempt.rows:
        return f"instance {uuid} is in the index as its cell has it"
    match attempt.meanings.get(failure.id):
        case None:
            return attempt.problems[failure.id]
        case NativeChange():
            return MalformedMessageError(
                DeadLetterReason(failure.summary.reason), f"its cell does not have instance {uuid}"
            )
        case ExternalChange():
            return f"the index has what it says of instance {uuid}, or something newer, or need not have it any more"
        case _:
            return "it can be read, and there is nothing in it for the index"


def _failed_again(failure: Failure, error: MalformedMessageError, now: int) -> Failure:
    summary = replace(failure.summary, reason=error.reason.value, detail=str(error), last_at=now, times=1)
    return replace(failure, summary=summary, trace=error.trace)
