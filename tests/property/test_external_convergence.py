"""Notifications of Nova in any order and repetition leave the index as the cell is."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from fleetlight.bus.bus import Message
from fleetlight.indexer.reconcile.external_cell import ExternalRows, compare_cell
from fleetlight.indexer.settings import IndexerSettings
from fleetlight.indexer.stream.received_batch import MessageReading
from fleetlight.indexer.transform.batches import RowReading
from fleetlight.indexer.writing.rereading import rows_of
from tests.support.examples import examples
from tests.support.fleets.documents import make_uuid
from tests.support.memory.memory_bus import MemoryBus
from tests.support.memory.memory_consumer import MemoryConsumer
from tests.support.memory.memory_index import MemoryIndex
from tests.support.played.nova_cell import NOVA_CELL, MemoryNovaCell

_EVENTS = ("instance.update", "instance.reboot.end", "instance.live_migration_post.end", "instance.resize.end")


@st.composite
def histories(draw: st.DrawFn) -> tuple[MemoryNovaCell, list[Message]]:
    """A cell with some changes, and what the bus brings of it: late, repeated, and as somebody saw it before that."""
    cell = MemoryNovaCell()
    messages: list[Message] = []
    seen: list[dict[str, Any]] = []
    for number, kind in draw(st.lists(st.tuples(st.integers(1, 2), st.integers(0, 4)), max_size=8)):
        uuid = make_uuid(number)
        if uuid not in cell.rows:
            cell.create(number)
        elif cell.rows[uuid]["deleted"]:
            continue
        elif kind == 0:
            cell.destroy(uuid)
        elif kind == 1:
            cell.save_beside(uuid, tags=[f"t{cell.now}"], security_groups=["web"])
        else:
            cell.save(uuid, host=f"h{cell.now}", access_ip_v4="10.0.0.1")
        seen.append(cell.snapshot(uuid))
        event = "instance.delete.end" if cell.rows[uuid]["deleted"] else draw(st.sampled_from(_EVENTS))
        messages.append(cell.notify(seen[-1], event))
        if draw(st.booleans()):
            messages.append(cell.notify(draw(st.sampled_from(seen)), draw(st.sampled_from(_EVENTS))))
    again = draw(st.lists(st.sampled_from(messages), max_size=3)) if messages else []
    return cell, draw(st.permutations([*messages, *again]))


class _Consuming:
    """A consumer of the bus of that cell, into an index of its own."""

    def __init__(self, cell: MemoryNovaCell, batch_size: int) -> None:
        self.index = MemoryIndex()
        self.bus = MemoryBus()
        read = partial(rows_of, cell)
        self.consumer = MemoryConsumer(
            NOVA_CELL.uuid,
            self.index,
            self.bus.receiver(),
            IndexerSettings(batch_max_messages=batch_size, retry_wait_max_s=0.01),
            read,
            reading=MessageReading(lambda _headers, _body: False, rows=RowReading(read)),
            renders=lambda writer: ExternalRows(cell, writer).documents,
        )

    def consume(self, messages: Sequence[Message]) -> None:
        self.bus.waiting.extend(messages)
        while self.consumer.step():
            pass
        self.consumer.drain()

    def close(self) -> None:
        self.consumer.close()

    @property
    def records(self) -> dict[str, Any]:
        return {uuid: document.record for uuid, document in self.index.documents.items()}


@given(histories(), st.integers(1, 4))
@settings(max_examples=examples(60))
def test_any_order_and_repetition_of_notifications_leaves_the_index_as_the_cell_is(
    history: tuple[MemoryNovaCell, list[Message]], batch_size: int
) -> None:
    cell, messages = history
    consuming = _Consuming(cell, batch_size)
    consuming.consume(messages)
    consuming.close()
    assert consuming.records == cell.rows


@given(histories(), st.data())
@settings(max_examples=examples(60))
def test_index_is_as_the_cell_is_also_if_that_was_away_for_a_while(
    history: tuple[MemoryNovaCell, list[Message]], data: st.DataObject
) -> None:
    cell, messages = history
    consuming = _Consuming(cell, 2)
    compare_cell(cell, consuming.index, batch_size=2)
    away_until = data.draw(st.integers(0, len(messages)))
    cell.is_away = True
    consuming.consume(messages[:away_until])
    cell.is_away = False
    consuming.consume(messages[away_until:])
    consuming.consumer.rereader.work(1e9)
    consuming.close()
    assert consuming.records == cell.rows
    assert not consuming.consumer.tracker.unindexed
