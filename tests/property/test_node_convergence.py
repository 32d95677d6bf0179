"""Whatever nodes go through, and whatever the bus does to what is said of them, the index ends up equal to the cell."""

from collections.abc import Callable, Sequence
from contextlib import closing
from itertools import count

from hypothesis import given, settings
from hypothesis import strategies as st

from fleetlight.bus.bus import Message
from fleetlight.cells.fleet.producer_keys import RefusedAnnouncement
from fleetlight.cells.kinds.native.adapter import NativeAdapter
from fleetlight.indexer.reconcile.other_items import verify_other_items
from fleetlight.indexer.settings import IndexerSettings
from fleetlight.indexer.transform.other_items import OtherItemChange, other_item_document
from fleetlight.indexer.writing.catch_up import catch_up
from tests.support.examples import examples
from tests.support.fleets.cell_databases import native_cell
from tests.support.fleets.changing_nodes import ChangingNodes
from tests.support.memory.memory_bus import MemoryBus
from tests.support.memory.memory_consumer import MemoryConsumer
from tests.support.memory.memory_index import MemoryIndex

_REFUSED = RefusedAnnouncement("no announcement is taken")
_HOSTS = ("host1", "host2", "host3")
_numbers = count()
Change = Callable[[ChangingNodes], object]


def _changes(host: str) -> st.SearchStrategy[Change]:
    return st.sampled_from(
        (
            lambda nodes: nodes.disable(host, disabled=True),
            lambda nodes: nodes.disable(host, disabled=False),
            lambda nodes: nodes.force_down(host, forced_down=True),
            lambda nodes: nodes.give_agent(host, f"{host}:1811"),
            lambda nodes: nodes.give_agent(host, None),
            lambda nodes: nodes.tag(host, f"tag{next(_numbers)}"),
            lambda nodes: nodes.set_node(host, ndparams={"spindle_count": 7}),
            lambda nodes: nodes.find(host, "down"),
            lambda nodes: nodes.find(host, "up"),
            lambda nodes: nodes.set_group("default", spindle_count=next(_numbers) % 9 + 1),
            lambda nodes: nodes.set_cell(spindle_count=next(_numbers) % 9 + 1),
            lambda nodes: (nodes.remove(host), nodes.add(host)),
        )
    )


# Which messages arrive, in which order: some are lost, others come again. How many there are depends on what was
# changed before, so places are drawn without it.
_DELIVERIES = st.lists(st.integers(0, 63), max_size=32)


@given(st.lists(st.sampled_from(_HOSTS).flatmap(_changes), max_size=6), st.data())
@settings(max_examples=examples(15))
def test_lost_repeated_and_disordered_messages_leave_the_nodes_of_the_cell(
    changes: Sequence[Change], data: st.DataObject
) -> None:
    with native_cell() as (engine, fleet, cell):
        nodes = ChangingNodes(engine, fleet, cell, _HOSTS)
        for change in changes:
            change(nodes)
        messages = nodes.publish()
        with closing(NativeAdapter(cell)) as adapter:
            index = MemoryIndex()
            arrived = [messages[place % len(messages)] for place in data.draw(_DELIVERIES) if messages]
            _consume(adapter, index, arrived, batch_size=data.draw(st.integers(1, 4)))
            rows = adapter.item_rows("node").rows
            living = {
                uuid: document
                for uuid, document in index.items("node", cell.uuid).items()
                if not document.record["deleted"]
            }
            assert living == {
                row.uuid: other_item_document(cell.uuid, OtherItemChange("node", row.revision, row.record))
                for row in rows
                if row.record is not None
            }
            assert len(living) == len(_HOSTS)
            assert not verify_other_items(adapter, index, "node", 0, repair=False).differences


def _consume(adapter: NativeAdapter, index: MemoryIndex, messages: Sequence[Message], batch_size: int) -> None:
    """All that the bus brings, and then what it has lost, from the changelog."""
    bus = MemoryBus()
    bus.waiting.extend(messages)
    settings = IndexerSettings(batch_max_messages=batch_size, retry_wait_max_s=0.01)
    consumer = MemoryConsumer(adapter.cell.uuid, index, bus.receiver(), settings, lambda _: {})
    while consumer.step():
        pass
    assert catch_up(
        adapter,
        consumer.writer,
        consumer.tracker,
        announcer=_REFUSED,
        dead_letters=_none,
        batch_size=3,
        on_batch=lambda: None,
    )
    consumer.close()


def _none(dead: Sequence[object]) -> None:
    assert not dead
