"""Whatever the bus does to the order and the number of messages, the index ends up equal to the cell."""

from collections.abc import Sequence
from functools import partial

from hypothesis import given, settings
from hypothesis import strategies as st

from fleetlight.bus.bus import Message
from fleetlight.indexer.backends.base import CellProgress
from fleetlight.indexer.settings import IndexerSettings
from fleetlight.indexer.writing.progress import ProgressTracker
from fleetlight.indexer.writing.rereading import rows_of
from tests.support.examples import examples
from tests.support.memory.memory_bus import MemoryBus
from tests.support.memory.memory_cell import CELL_UUID, MemoryCell
from tests.support.memory.memory_consumer import MemoryConsumer
from tests.support.memory.memory_index import MemoryIndex, versions

_INSTANCES = tuple(f"7a1d5a0a-90b1-4f36-8f6e-00000000000{number}" for number in range(3))
_HOSTS = ("a", "b", None)


@st.composite
def disturbed(draw: st.DrawFn, count: int) -> list[int]:
    """Sequences 1 to `count`, each at least once, in any order."""
    again = draw(st.lists(st.integers(1, count), max_size=count)) if count else []
    return list(draw(st.permutations([*range(1, count + 1), *again])))


@st.composite
def histories(draw: st.DrawFn) -> tuple[MemoryCell, list[Message], list[int]]:
    """A cell with some changes, the heartbeat after each, and the order in which the bus brings the changes."""
    cell = MemoryCell()
    steps = draw(st.lists(st.tuples(st.sampled_from(_INSTANCES), st.sampled_from(_HOSTS), st.booleans()), max_size=12))
    heartbeats = []
    for uuid, host, is_deletion in steps:
        row = cell.rows.get(uuid)
        if row is None:
            cell.create(uuid=uuid, host=host)
        elif row.record["deleted"]:
            continue
        elif is_deletion:
            cell.delete(uuid)
        else:
            cell.update(uuid, host=host)
        heartbeats.append(cell.heartbeat(at=cell.last_sequence))
    return cell, heartbeats, draw(disturbed(cell.last_sequence))


def _consume(cell: MemoryCell, messages: Sequence[Message], batch_size: int) -> tuple[MemoryIndex, ProgressTracker]:
    bus, index = MemoryBus(), MemoryIndex()
    bus.waiting.extend(messages)
    settings = IndexerSettings(batch_max_messages=batch_size, retry_wait_max_s=0.01)
    consumer = MemoryConsumer(CELL_UUID, index, bus.receiver(), settings, partial(rows_of, cell))
    while consumer.step():
        pass
    consumer.close()
    assert bus.acknowledged == len(messages)
    return index, consumer.tracker


@given(histories(), st.integers(1, 5))
@settings(max_examples=examples(60))
def test_any_order_and_repetition_of_messages_leaves_the_same_index(
    history: tuple[MemoryCell, list[Message], list[int]], batch_size: int
) -> None:
    cell, heartbeats, order = history
    changes = [cell.message_of(cell.changes[sequence - 1]) for sequence in order]
    index, tracker = _consume(cell, [*changes, *heartbeats], batch_size)
    assert versions(index) == cell.versions()
    assert {uuid: document.record for uuid, document in index.documents.items()} == {
        uuid: row.record for uuid, row in cell.rows.items()
    }
    assert tracker.watermark == cell.last_sequence
    assert tracker.snapshot().fresh_as_of == cell.last_sequence


@given(st.data(), st.integers(1, 30))
def test_any_order_and_repetition_of_sequences_gives_the_same_watermark(data: st.DataObject, count: int) -> None:
    tracker = ProgressTracker(CellProgress(CELL_UUID, 0, 0, is_complete=True))
    arrived: set[int] = set()
    for sequence in data.draw(disturbed(count)):
        arrived.add(sequence)
        tracker.add([sequence])
        gap = next(number for number in range(1, count + 2) if number not in arrived)
        assert tracker.watermark == gap - 1, "up to the first hole, never past it"
    assert tracker.watermark == count


@given(st.data(), st.integers(2, 30))
def test_hole_never_lets_the_watermark_pass(data: st.DataObject, count: int) -> None:
    hole = data.draw(st.integers(1, count))
    tracker = ProgressTracker(CellProgress(CELL_UUID, 0, 0, is_complete=True))
    tracker.add(sequence for sequence in data.draw(disturbed(count)) if sequence != hole)
    tracker.heard(count, at=1)
    assert tracker.watermark == hole - 1
    assert tracker.snapshot().fresh_as_of == 0
    tracker.add([hole])
    assert (tracker.watermark, tracker.snapshot().fresh_as_of) == (count, 1)
