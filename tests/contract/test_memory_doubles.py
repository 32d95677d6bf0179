"""What stands in memory for an index and for a native cell answers as those do: the same calls, the same answers."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine

from fleetlight.bus.bus import Message
from fleetlight.cells.fleet.fleet import Fleet
from fleetlight.cells.kinds.native.adapter import NativeAdapter
from fleetlight.cells.kinds.native.relay import Relay
from fleetlight.cells.model import NO_INSTANCE, Cell, ChangelogAdapter
from fleetlight.cells.settings import RelaySettings
from fleetlight.indexer.backends.base import OLDEST_TIME_VERSION, CellProgress, IndexWriter
from fleetlight.indexer.backends.opening import open_writer
from fleetlight.indexer.backends.settings import IndexSettings
from fleetlight.query.filters import EVERYTHING, Ge
from fleetlight.query.page import PageRequest
from fleetlight.query.sort import Direction, SortKey, SortOrder
from fleetlight.resources.instance import INSTANCE_FIELDS
from tests.support.fleets import cell_databases
from tests.support.fleets.documents import make_document, make_uuid
from tests.support.fleets.instance_operations import InstanceOperations
from tests.support.memory.memory_cell import MemoryCell
from tests.support.memory.memory_index import MemoryIndex

fleet, cell, engine = cell_databases.fleet, cell_databases.cell, cell_databases.engine

OLD, LATER = 1_000, 2_000
DOCUMENTS = [
    *(make_document(number, cell_uuid="c0", version=number) for number in range(1, 7)),
    *(make_document(number, cell_uuid="c1", version=OLDEST_TIME_VERSION + number) for number in range(7, 10)),
    make_document(10, cell_uuid="c0", version=3, deleted=True, deleted_at=OLD, updated_at=OLD),
    make_document(11, cell_uuid="c0", version=3, deleted=True, deleted_at=OLD, updated_at=LATER),
    make_document(12, cell_uuid="c0", version=OLDEST_TIME_VERSION, deleted=True, deleted_at=OLD),
]
UUIDS = [make_uuid(number) for number in range(14)]
PREFIXES = ("", make_uuid(1)[:-1], make_uuid(16)[:-1])


@pytest.fixture
def written(tmp_path: Path) -> Iterator[IndexWriter]:
    writer = open_writer(IndexSettings(backend="sqlite", path=tmp_path / "index.db"))
    with closing(writer):
        writer.prepare()
        yield writer


def compared(index: IndexWriter) -> list[Any]:
    """Everything that can be asked of an index."""
    return [
        index.read(UUIDS),
        index.load_progress(),
        index.load_state("kind"),
        index.count_extra_fields(),
        index.find_extra(["a"], 5),
        *(index.count_external(uuid) for uuid in ("c0", "c1", "c2")),
        *(
            ask(uuid, PREFIXES[:1], *more, horizon=horizon, external=external)
            for ask, more in ((index.digests, (2,)), (index.revisions, ()))
            for uuid in ("c0", "c1", "c2")
            for horizon in (0, LATER)
            for external in (False, True)
        ),
        [index.revisions("c0", PREFIXES[1:])],
    ]


STEPS: dict[str, Callable[[IndexWriter], object]] = {
    "write": lambda index: index.write(DOCUMENTS),
    "older, equal and newer ones": lambda index: index.write(
        [make_document(2, version=1), make_document(3, version=3), make_document(4, version=9, display_name="new")]
    ),
    "progress": lambda index: index.save_progress([CellProgress("c0", 5, 7, is_complete=True)]),
    "newer progress": lambda index: index.save_progress([CellProgress("c0", 6, 8, is_complete=False)]),
    "state": lambda index: index.save_state("kind", {"a": 1, "b": [1, None], "c": {"d": "e"}}),
    "part of the state": lambda index: index.save_state("kind", {"a": None, "b": 2}),
    "remove": lambda index: index.remove({make_uuid(4): 8, make_uuid(5): 5, make_uuid(6): 7, make_uuid(13): 1}),
    "purge": lambda index: index.purge("c0", LATER),
    "remove a cell": lambda index: index.remove_cell("c1"),
}


def test_index_in_memory_answers_as_the_one_in_a_file(written: IndexWriter) -> None:
    memory = MemoryIndex()
    for name, step in STEPS.items():
        assert step(memory) == step(written), name
        memory.make_searchable()
        written.make_searchable()
        assert compared(memory) == compared(written), name


class Nowhere:
    """A bus on which everything arrives."""

    def publish(self, messages: Sequence[Message]) -> None:
        """Nobody listens."""


@pytest.fixture
def native(engine: Engine, cell: Cell) -> Iterator[NativeAdapter]:
    with closing(NativeAdapter(cell)) as adapter:
        yield adapter


def asked(adapter: ChangelogAdapter) -> list[Any]:
    """Everything that can be asked of a cell, but for what its clock and its epochs say."""
    orders = [SortOrder.of(INSTANCE_FIELDS, [SortKey("display_name", direction)]) for direction in Direction]
    requests = [PageRequest(EVERYTHING, order, 10) for order in orders]
    requests += [PageRequest(EVERYTHING, orders[0], 2, ("b", make_uuid(2)))]
    requests += [PageRequest(Ge("display_name", "b"), orders[1], 2, (None, make_uuid(3)))]
    found = adapter.find(make_uuid(2))
    return [
        *([(row.uuid, row.revision) for row in adapter.read_page(request)] for request in requests),
        (adapter.position().sequence, adapter.published_sequence(), adapter.oldest_kept_sequence()),
        [(each.sequence, each.instance_uuid, each.revision) for each in adapter.changes_after(1, 3)],
        adapter.first_external_sequence(0),
        [] if found is None else [found.uuid, found.revision, found.record["display_name"], found.record["deleted"]],
        adapter.find(NO_INSTANCE),
        sorted(adapter.unnumbered(UUIDS)),
        adapter.digests([""], 2),
        adapter.revisions(PREFIXES),
    ]


def test_cell_in_memory_answers_as_a_native_one(
    engine: Engine, fleet: Fleet, cell: Cell, native: NativeAdapter
) -> None:
    operations, memory = InstanceOperations(engine, fleet, cell), MemoryCell(cell.uuid)
    with closing(Relay(engine, cell, Nowhere(), RelaySettings())) as relay:
        assert asked(memory) == asked(native)
        for number, name in ((1, "b"), (2, "a"), (3, None), (4, "b")):
            values = {"uuid": make_uuid(number), "display_name": name}
            memory.create(**values)
            operations.create(values)
        memory.update(make_uuid(2), display_name="b")
        operations.update(make_uuid(2), {"display_name": "b"})
        memory.delete(make_uuid(4))
        operations.delete(make_uuid(4))
        relay.run_once()
        assert asked(memory) == asked(native)
