"""Owners of instances: a change of one cell never replaces the document of another cell.

The mappings in the fleet database decide. An instance that is mapped to another cell is refused; one whose document is
known to be another cell's is written only if the mapping names this cell, since it has moved. So one query for the
instances that are mapped elsewhere covers all documents of a write, and usually returns nothing. While the fleet
database is down, the index itself tells the cell of each instance; an announced instance without a document is then
refused, since the time of its announcement would be a higher version than any revision of the rightful row.
"""

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Set
from dataclasses import replace
from typing import Protocol, TypeVar

import structlog
from msgspec import structs

from fleetlight.cells.bounded_threads import AllThreadsHangError, BoundedThreads
from fleetlight.cells.errors import CellUnreachableError, FleetUnreachableError
from fleetlight.cells.model import CellAdapter, ConfirmsInstances
from fleetlight.indexer.backends.base import OLDEST_TIME_VERSION, Document, Rejection, WriteResult, is_time
from fleetlight.indexer.writing.retrying_writer import WritesAndReads

T = TypeVar("T")

_log = structlog.get_logger(__name__)

# After so long the writer of the old cell of an instance notices its move.
_REMEMBERED_S = 30.0
# An indexer that waited for a database that is down at each write would fall behind.
_ASK_AGAIN_S = 5.0
# A database that hangs must not keep messages waiting.
_TIMEOUT_S = 2.0
_QUERIES_AT_ONCE = 4
_UNCONFIRMED = "it was only announced, and the fleet database, which knows of which cell the instance is, is away"
_MOST_REMEMBERED = 100_000

GIVES_WAY = OLDEST_TIME_VERSION
"""The version of a document that any other document of its instance replaces."""


class KnowsOwners(Protocol):
    """The part of fleetlight.cells.fleet.fleet.Fleet that has the mappings; raises FleetUnreachableError."""

    def cells_of(self, instance_uuids: Collection[str]) -> Mapping[str, str]:
        """The uuid of the cell of each mapped instance."""

    def living_elsewhere(self, cell_uuid: str, instance_uuids: Collection[str]) -> Mapping[str, str]:
        """The instances that are mapped to another cell, with its uuid."""

    def cells_of_deployment(self, api_database_url: str) -> Mapping[str, str]:
        """The cells of a deployment of Nova in the fleet: their uuids here, by their uuids there."""


class PromptOwners:
    """Queries the owners of instances for all cells of an indexer, in a few threads, with a short timeout.

    While the fleet database is down, it is queried every few seconds; calls in between raise FleetUnreachableError at
    once. A query that hangs occupies its thread until the connection gives up.
    """

    def __init__(self, owners: KnowsOwners) -> None:
        self._owners = owners
        self._threads = BoundedThreads(_QUERIES_AT_ONCE, "owners")
        self._ask_at_s = 0.0

    def cells_of(self, instance_uuids: Collection[str]) -> Mapping[str, str]:
        return self._query(lambda: self._owners.cells_of(instance_uuids))

    def living_elsewhere(self, cell_uuid: str, instance_uuids: Collection[str]) -> Mapping[str, str]:
        return self._query(lambda: self._owners.living_elsewhere(cell_uuid, instance_uuids))

    def cells_of_deployment(self, api_database_url: str) -> Mapping[str, str]:
        return self._query(lambda: self._owners.cells_of_deployment(api_database_url))

    def _query(self, query: Callable[[], T]) -> T:
        if time.monotonic() < self._ask_at_s:
            raise FleetUnreachableError("it was away a moment ago")
        try:
            return self._threads.wait(query, _TIMEOUT_S)
        except AllThreadsHangError:
            error = FleetUnreachableError("an earlier query still waits for its answer")
        except TimeoutError:
            error = FleetUnreachableError(f"it does not answer within {_TIMEOUT_S:g} s")
        except FleetUnreachableError as failure:
            error = failure
        self._ask_at_s = time.monotonic() + _ASK_AGAIN_S
        _log.warning("indexer.owners_unknown", reason=error.reason)
        raise error


def deployment_of(adapter: CellAdapter) -> ConfirmsInstances | None:
    """The adapter, if the deployment of the cell has mappings of its own; None otherwise."""
    return adapter if isinstance(adapter, ConfirmsInstances) else None


def followed_homes(
    deployment: ConfirmsInstances | None, owners: KnowsOwners | None, uuids: Collection[str]
) -> Mapping[str, str]:
    """The instances that the deployment maps to another cell of the fleet, with the uuid of that cell in the fleet.

    An instance in a cell that the fleet does not follow is left out, so that this cell shows it. Raises
    CellUnreachableError.
    """
    if not uuids or deployment is None or owners is None or (url := deployment.cell.api_database_url) is None:
        return {}
    homes = deployment.living_elsewhere(uuids)
    if not homes:
        return {}
    try:
        followed = owners.cells_of_deployment(url)
    except FleetUnreachableError as error:
        _log.warning("indexer.owners_unknown", cell=deployment.cell.uuid, reason=error.reason)
        return homes
    return {uuid: followed[home] for uuid, home in homes.items() if home in followed}


class OwnWriter:
    """Writes documents of one cell, and refuses those of instances of other cells.

    deployment: has mappings of its own, as a deployment of Nova does. An instance that it maps to another cell is
    written with a version that any other document replaces: while an instance moves, both cells may show a row, and
    the other cell may not have been read yet. has_rows: every document comes from a row of the cell, and none from an
    announcement. Threads may share one: a thread may see what another remembers a moment late, which does no harm.
    """

    def __init__(
        self,
        writer: WritesAndReads,
        cell_uuid: str,
        owners: KnowsOwners,
        deployment: ConfirmsInstances | None = None,
        *,
        has_rows: bool = False,
    ) -> None:
        self._has_rows = has_rows
        self._writer = writer
        self._cell_uuid = cell_uuid
        self._owners = owners
        self._deployment = deployment
        self._own: set[str] = set()
        self._elsewhere: dict[str, str] = {}
        self._forget_at_s = 0.0

    def write(self, documents: Iterable[Document]) -> WriteResult:
        """As the writer; documents of other cells' instances are among the rejected ones."""
        documents = list(documents)
        self._forget_what_is_old()
        # An item of another type needs no check: no other cell's document can take its place in the index.
        unknown = {each.id: each.version for each in documents if each.is_instance and each.id not in self._own}
        refused = self._refused(unknown)
        if giving_way := self._mapped_elsewhere(unknown.keys() - refused.keys()):
            self._own -= giving_way
            documents = [
                structs.replace(each, version=GIVES_WAY) if each.id in giving_way else each for each in documents
            ]
        if not refused:
            return self._writer.write(documents)
        rejected = tuple(Rejection(each, refused[each.id]) for each in documents if each.id in refused)
        result = self._writer.write([document for document in documents if document.id not in refused])
        return replace(result, rejected=result.rejected + rejected)

    def read(self, ids: Collection[str]) -> Mapping[str, Document]:
        """As the writer; remembers the documents of other cells."""
        found = self._writer.read(ids)
        self._remember(found)
        return found

    def _remember(self, found: Mapping[str, Document]) -> None:
        if len(self._elsewhere) > _MOST_REMEMBERED:
            self._elsewhere.clear()
        for uuid, document in found.items():
            if document.cell_uuid == self._cell_uuid:
                self._elsewhere.pop(uuid, None)
            else:
                self._own.discard(uuid)
                self._elsewhere[uuid] = document.cell_uuid

    def _refused(self, versions: Mapping[str, int]) -> Mapping[str, str]:
        """By uuid, why a document is not written."""
        if not versions:
            return {}
        unknown = versions.keys()
        try:
            others = dict(self._owners.living_elsewhere(self._cell_uuid, unknown))
        except FleetUnreachableError:
            return self._refused_by_index(versions)
        in_index = self._known_elsewhere(unknown - others.keys())
        if in_index:
            moved = self._moved(in_index)
            others |= {uuid: cell for uuid, cell in in_index.items() if uuid not in moved}
            for uuid in moved:
                self._elsewhere.pop(uuid, None)
        self._own.update(unknown - others.keys())
        return _belonging_to(others)

    def _refused_by_index(self, versions: Mapping[str, int]) -> Mapping[str, str]:
        """As `_refused`, from the index alone, while the fleet database is down."""
        found = self._writer.read(versions)
        self._remember(found)
        announced = {uuid for uuid, version in versions.items() if is_time(version) and not self._has_rows}
        unconfirmed = dict.fromkeys(announced - found.keys(), _UNCONFIRMED)
        return unconfirmed | _belonging_to(self._known_elsewhere(versions))

    def _known_elsewhere(self, uuids: Collection[str]) -> dict[str, str]:
        # One step for each uuid: another thread may forget some meanwhile.
        found = {uuid: self._elsewhere.get(uuid) for uuid in uuids}
        return {uuid: cell for uuid, cell in found.items() if cell is not None}

    def _mapped_elsewhere(self, uuids: Collection[str]) -> Set[str]:
        """The instances that the deployment of the cell maps to another cell of the fleet; none while it is down."""
        try:
            return followed_homes(self._deployment, self._owners, uuids).keys()
        except CellUnreachableError as error:
            _log.warning("indexer.owners_unknown", cell=self._cell_uuid, reason=str(error))
            return set()

    def _moved(self, uuids: Collection[str]) -> Collection[str]:
        """The instances whose mapping, in the fleet or the deployment, confirms that they live in this cell now."""
        try:
            mapped = self._owners.cells_of(uuids)
            here = {uuid for uuid, cell in mapped.items() if cell == self._cell_uuid}
            unmapped = set(uuids) - mapped.keys()
            return here | set(self._deployment.confirm_here(unmapped) if self._deployment and unmapped else ())
        except (CellUnreachableError, FleetUnreachableError) as error:
            _log.warning("indexer.owners_unknown", cell=self._cell_uuid, reason=str(error))
            return ()

    def _forget_what_is_old(self) -> None:
        now_s = time.monotonic()
        if now_s >= self._forget_at_s or len(self._own) > _MOST_REMEMBERED:
            self._own.clear()
            self._forget_at_s = now_s + _REMEMBERED_S


def _belonging_to(cells: Mapping[str, str]) -> dict[str, str]:
    return {uuid: f"the instance belongs to cell {cell}" for uuid, cell in cells.items()}
