"""The rows of a cell from the compute API in front of it, for a cell whose database cannot be read.

They have no revision. A page counts as old as the moment before its request, so that anything announced meanwhile wins.
Fields that the API does not show are kept from the existing document (docs/decisions/0013).
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from fleetlight.cells.kinds.nova_api.client import ComputeApi, MarkerGoneError, Query
from fleetlight.cells.kinds.nova_api.items import read_item
from fleetlight.indexer.backends.base import Document, Rejection
from fleetlight.indexer.reconcile.fill import SourcePage
from fleetlight.indexer.reconcile.ranges import ignore
from fleetlight.indexer.transform.documents import ExternalChange, merge
from fleetlight.indexer.writing.checkpoints import Checkpoint
from fleetlight.notifications.event_types import INSTANCE_UPDATE
from fleetlight.resources.clock import Clock, system_clock

_LIVE, _DELETED = "live", "deleted"
_BY_UUID = (("sort_key", "uuid"), ("sort_dir", "asc"))
_QUERIES: Mapping[str, Query] = {_LIVE: _BY_UUID, _DELETED: (*_BY_UUID, ("deleted", "True"))}
_PAGE_SIZE = 1000
_UNKNOWN = "?"


class ApiSource:
    """fleetlight.indexer.reconcile.fill.Source; raises UpstreamError, and what `read` and `own` raise.

    read: returns the existing documents among some uuids. own: returns those of some uuids that are rows of the cell
    itself, whose own data is better.
    """

    has_gone_back = False
    """Always False: an API has no sequence that would show it."""

    def __init__(
        self,
        api: ComputeApi,
        cell_uuid: str,
        *,
        read: Callable[[Collection[str]], Mapping[str, Document]],
        own: Callable[[Collection[str]], Collection[str]],
        page_size: int = _PAGE_SIZE,
        spend: Callable[[int], None] = ignore,
        clock: Clock = system_clock,
    ) -> None:
        self._api = api
        self._page_size = page_size
        self._cell_uuid = cell_uuid
        self._read = read
        self._own = own
        self._spend = spend
        self._clock = clock

    def start(self, watermark: int) -> int:
        """Return the watermark as it was: an API has no sequence, so no more can be promised."""
        return watermark

    def can_go_on(self, checkpoint: Checkpoint) -> bool:
        """Always True: rows that were read before are announced if they change."""
        return True

    def pages(self, position: list[str] | None) -> Iterator[SourcePage]:
        """Yield first the servers that live, then the deleted ones. Raises UpstreamError."""
        stage, after = position or (_LIVE, "")
        if stage == _LIVE:
            yield from self._stage(_LIVE, after)
            after = ""
        yield from self._stage(_DELETED, after)

    def _stage(self, stage: str, after: str) -> Iterator[SourcePage]:
        # The last servers of the previous page, as fallbacks: if one is gone, the one before it will do.
        markers = [after] if after else []
        while True:
            asked_at = self._clock()
            try:
                found = self._api.servers(
                    _QUERIES[stage], limit=self._page_size, after=markers[-1] if markers else None
                )
            except MarkerGoneError:
                markers.pop()
                continue
            if not found.servers:
                return
            page, markers = self._page(stage, found.servers, asked_at)
            yield page
            if not found.has_more:
                return
            self._spend(len(found.servers))

    def _page(self, stage: str, items: Sequence[Any], asked_at: int) -> tuple[SourcePage, list[str]]:
        changes: dict[str, ExternalChange] = {}
        rejected: list[Rejection] = []
        for item in items:
            try:
                carried = read_item(item)
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                rejected.append(self._rejection(_id_of(item), f"{type(error).__name__}: {error}"))
                continue
            changes[carried["uuid"]] = ExternalChange(carried["uuid"], asked_at, INSTANCE_UPDATE, carried)
        for uuid in self._own(list(changes)):
            del changes[uuid]
        existing = self._read(list(changes))
        documents = []
        for uuid, change in changes.items():
            try:
                document = merge(self._cell_uuid, existing.get(uuid), [change])
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                rejected.append(self._rejection(uuid, f"{type(error).__name__}: {error}"))
                continue
            if document is not None:
                documents.append(document)
        markers = [_id_of(item) for item in items]
        deleted = sum(bool(change.carried.get("deleted")) for change in changes.values())
        return SourcePage(documents, [stage, markers[-1]], len(items), lambda: deleted, rejected), markers

    def _rejection(self, uuid: str, reason: str) -> Rejection:
        return Rejection(Document(self._cell_uuid, 0, {"uuid": uuid}, ()), reason)


def _id_of(item: Any) -> str:
    found = item.get("id") if isinstance(item, dict) else None
    return found if isinstance(found, str) else _UNKNOWN
