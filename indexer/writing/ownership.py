"""Whose an instance is: what arrives for one cell never takes the place of another cell's document.

The mapping of the fleet database decides. An instance that it gives to another cell is not written, and one that the
index is known to have as another cell's only if the mapping says that it lives here now: it has moved. So one look at
the mappings is enough for all that is written together, and answers with nothing as long as all is right. While the
fleet database is away, the index itself is asked whose it has.
"""

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import replace
from threading import Thread
from typing import Protocol

import structlog

from cells.errors import CellUnreachableError, FleetUnreachableError
from cells.model import CellAdapter, ConfirmsInstances
from indexer.backends.base import Document, Rejection, WriteResult
from indexer.writing.compared_index import ComparedIndex, ComparedLayer
from indexer.writing.retrying_writer import WritesAndReads

_log = structlog.get_logger(__name__)

# A move is noticed after that long by who has written the instance before.
_REMEMBERED_S = 30.0
# Who waits for a database that is away at each write falls behind.
_ASK_AGAIN_S = 5.0
# A database that hangs must not keep messages waiting.
_PATIENCE_S = 2.0
_MOST_REMEMBERED = 100_000

Confirms = Callable[[Collection[str]], Collection[str]]
"""Which of some instances live in the cell, as somebody says who maps instances to cells; raises CellUnreachableError,
FleetUnreachableError."""


class KnowsOwners(Protocol):
    """The part of cells.fleet.fleet.Fleet that knows where instances live; raises FleetUnreachableError."""

    def cells_of(self, instance_uuids: Collection[str]) -> Mapping[str, str]: ...
    def living_elsewhere(self, cell_uuid: str, instance_uuids: Collection[str]) -> Mapping[str, str]: ...


def confirms_of(adapter: CellAdapter) -> Confirms | None:
    """What a cell's own deployment says of where its instances live; None for a cell that has no such thing."""
    return adapter.confirm_here if isinstance(adapter, ConfirmsInstances) else None


class OwnWriter:
    """Writes documents of one cell, and refuses those of instances that are another cell's.

    confirms: who else maps instances to cells, as a deployment of Nova does. One thread at a time is all it takes care
    of in what it remembers; that another one sees it a moment later does no harm.
    """

    def __init__(
        self, writer: WritesAndReads, cell_uuid: str, owners: KnowsOwners, confirms: Confirms | None = None
    ) -> None:
        self._writer = writer
        self._cell_uuid = cell_uuid
        self._owners = owners
        self._confirms = confirms
        self._own: set[str] = set()
        self._elsewhere: dict[str, str] = {}
        self._forget_at_s = 0.0
        self._ask_at_s = 0.0

    def write(self, documents: Iterable[Document]) -> WriteResult:
        """As the writer does; documents of other cells' instances are among the rejected ones."""
        documents = list(documents)
        others = self._others({document.id for document in documents})
        if not others:
            return self._writer.write(documents)
        refused = tuple(
            Rejection(document, f"the instance belongs to cell {others[document.id]}")
            for document in documents
            if document.id in others
        )
        result = self._writer.write([document for document in documents if document.id not in others])
        return replace(result, rejected=result.rejected + refused)

    def read(self, ids: Collection[str]) -> Mapping[str, Document]:
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

    def _others(self, uuids: Collection[str]) -> Mapping[str, str]:
        """Those that are another cell's, and whose."""
        self._forget_what_is_old()
        unknown = set(uuids) - self._own
        if not unknown:
            return {}
        others = self._mapped_elsewhere(unknown)
        if others is None:
            self._remember(self._writer.read(unknown))
            return self._known_elsewhere(unknown)
        in_index = self._known_elsewhere(unknown - others.keys())
        if in_index:
            moved = self._moved(in_index)
            others |= {uuid: cell for uuid, cell in in_index.items() if uuid not in moved}
            for uuid in moved:
                self._elsewhere.pop(uuid, None)
        self._own.update(unknown - others.keys())
        return others

    def _known_elsewhere(self, uuids: Collection[str]) -> dict[str, str]:
        # In one step each: another thread may forget some meanwhile.
        found = {uuid: self._elsewhere.get(uuid) for uuid in uuids}
        return {uuid: cell for uuid, cell in found.items() if cell is not None}

    def _mapped_elsewhere(self, uuids: Collection[str]) -> dict[str, str] | None:
        """None while the mappings cannot be asked."""
        if time.monotonic() < self._ask_at_s:
            return None
        try:
            return dict(_answer_within(_PATIENCE_S, lambda: self._owners.living_elsewhere(self._cell_uuid, uuids)))
        except FleetUnreachableError as error:
            _log.warning("indexer.owners_unknown", cell=self._cell_uuid, reason=error.reason)
            self._ask_at_s = time.monotonic() + _ASK_AGAIN_S
            return None

    def _moved(self, uuids: Collection[str]) -> Collection[str]:
        """Those of which it is confirmed that they live in this cell now."""
        try:
            mapped = _answer_within(_PATIENCE_S, lambda: self._owners.cells_of(uuids))
            here = {uuid for uuid, cell in mapped.items() if cell == self._cell_uuid}
            unmapped = set(uuids) - mapped.keys()
            return here | set(self._confirms(unmapped) if self._confirms and unmapped else ())
        except (CellUnreachableError, FleetUnreachableError) as error:
            _log.warning("indexer.owners_unknown", cell=self._cell_uuid, reason=str(error))
            return ()

    def _forget_what_is_old(self) -> None:
        now_s = time.monotonic()
        if now_s >= self._forget_at_s or len(self._own) > _MOST_REMEMBERED:
            self._own.clear()
            self._forget_at_s = now_s + _REMEMBERED_S


def _answer_within(deadline_s: float, ask: Callable[[], Mapping[str, str]]) -> Mapping[str, str]:
    """What `ask` returns or raises; raises FleetUnreachableError when it takes longer, and leaves it to itself."""
    answer: Future[Mapping[str, str]] = Future()

    def run() -> None:
        try:
            answer.set_result(ask())
        except BaseException as error:  # noqa: BLE001  # whoever waits gets it
            answer.set_exception(error)

    # Nobody waits for its end either, at the end of the process for example.
    Thread(target=run, name="owners", daemon=True).start()
    try:
        return answer.result(deadline_s)
    except TimeoutError:
        raise FleetUnreachableError(f"it does not answer within {deadline_s:g} s") from None


class OwnIndex(ComparedLayer, OwnWriter):
    """As OwnWriter, for a comparison of all rows."""

    def __init__(
        self, index: ComparedIndex, cell_uuid: str, owners: KnowsOwners, confirms: Confirms | None = None
    ) -> None:
        OwnWriter.__init__(self, index, cell_uuid, owners, confirms)
        self._index = index
