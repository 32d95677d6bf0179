"""Copies of what only the index would have: instances that notifications from outside announce, and that no cell has.

Their newest states are in the journal of their cell (fleetlight.cells.fleet.announced_instances), so that an index
which was lost, or is an older one, gets them back. The index never waits for that: what could not be kept meanwhile is
kept later.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Protocol

import msgspec
import structlog

from fleetlight.cells.errors import FleetUnreachableError
from fleetlight.cells.fleet.announced_instances import AnnouncedInstance
from fleetlight.indexer.backends.base import Document, WriteResult, is_time
from fleetlight.indexer.extra_fields import Extra
from fleetlight.indexer.transform.documents import to_document
from fleetlight.indexer.writing.retrying_writer import WritesAndReads
from fleetlight.resources.instance import BLANK_INSTANCE

_log = structlog.get_logger(__name__)


class AnnouncedStore(Protocol):
    """What is needed of fleetlight.cells.fleet.announced_instances.AnnouncedInstances; raises FleetUnreachableError."""

    def keep(self, cell_uuid: str, announced: Sequence[AnnouncedInstance]) -> None: ...
    def versions(self, cell_uuid: str) -> Mapping[str, int]: ...
    def read(self, cell_uuid: str, instance_uuids: Collection[str]) -> list[AnnouncedInstance]: ...
    def forget(self, cell_uuid: str, instance_uuids: Collection[str]) -> None: ...
    def prune(self, cell_uuid: str, horizon: int) -> None: ...


class AnnouncedKeeper:
    """Writes documents of one cell after what only was announced has been kept.

    needs_comparison: both have to be compared (fleetlight.indexer.reconcile.announced), by the follower, which
        then sets it back; nothing is kept until then, since what a lost index has of an instance may be less than what
        is kept of it.
    """

    def __init__(self, writer: WritesAndReads, cell_uuid: str, store: AnnouncedStore) -> None:
        self._writer = writer
        self._cell_uuid = cell_uuid
        self._store = store
        self.needs_comparison = True

    def write(self, documents: Iterable[Document]) -> WriteResult:
        documents = list(documents)
        announced = [to_announced(each) for each in documents if each.is_instance and is_time(each.version)]
        if announced and not self.needs_comparison:
            try:
                self._store.keep(self._cell_uuid, announced)
            except FleetUnreachableError as error:
                _log.warning("indexer.announced_not_kept", cell=self._cell_uuid, reason=error.reason)
                self.needs_comparison = True
        return self._writer.write(documents)

    def read(self, ids: Collection[str]) -> Mapping[str, Document]:
        return self._writer.read(ids)


def to_announced(document: Document) -> AnnouncedInstance:
    """What is kept of a document."""
    extra = None if document.extra is None else msgspec.json.encode(document.extra)
    return AnnouncedInstance(document.id, document.version, document.record, extra)


def of_announced(cell_uuid: str, announced: AnnouncedInstance) -> Document:
    """The document of what was kept; fields that the program did not know then are blank."""
    extra = None if announced.extra is None else msgspec.json.decode(announced.extra, type=Extra)
    return to_document(cell_uuid, announced.version, {**BLANK_INSTANCE, **announced.record}, extra)
