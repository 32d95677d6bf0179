"""Whatever nodes go through, and whatever the bus does to what is said of them, the index ends up equal to the cell."""

from collections.abc import Callable, Sequence
from contextlib import closing
from itertools import count
from tempfile import TemporaryDirectory
from threading import Event

from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from fleetlight.bus.bus import Message
from fleetlight.cells.capabilities import CellKind
from fleetlight.cells.database.engines import create_database_engine
from fleetlight.cells.fleet.fleet import Fleet
from fleetlight.cells.fleet.producer_keys import RefusedAnnouncement
from fleetlight.cells.kinds.native.adapter import NativeAdapter
from fleetlight.cells.migrations import upgrade_cell, upgrade_fleet
from fleetlight.indexer.backends.base import CellProgress
from fleetlight.indexer.metrics import IndexerMetrics
from fleetlight.indexer.reconcile.other_items import verify_other_items
from fleetlight.indexer.settings import IndexerSettings
from fleetlight.indexer.stream.consumer import Consumer
from fleetlight.indexer.stream.received_batch import MessageReading
from fleetlight.indexer.transform.other_items import OtherItemChange, other_item_document
from fleetlight.indexer.writing.catch_up import catch_up
from fleetlight.indexer.writing.dead_letters import DeadLetters
from fleetlight.indexer.writing.progress import ProgressTracker
from fleetlight.indexer.writing.rereading import Rereader
from fleetlight.indexer.writing.retrying_writer import RetryingWriter
from tests.support.examples import examples
from tests.support.fleets.changing_nodes import ChangingNodes
from tests.support.memory.memory_bus import MemoryBus
from tests.support.memory.memory_fleet import MemoryFailures
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


@st.composite
def _deliveries(draw: st.DrawFn, number: int) -> Sequence[int]:
    """Which of `number` messages arrive, in which order: some are lost, others come again."""
    return draw(st.lists(st.integers(0, number - 1), max_size=2 * number)) if number else []


@given(st.lists(st.sampled_from(_HOSTS).flatmap(_changes), max_size=6), st.data())
@settings(max_examples=examples(15))
def test_lost_repeated_and_disordered_messages_leave_the_nodes_of_the_cell(
    changes: Sequence[Change], data: st.DataObject
) -> None:
    with TemporaryDirectory() as folder:
        fleet_engine = create_database_engine(f"sqlite:///{folder}/fleet.db")
        upgrade_fleet(fleet_engine)
        fleet = Fleet(fleet_engine)
        cell = fleet.add_cell("one", CellKind.NATIVE, f"sqlite:///{folder}/cell.db", "memory://")
        engine = create_database_engine(cell.database_url)
        upgrade_cell(engine)
        nodes = ChangingNodes(engine, fleet, cell, _HOSTS)
        for change in changes:
            change(nodes)
        messages = nodes.publish()
        with closing(NativeAdapter(cell)) as adapter:
            index = MemoryIndex()
            arrived = [messages[place] for place in data.draw(_deliveries(len(messages)))]
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
        engine.dispose()
        fleet.close()


def _consume(adapter: NativeAdapter, index: MemoryIndex, messages: Sequence[Message], batch_size: int) -> None:
    """All that the bus brings, and then what it has lost, from the changelog."""
    cell_uuid = adapter.cell.uuid
    bus, metrics = MemoryBus(), IndexerMetrics(CollectorRegistry())
    bus.waiting.extend(messages)
    tracker = ProgressTracker(CellProgress(cell_uuid, 0, 0, is_complete=True))
    writer = RetryingWriter(
        index,
        cell_uuid,
        Event(),
        retry_wait_max_s=0.01,
        metrics=metrics,
        on_wait=lambda _: None,
        on_answer=lambda: None,
    )
    receiver = bus.receiver()
    dead_letters = DeadLetters(cell_uuid, MemoryFailures(), receiver, metrics)
    consumer = Consumer(
        cell_uuid,
        receiver=receiver,
        writer=writer,
        tracker=tracker,
        rereader=Rereader(cell_uuid, lambda _: {}, writer, tracker, on_reread=dead_letters.was_reread),
        dead_letters=dead_letters,
        settings=IndexerSettings(batch_max_messages=batch_size),
        metrics=metrics,
        reading=MessageReading(lambda _headers, _body: True),
    )
    while consumer.step():
        pass
    assert catch_up(
        adapter, writer, tracker, announcer=_REFUSED, dead_letters=_none, batch_size=3, on_batch=lambda: None
    )
    consumer.close()


def _none(dead: Sequence[object]) -> None:
    assert not dead
