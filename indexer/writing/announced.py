"""Copies of instances that only notifications from outside announce, which no cell database has.

The journal of their cell keeps their newest states (fleetlight.cells.fleet.announced_instances), so that a lost or
older index gets them back. The index does not wait for the journal: the follower copies missing ones later.
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
    """The part of fleetlight.cells.fleet.announced_instances.AnnouncedInstances that the indexer uses; raises
    FleetUnreachableError.
    """

    def keep(self, cell_uuid: str, announced: Sequence[AnnouncedInstance]) -> None: ...
    def versions(self, cell_uuid: str) -> Mapping[str, int]: ...
    def read(self, cell_uuid: str, instance_uuids: Collection[str]) -> list[AnnouncedInstance]: ...
    def forget(self, cell_uuid: str, instance_uuids: Collection[str]) -> None: ...
    def prune(self, cell_uuid: str, horizon: int) -> None: ...


class AnnouncedKeeper:
    """Writes documents of one cell after the journal has those of announced instances.

    needs_comparison: the follower must compare index and journal (fleetlight.indexer.reconcile.announced), and then
    reset this. Until then the journal gets nothing, since a lost index may have less of an instance than the journal.
    """

    def __init__(self, writer: WritesAndReads, cell_uuid: str, store: AnnouncedStore) -> None:
        self._writer = writer
        self._cell_uuid = cell_uuid
        self._store = store
        self.needs_comparison = True

    def write(self, documents: Iterable[Document]) -> WriteResult:
        """Write documents; if the fleet database is down, the journal lacks them until the next comparison."""
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
    """The part of a document that the journal keeps."""
    extra = None if document.extra is None else msgspec.json.encode(document.extra)
    return AnnouncedInstance(document.id, document.version, document.record, extra)


def of_announced(cell_uuid: str, announced: AnnouncedInstance) -> Document:
    """The document for a state in the journal; fields that an older program did not know are blank."""
    extra = None if announced.extra is None else msgspec.json.decode(announced.extra, type=Extra)
    return to_document(cell_uuid, announced.version, {**BLANK_INSTANCE, **announced.record}, extra)
