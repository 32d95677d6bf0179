"""What a batch of messages comes to: at most one document per instance, whatever the order; pure."""

from collections.abc import Callable, Collection, Mapping
from typing import assert_never

from indexer.backends.base import Document
from indexer.documents import ForeignChange, NativeChange, merge, to_document
from indexer.errors import MalformedMessageError
from indexer.messages import Heartbeat, Meaning, OtherNotification


class Batch:
    """Collects the meanings of messages of one cell.

    horizon: of the cell (indexer.retention). What somebody else said before it of an instance that is not there is left
        out: it may have been deleted and forgotten since, and nobody else remembers that.
    failed: after `documents`, by uuid, why there is no document of an instance that there should be one of.
    """

    def __init__(self, cell_uuid: str, horizon: int = 0) -> None:
        self._cell_uuid = cell_uuid
        self._horizon = horizon
        self._native: dict[str, NativeChange] = {}
        self._foreign: dict[str, list[ForeignChange]] = {}
        self.heartbeats: list[Heartbeat] = []
        self.failed: dict[str, MalformedMessageError] = {}
        self.changes = 0
        self.others = 0

    def add(self, meaning: Meaning) -> str | None:
        """Take one message in; returns the uuid of the instance when the batch's document of it may come from it."""
        match meaning:
            case NativeChange():
                self.changes += 1
                known = self._native.get(meaning.uuid)
                if known is not None and known.revision >= meaning.revision:
                    return None
                self._native[meaning.uuid] = meaning
                return meaning.uuid
            case ForeignChange():
                self.changes += 1
                self._foreign.setdefault(meaning.uuid, []).append(meaning)
                return None if meaning.uuid in self._native else meaning.uuid
            case Heartbeat():
                # One that was put on this bus by hand may be of another cell, of which it says nothing here.
                if meaning.cell_uuid == self._cell_uuid:
                    self.heartbeats.append(meaning)
                return None
            case OtherNotification():
                self.others += 1
                return None
            case _:
                assert_never(meaning)

    @property
    def to_read(self) -> Collection[str]:
        """Uuids whose present documents are needed to make the new ones."""
        return [uuid for uuid in self._foreign if uuid not in self._native]

    def documents(self, read: Callable[[Collection[str]], Mapping[str, Document]]) -> list[Document]:
        """The documents to write.

        read: the documents there are among some uuids; called at most once, with `to_read`.
        """
        documents: list[Document] = []
        for change in self._native.values():
            try:
                documents.append(to_document(self._cell_uuid, change.revision, change.record, change.extra))
            except Exception as error:  # noqa: BLE001  # it is about this instance, and the others go on
                self.failed[change.uuid] = MalformedMessageError.unexpected(error)
        to_read = self.to_read
        existing = read(to_read) if to_read else {}
        for uuid in to_read:
            changes = self._foreign[uuid]
            if uuid not in existing and all(change.version < self._horizon for change in changes):
                continue
            try:
                document = merge(self._cell_uuid, existing.get(uuid), changes)
            except Exception as error:  # noqa: BLE001  # as above
                self.failed[uuid] = MalformedMessageError.unexpected(error)
            else:
                if document is not None:
                    documents.append(document)
        return documents
