"""Turns a batch of messages into documents, at most one per instance, whatever the order; pure.

If messages name their instance and its revision, only the newest of each instance is decoded, just before its document
is written, so that its data is still in the processor's caches.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar, assert_never

import msgspec

from fleetlight.bus.topology import RESOURCE_HEADER, REVISION_HEADER
from fleetlight.cells.errors import CellUnreachableError
from fleetlight.cells.fleet.producer_keys import Announcer
from fleetlight.cells.model import InstanceRow
from fleetlight.indexer.backends.base import Document
from fleetlight.indexer.errors import DeadLetterReason, MalformedMessageError, RefusedAnnouncementError
from fleetlight.indexer.transform.announcers import announced
from fleetlight.indexer.transform.documents import ExternalChange, NativeChange, merge, to_document
from fleetlight.indexer.transform.external_rows import settle
from fleetlight.indexer.transform.messages import Heartbeat, Hint, Meaning, OtherNotification, interpret
from fleetlight.indexer.transform.other_items import OtherItemChange, other_item_document
from fleetlight.resources.units import MICROSECONDS_PER_SECOND

# Clocks of hosts differ. The instance of a refused message is read from its cell, so nothing is lost.
_MOST_AHEAD_S = 600

Source = TypeVar("Source")

ReadsRows = Callable[[Collection[str]], Mapping[str, InstanceRow]]
"""Reads the rows of some uuids, as far as they exist, in one request; raises CellUnreachableError."""


@dataclass(frozen=True, slots=True)
class RowReading:
    """How to read rows of a cell whose notifications have no revisions.

    kept: fields that rows lack, and documents keep (fleetlight.indexer.transform.external_rows).
    """

    read: ReadsRows
    kept: Collection[str] = ()


class _RawChange(msgspec.Struct, gc=False):
    """The message of a change with a revision, not yet decoded."""

    revision: int
    body: bytes


_Change = TypeVar("_Change", NativeChange | _RawChange, OtherItemChange)


class Batch:
    """Collects messages of one cell.

    horizon: of the cell (fleetlight.indexer.reconcile.retention). A notification without a revision that is older, of
        an instance without a document, is ignored: the instance may have been deleted and forgotten since.
    rows: reads rows of a cell whose notifications have no revisions; None for a native cell.
    own: reads rows of a native cell; None for other cells. A notification without a revision about such a row is
        ignored: its version is a time, higher than any revision, so no later change of the row would be applied. Any
        other notification without a revision must be of a known producer, unless `rows` is given.
    now: in microseconds. A message with a much later time is refused, since it would win over all messages until then.
    failed: known after an iteration of `documents`: why an instance has no document, by uuid.
    unreadable: known after `documents`: instances whose rows could not be read, so that messages alone were believed.
    misnamed: known after an iteration of `documents`: instances in messages whose headers name another, failed one.
    elsewhere: known after `documents`: number of instances that are not of this cell.
    forgotten: known after `documents`: number of messages that were ignored because of the horizon.
    superseded: number of messages that were ignored for a newer one of their instance; most were not decoded.
    """

    def __init__(
        self,
        cell_uuid: str,
        horizon: int = 0,
        rows: RowReading | None = None,
        own: ReadsRows | None = None,
        *,
        now: int,
    ) -> None:
        self._cell_uuid = cell_uuid
        self._now = now
        self._horizon = horizon
        self._rows = rows
        self._own = own
        self._native: dict[str, NativeChange | _RawChange] = {}
        self._items: dict[str, OtherItemChange] = {}
        self._external: dict[str, list[ExternalChange]] = {}
        self.heartbeats: list[Heartbeat] = []
        self.failed: dict[str, MalformedMessageError] = {}
        self.unreadable: Collection[str] = ()
        self.misnamed: set[str] = set()
        self.elsewhere = 0
        self.forgotten = 0
        self.changes = 0
        self.superseded = 0
        self.others = 0

    def take(
        self,
        body: bytes,
        revision: int | None,
        instance_uuid: str | None,
        *,
        reports_progress: bool,
        announcer: Announcer | None = None,
    ) -> Sequence[str]:
        """Add one message; returns the uuids of the instances whose documents may come from it.

        revision, instance_uuid: from the headers; None if they name none. reports_progress: believe it if it is a
        heartbeat. announcer: producer of a message without a revision; None for no producer. Raises
        MalformedMessageError if the message is decoded at once and can never be indexed.
        """
        if revision is None or instance_uuid is None:
            return self.add(interpret(body, revision), reports_progress=reports_progress, announcer=announcer)
        return self._keep_newest(self._native, instance_uuid, _RawChange(revision, body))

    def add(
        self, meaning: Meaning, *, reports_progress: bool = False, announcer: Announcer | None = None
    ) -> Sequence[str]:
        """As `take`, for a decoded message. Raises MalformedMessageError if its time is far in the future, and
        RefusedAnnouncementError.
        """
        match meaning:
            case NativeChange():
                return self._keep_newest(self._native, meaning.uuid, meaning)
            case OtherItemChange():
                return self._keep_newest(self._items, meaning.uuid, meaning)
            case ExternalChange():
                if self._rows is None:
                    meaning = announced(meaning, announcer)
                self._refuse_future(meaning)
                self.changes += 1
                self._external.setdefault(meaning.uuid, []).append(meaning)
                return () if meaning.uuid in self._native else (meaning.uuid,)
            case Hint() if self._rows is not None:
                self.others += 1
                for uuid in meaning.uuids:
                    self._external.setdefault(uuid, [])
                return meaning.uuids
            case Heartbeat():
                # Any sender can put a heartbeat on this bus; one that names another cell counts for nothing.
                if reports_progress and meaning.cell_uuid == self._cell_uuid:
                    self.heartbeats.append(meaning)
                else:
                    self.others += 1
                return ()
            case Hint() | OtherNotification():
                self.others += 1
                return ()
            case _:
                assert_never(meaning)

    @property
    def to_read(self) -> Collection[str]:
        """Uuids of the documents that must be read to make the new ones."""
        return [uuid for uuid in self._external if uuid not in self._native]

    def count_applied(self, dead: Collection[str]) -> int:
        """The number of applied messages. dead: uuids of instances and items of which one message is a dead letter."""
        return self.changes - sum(
            1 for uuid in dead if uuid in self._native or uuid in self._items or self._external.get(uuid)
        )

    def documents(self, read: Callable[[Collection[str]], Mapping[str, Document]]) -> Iterable[Document]:
        """The documents to write; they can be iterated repeatedly, and most are made during the iteration.

        read: returns the existing documents among some uuids; called at most once, during this call, with `to_read`.
        Raises what `read` and `own` raise.
        """
        items = [other_item_document(self._cell_uuid, change) for change in self._items.values()]
        return _Documents(self._native_documents, [*self._external_documents(read), *items])

    def _refuse_future(self, change: ExternalChange) -> None:
        if change.version > self._now + _MOST_AHEAD_S * MICROSECONDS_PER_SECOND:
            ahead_s = (change.version - self._now) // MICROSECONDS_PER_SECOND
            raise MalformedMessageError(
                DeadLetterReason.MALFORMED,
                f"timestamp: must not be more than {_MOST_AHEAD_S} s ahead of our clock, not {ahead_s} s",
            )

    def _keep_newest(self, kept: dict[str, _Change], uuid: str, change: _Change) -> Sequence[str]:
        known = kept.get(uuid)
        if known is None:
            self.changes += 1
        else:
            self.superseded += 1
            if known.revision >= change.revision:
                return ()
        kept[uuid] = change
        return (uuid,)

    def _native_documents(self) -> Iterator[Document]:
        for uuid, newest in self._native.items():
            try:
                change = newest if isinstance(newest, NativeChange) else self._read_change(uuid, newest)
                document = to_document(self._cell_uuid, change.revision, change.record, change.extra)
            except MalformedMessageError as error:
                self.failed[uuid] = error
            except Exception as error:  # noqa: BLE001  # only this instance fails
                self.failed[uuid] = MalformedMessageError.unexpected(error)
            else:
                yield document

    def _read_change(self, uuid: str, message: _RawChange) -> NativeChange:
        """Decode a message. Raises MalformedMessageError, also if its headers name another instance."""
        meaning = interpret(message.body, message.revision)
        if not isinstance(meaning, NativeChange):
            raise MalformedMessageError(
                DeadLetterReason.MALFORMED,
                f"headers.{REVISION_HEADER}: only what a cell says of an instance has a revision, and this is not that",
            )
        if meaning.uuid != uuid:
            self.misnamed.add(meaning.uuid)
            raise MalformedMessageError(
                DeadLetterReason.MALFORMED, f"headers.{RESOURCE_HEADER}: names {uuid}, and the payload {meaning.uuid}"
            )
        return meaning

    def _external_documents(self, read: Callable[[Collection[str]], Mapping[str, Document]]) -> list[Document]:
        to_read = self.to_read
        if not to_read:
            return []
        documents: list[Document] = []
        existing = read(to_read)
        rows = self._read_rows(to_read)
        unknown = [uuid for uuid in to_read if uuid not in existing]
        own = self._own(unknown) if self._own and unknown else {}
        for uuid in to_read:
            if uuid in own:
                self.changes -= len(self._external[uuid])
                self.others += len(self._external[uuid])
                continue
            try:
                document = self._external_document(uuid, existing.get(uuid), rows)
            except Exception as error:  # noqa: BLE001  # as above
                self.failed[uuid] = MalformedMessageError.unexpected(error)
            else:
                if document is not None:
                    documents.append(document)
        return documents

    def _read_rows(self, uuids: Collection[str]) -> Mapping[str, InstanceRow] | None:
        """The rows of the instances, read after their messages arrived; None if this cell's rows are not read, or it is
        down.
        """
        if self._rows is None:
            return None
        try:
            return self._rows.read(uuids)
        except CellUnreachableError:
            self.unreadable = uuids
            return None

    def _external_document(
        self, uuid: str, existing: Document | None, rows: Mapping[str, InstanceRow] | None
    ) -> Document | None:
        changes = self._external[uuid]
        if rows is not None and self._rows is not None:
            if uuid not in rows and (existing is None or existing.cell_uuid != self._cell_uuid):
                self.elsewhere += 1
            return settle(self._cell_uuid, existing, rows.get(uuid), changes, kept=self._rows.kept)
        if not changes:
            return None
        if existing is None and all(change.version < self._horizon for change in changes):
            self.changes -= len(changes)
            self.forgotten += len(changes)
            return None
        if self._rows is not None and (existing is None or existing.cell_uuid != self._cell_uuid):
            # While the cell is down, it is unknown whether the instance is its own.
            return None
        return merge(self._cell_uuid, existing, changes)


def without_known(
    dead: list[tuple[Source, MalformedMessageError]], own: ReadsRows | None
) -> list[tuple[Source, MalformedMessageError]]:
    """The members of `dead` to keep: without refused messages about instances that the cell has.

    A relay whose key is no longer accepted sent such messages, and the changelog has their changes. Raises
    CellUnreachableError.
    """
    refused = {error.instance_uuid for _, error in dead if isinstance(error, RefusedAnnouncementError)}
    known = own(refused) if own and refused else {}
    return [
        (source, error)
        for source, error in dead
        if not isinstance(error, RefusedAnnouncementError) or error.instance_uuid not in known
    ]


class _Documents:
    """Documents that each iteration makes, followed by finished ones."""

    def __init__(self, make: Callable[[], Iterator[Document]], made: Sequence[Document]) -> None:
        self._make = make
        self._made = made

    def __iter__(self) -> Iterator[Document]:
        yield from self._make()
        yield from self._made
