"""The documents of a batch of messages: at most one per instance, whatever the order; pure.

Of the messages that name their instance and its revision only the newest of each instance is read, and not before its
document is written: what one step leaves near the processor the next one finds there.
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

# Clocks of hosts differ. What is refused is read from its cell instead, so nothing is lost with it.
_MOST_AHEAD_S = 600

Source = TypeVar("Source")

ReadsRows = Callable[[Collection[str]], Mapping[str, InstanceRow]]
"""The rows there are among some uuids, in one request; raises CellUnreachableError."""


@dataclass(frozen=True, slots=True)
class RowReading:
    """Reads the rows of a cell whose notifications have no revisions.

    read: the rows there are among some uuids, in one request; raises CellUnreachableError. kept: fields that they do
    not have (fleetlight.indexer.transform.external_rows).
    """

    read: ReadsRows
    kept: Collection[str] = ()


class _RawChange(msgspec.Struct, gc=False):
    """The message of a change with a revision, not yet read."""

    revision: int
    body: bytes


_Change = TypeVar("_Change", NativeChange | _RawChange, OtherItemChange)


class Batch:
    """Collects messages of one cell.

    horizon: of the cell (fleetlight.indexer.reconcile.retention). A notification without a revision from before it, of
        an instance that is not there, is left out: the instance may have been deleted and forgotten since.
    rows: reads the rows of a cell whose notifications have no revisions; None for other cells.
    own: reads the rows that the cell itself announces with revisions; None if it announces none. A notification without
        a revision about one of them is refused, since it would be believed for ever: its time is a higher version than
        any revision. Any other has to be of a known producer, unless rows decide.
    now: microseconds. What says that it was sent much later would be newer than all that is said until then.
    failed: after all of `documents`, by uuid, why there is no document of an instance that there should be one of.
    unreadable: after `documents`, the instances whose rows could not be read, so that only the messages were believed.
    misnamed: after all of `documents`, the instances whose messages named another one, which is among `failed`.
    elsewhere: after `documents`, how many instances that messages were about are not of this cell.
    forgotten: after `documents`, how many messages were left out because of the horizon.
    superseded: how many messages were left out for a newer one of the same instance; most of them were not read.
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
        """Take one message in; returns the uuids of the instances whose documents may come from it.

        revision, instance_uuid: what is said beside the message; None where nothing is. reports_progress: whether a
        heartbeat is to be believed. announcer: its producer, if it has no revision; None: it has none. Raises
        MalformedMessageError for what is read at once and can never be indexed.
        """
        if revision is None or instance_uuid is None:
            return self.add(interpret(body, revision), reports_progress=reports_progress, announcer=announcer)
        return self._keep_newest(self._native, instance_uuid, _RawChange(revision, body))

    def add(
        self, meaning: Meaning, *, reports_progress: bool = False, announcer: Announcer | None = None
    ) -> Sequence[str]:
        """As `take`, for a message that was read.

        Raises MalformedMessageError for one that is not sent yet, and RefusedAnnouncementError.
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
                # Every sender can put one on this bus, and one of another cell says nothing here.
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
        """Uuids whose present documents are needed to make the new ones."""
        return [uuid for uuid in self._external if uuid not in self._native]

    def count_applied(self, dead: Collection[str]) -> int:
        """How many messages about instances were applied. dead: uuids of those of which one is a dead letter."""
        return self.changes - sum(
            1 for uuid in dead if uuid in self._native or uuid in self._items or self._external.get(uuid)
        )

    def documents(self, read: Callable[[Collection[str]], Mapping[str, Document]]) -> Iterable[Document]:
        """The documents to write, which can be gone through again and again; each is made when it is read.

        read: the documents there are among some uuids; called at most once, now, with `to_read`.
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
            except Exception as error:  # noqa: BLE001  # it is about this instance, and the others go on
                self.failed[uuid] = MalformedMessageError.unexpected(error)
            else:
                yield document

    def _read_change(self, uuid: str, message: _RawChange) -> NativeChange:
        """Raises MalformedMessageError."""
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
        """The rows of the instances, as they are after the messages had come; None if there is nothing to read."""
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
            # It is not known now whether it is of this cell.
            return None
        return merge(self._cell_uuid, existing, changes)


def without_known(
    dead: list[tuple[Source, MalformedMessageError]], own: ReadsRows | None
) -> list[tuple[Source, MalformedMessageError]]:
    """Those of `dead` that are to be kept: a refused message about an instance that the cell has does no harm.

    Relays have sent such messages whose keys are not accepted any more; the changelog has what they say.
    Raises CellUnreachableError.
    """
    refused = {error.instance_uuid for _, error in dead if isinstance(error, RefusedAnnouncementError)}
    known = own(refused) if own and refused else {}
    return [
        (source, error)
        for source, error in dead
        if not isinstance(error, RefusedAnnouncementError) or error.instance_uuid not in known
    ]


class _Documents:
    """Documents that are made when they are read, and then some that are there."""

    def __init__(self, make: Callable[[], Iterator[Document]], made: Sequence[Document]) -> None:
        self._make = make
        self._made = made

    def __iter__(self) -> Iterator[Document]:
        yield from self._make()
        yield from self._made
