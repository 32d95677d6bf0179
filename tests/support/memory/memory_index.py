"""An index that lives in memory and can be made to fail."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

import msgspec

from fleetlight.cells.digests import RangeDigest, digests_of
from fleetlight.indexer.backends.base import (
    OLDEST_TIME_VERSION,
    CellProgress,
    Document,
    Rejection,
    WriteResult,
    ignore_removed,
)
from fleetlight.indexer.backends.seal import AreRight, Breach
from fleetlight.indexer.errors import IndexPausedError, IndexReplacedError, IndexUnavailableError
from fleetlight.query.retention import forgotten, remembered
from fleetlight.resources.clock import Clock, system_clock
from fleetlight.resources.instance import INSTANCE_FIELDS
from tests.support.oracles.filter_oracle import is_kept


class MemorySeal:
    """The seal of an index in memory: what is put into `breaches` is found, one after the other."""

    def __init__(self) -> None:
        self.clock: Clock = system_clock
        self.held_at = 0
        self.breaches: list[Breach] = []
        self.mended: list[Breach] = []

    def check(self, _are_right: AreRight, _tolerance_s: float) -> Breach | None:
        if self.breaches:
            return self.breaches.pop(0)
        self.held_at = self.clock()
        return None

    def mend(self, breach: Breach) -> None:
        self.mended.append(breach)


@dataclass
class MemoryIndex:
    """An IndexWriter.

    failures: how many of the next calls fail. is_blocked: writes fail. refused: uuid -> why it is rejected.
    overtaken_by: runs once, between the load of progress and a save over it.
    """

    documents: dict[str, Document] = field(default_factory=dict)
    searchable: dict[str, Document] = field(default_factory=dict)
    saved: dict[str, CellProgress] = field(default_factory=dict)
    state: dict[str, dict[str, Any]] = field(default_factory=dict)
    stored_items: dict[tuple[str, str, str], Document] = field(default_factory=dict)
    whole_items: set[tuple[str, str]] = field(default_factory=set)
    writes: list[int] = field(default_factory=list)
    reads: list[set[str]] = field(default_factory=list)
    failures: int = 0
    refused: dict[str, str] = field(default_factory=dict)
    before_write: Callable[[], object] | None = None
    is_replaced: bool = False
    overtaken_by: Callable[[], object] | None = None
    is_blocked: bool = False
    seal: MemorySeal = field(default_factory=MemorySeal)
    _lock: Any = field(default_factory=Lock)

    def prepare(self) -> None:
        self._maybe_fail()
        self.is_replaced = False

    def replace(self) -> None:
        """Somebody removes the index and makes an empty one."""
        with self._lock:
            self.documents, self.searchable, self.saved, self.state = {}, {}, {}, {}
            self.is_replaced = True

    def write(self, documents: Iterable[Document]) -> WriteResult:
        documents = list(documents)
        if self.before_write is not None:
            self.before_write()
        with self._lock:
            self._maybe_fail()
            if self.is_blocked:
                raise IndexPausedError("writing is paused")
            self.writes.append(len(documents))
            applied, rejected = 0, []
            for document in documents:
                if document.id in self.refused:
                    rejected.append(Rejection(document, self.refused[document.id]))
                    continue
                if not document.is_instance:
                    applied += self._write_item(document)
                    continue
                known = self.documents.get(document.id)
                if known is None or document.version > known.version:
                    self.documents[document.id] = document
                    applied += 1
            return WriteResult(applied, len(documents) - applied - len(rejected), tuple(rejected))

    def _write_item(self, document: Document) -> bool:
        key = (document.item_type, document.cell_uuid, document.id)
        known = self.stored_items.get(key)
        if known is not None and known.version >= document.version:
            return False
        self.stored_items[key] = document
        return True

    def items(self, item_type: str, cell_uuid: str) -> Mapping[str, Document]:
        self._maybe_fail()
        of_cell = {key: each for key, each in self.stored_items.items() if key[:2] == (item_type, cell_uuid)}
        return {uuid: document for (_, _, uuid), document in of_cell.items()}

    def remove_items(self, item_type: str, cell_uuid: str, versions: Mapping[str, int]) -> None:
        for uuid, version in versions.items():
            known = self.stored_items.get((item_type, cell_uuid, uuid))
            if known is not None and known.version <= version:
                del self.stored_items[item_type, cell_uuid, uuid]

    def mark_items(self, item_type: str, cell_uuid: str, *, are_whole: bool) -> None:
        self._maybe_fail()
        self.whole_items.discard((item_type, cell_uuid))
        if are_whole:
            self.whole_items.add((item_type, cell_uuid))

    def are_items_whole(self, item_type: str, cell_uuid: str) -> bool:
        self._maybe_fail()
        return (item_type, cell_uuid) in self.whole_items

    def make_searchable(self) -> None:
        with self._lock:
            self._maybe_fail()
            if self.is_replaced:
                raise IndexReplacedError("memory")
            self.searchable = dict(self.documents)

    def read(self, ids: Collection[str]) -> Mapping[str, Document]:
        with self._lock:
            self._maybe_fail()
            self.reads.append(set(ids))
            return {uuid: self.documents[uuid] for uuid in ids if uuid in self.documents}

    def open_seal(self, clock: Clock) -> MemorySeal:
        self.seal.clock = clock
        return self.seal

    def versions(self, ids: Collection[str]) -> Mapping[str, int]:
        return {uuid: document.version for uuid, document in self.read(ids).items()}

    def digests(
        self, cell_uuid: str, prefixes: Sequence[str], length: int, *, horizon: int = 0, external: bool = False
    ) -> Mapping[str, RangeDigest]:
        self._maybe_fail()
        return digests_of(self._versions(cell_uuid, horizon, external), prefixes, length)

    def revisions(
        self, cell_uuid: str, prefixes: Sequence[str], *, horizon: int = 0, external: bool = False
    ) -> Mapping[str, int]:
        versions = self._versions(cell_uuid, horizon, external)
        return {uuid: version for uuid, version in versions.items() if uuid.startswith(tuple(prefixes))}

    def count_external(self, cell_uuid: str) -> int:
        return len(self._versions(cell_uuid, 0, external=True))

    def remove(self, versions: Mapping[str, int]) -> None:
        for uuid, version in versions.items():
            if uuid in self.documents and self.documents[uuid].version <= version:
                del self.documents[uuid]

    def _versions(self, cell_uuid: str, horizon: int, external: bool) -> dict[str, int]:
        kept = remembered(horizon)
        return {
            uuid: document.version
            for uuid, document in self.searchable.items()
            if document.cell_uuid == cell_uuid
            and (document.version >= OLDEST_TIME_VERSION) == external
            and is_kept(kept, document.record, INSTANCE_FIELDS)
        }

    def purge(self, cell_uuid: str, horizon: int, on_batch: Callable[[int], None] = ignore_removed) -> int:
        dropped = forgotten(horizon)
        with self._lock:
            self._maybe_fail()
            gone = [
                uuid
                for uuid, document in self.documents.items()
                if document.cell_uuid == cell_uuid and is_kept(dropped, document.record, INSTANCE_FIELDS)
            ]
            for uuid in gone:
                del self.documents[uuid]
            self.searchable = dict(self.documents)
            on_batch(len(gone))
            return len(gone)

    def save_progress(
        self, progress: Sequence[CellProgress], over: Mapping[str, CellProgress] | None = None
    ) -> Set[str]:
        if over is not None and (act := self.overtaken_by) is not None:
            self.overtaken_by = None
            act()
        with self._lock:
            self._maybe_fail()
            if self.is_replaced:
                raise IndexReplacedError("memory")
            changed = {uuid for uuid, known in (over or {}).items() if self.saved.get(uuid) != known}
            self.saved |= {cell.cell_uuid: cell for cell in progress if cell.cell_uuid not in changed}
            return changed.intersection(cell.cell_uuid for cell in progress)

    def load_progress(self) -> Mapping[str, CellProgress]:
        self._maybe_fail()
        return dict(self.saved)

    def count_extra_fields(self) -> Mapping[str, int]:
        extras = [document.extra for document in self.searchable.values() if document.extra is not None]
        return Counter(field for extra in extras for field in extra.fields)

    def find_extra(self, terms: Sequence[str], limit: int) -> Sequence[str]:
        return sorted(
            uuid
            for uuid, document in self.searchable.items()
            if document.extra is not None and not set(terms).isdisjoint(document.extra.terms)
        )[:limit]

    def save_state(self, kind: str, values: Mapping[str, object | None]) -> None:
        with self._lock:
            self._maybe_fail()
            facts = self.state.setdefault(kind, {})
            for name, value in values.items():
                facts.pop(name, None)
                if value is not None:
                    facts[name] = msgspec.json.decode(msgspec.json.encode(value))

    def load_state(self, kind: str) -> Mapping[str, Any]:
        self._maybe_fail()
        return dict(self.state.get(kind, {}))

    def allow_writes(self) -> None:
        with self._lock:
            self.is_blocked = False

    def remove_cell(self, cell_uuid: str, on_batch: Callable[[int], None] = ignore_removed) -> int:
        with self._lock:
            self._maybe_fail()
            self.saved.pop(cell_uuid, None)
            removed = [uuid for uuid, document in self.documents.items() if document.cell_uuid == cell_uuid]
            for uuid in removed:
                del self.documents[uuid]
            self.searchable = dict(self.documents)
            on_batch(len(removed))
            return len(removed)

    def close(self) -> None:
        """Nothing to let go of."""

    def _maybe_fail(self) -> None:
        if self.failures:
            self.failures -= 1
            raise IndexUnavailableError("the index is away")


def versions(index: MemoryIndex) -> dict[str, int]:
    return {uuid: document.version for uuid, document in index.documents.items()}
