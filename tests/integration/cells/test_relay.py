"""From the outbox to the bus: in order, without holes, at least once, by one relay at a time; on both databases."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, Protocol

import pytest
from prometheus_client import CollectorRegistry
from sqlalchemy import Engine, delete, event, func, select, update
from sqlalchemy.exc import OperationalError
from structlog.testing import capture_logs

from fleetlight.bus.bus import Message
from fleetlight.bus.signatures import SigningKey, signed
from fleetlight.cells.database.engines import create_database_engine
from fleetlight.cells.errors import CellUnreachableError
from fleetlight.cells.kinds.native.adapter import NativeAdapter
from fleetlight.cells.kinds.native.outbox import append_external
from fleetlight.cells.kinds.native.relay import Relay, is_relayed
from fleetlight.cells.kinds.native.relay_metrics import RelayMetrics
from fleetlight.cells.kinds.native.relay_numbers import RelayNumbers
from fleetlight.cells.model import Cell
from fleetlight.cells.payloads.instance_payload import from_payload
from fleetlight.cells.settings import RelaySettings
from fleetlight.cells.tables import cell_state, changes, epochs
from fleetlight.notifications.envelope import LARGEST_BODY_BYTES, Notification, decode, encode
from fleetlight.notifications.errors import BusError, BusUnavailableError, EnvelopeError, MessageRefusedError
from fleetlight.notifications.payloads.fleetlight import CellHeartbeatPayload, FullInstancePayload
from fleetlight.resources.clock import Clock, system_clock
from fleetlight.resources.fields import from_microseconds, to_microseconds
from tests.support.fleets.indexer_worlds import in_thread
from tests.support.fleets.instance_operations import InstanceOperations
from tests.support.traced import RecordedTraces, times
from tests.support.waiting import wait_until

pytestmark = pytest.mark.no_rerun

DAY_US = 24 * 3_600_000_000
SETTINGS = RelaySettings(batch_size=10, poll_interval_s=0.01, retry_wait_max_s=0.05)


@dataclass
class Bus:
    """A bus that remembers what arrived. While `is_away`, the first `arriving_before_failure` still get through."""

    messages: list[Message] = field(default_factory=list)
    is_away: bool = False
    arriving_before_failure: int = 0
    failure: BusError = field(default_factory=lambda: BusUnavailableError("amqp://bus", "connection reset"))
    failures: int = 0
    largest: int | None = None

    def publish(self, messages: Sequence[Message]) -> None:
        if self.largest is not None and any(len(message.body) > self.largest for message in messages):
            # What a broker confirms before it comes to the one that it refuses has arrived.
            self.messages.extend(messages[:1] if len(messages) > 1 else [])
            raise MessageRefusedError("amqp://bus", "message size is larger than configured max size")
        if self.is_away:
            self.messages.extend(messages[: self.arriving_before_failure])
            self.failures += 1
            raise self.failure
        self.messages.extend(messages)

    @property
    def changes(self) -> list[Message]:
        return [message for message in self.messages if "fleetlight-sequence" in message.headers]

    @property
    def sequences(self) -> list[int]:
        return [int(message.headers["fleetlight-sequence"]) for message in self.changes]

    @property
    def heartbeats(self) -> list[CellHeartbeatPayload]:
        bodies = [decode(message.body) for message in self.messages if "fleetlight-sequence" not in message.headers]
        assert {body.event_type for body in bodies} <= {"cell.heartbeat"}
        return [CellHeartbeatPayload.unwrap(body.payload) for body in bodies]


@pytest.fixture
def bus() -> Bus:
    return Bus()


class NewRelay(Protocol):
    def __call__(self, to: Bus | None = None, at: Clock | None = None, **settings: float) -> Relay: ...


@pytest.fixture
def new_relay(engine: Engine, cell: Cell, bus: Bus, clock: Clock) -> Iterator[NewRelay]:
    """A function that makes a relay of `cell`, by default to `bus`; all are closed at the end."""
    with ExitStack() as relays:

        def make(to: Bus | None = None, at: Clock | None = None, **settings: float) -> Relay:
            relay = Relay(engine, cell, to or bus, SETTINGS.model_copy(update=settings), at or clock)
            relays.callback(relay.close)
            return relay

        yield make


@pytest.fixture
def relay(new_relay: NewRelay) -> Relay:
    return new_relay()


def drain(relay: Relay) -> None:
    while relay.run_once():
        pass


@pytest.mark.parametrize("before", [0, 1])
def test_changes_are_published_whose_numbers_were_committed_without_an_answer(
    operations: InstanceOperations, relay: Relay, bus: Bus, monkeypatch: pytest.MonkeyPatch, before: int
) -> None:
    """before: changes that the relay has published until then."""
    for _ in range(before):
        operations.create({"display_name": "before"})
    drain(relay)
    operations.create({"display_name": "numbered"})
    give = RelayNumbers.give

    def give_unheard(numbers: RelayNumbers, most: int) -> int:
        monkeypatch.undo()
        give(numbers, most)
        raise OperationalError("COMMIT", {}, Exception("the connection was lost"))

    monkeypatch.setattr(RelayNumbers, "give", give_unheard)
    with pytest.raises(CellUnreachableError):
        relay.run_once()
    drain(relay)
    assert bus.sequences == list(range(1, before + 2))


@pytest.mark.parametrize("new_database", ["sqlite"], indirect=True)
def test_relay_of_a_cell_without_commits_promises_without_a_query(
    operations: InstanceOperations, new_relay: NewRelay, bus: Bus, engine: Engine, clock: Clock
) -> None:
    operations.create({"display_name": "first"})
    relay = new_relay(heartbeat_interval_s=1e-9)
    drain(relay)
    statements: list[str] = []
    event.listen(engine, "before_cursor_execute", lambda _c, _cursor, text, *_: statements.append(text))
    for _ in range(3):
        relay.run_once()
    assert statements == []
    assert [(each.sequence, to_microseconds(each.at) > 0) for each in bus.heartbeats[-3:]] == [(1, True)] * 3
    assert len({each.at for each in bus.heartbeats[-3:]}) == 3, "each is of the moment at which nothing was new"
    operations.create({"display_name": "second"})
    relay.run_once()
    assert bus.sequences == [1, 2]


def test_changes_are_published_in_order_with_their_numbers_in_the_headers(
    operations: InstanceOperations, relay: Relay, bus: Bus, cell: Cell
) -> None:
    uuid = operations.create({"display_name": "first"}).uuid
    operations.stop(uuid)
    drain(relay)

    created, stopped = bus.changes
    assert stopped.headers == {
        "fleetlight-epoch": bus.messages[-1].headers["fleetlight-epoch"],
        "fleetlight-cell": cell.uuid,
        "fleetlight-sequence": 2,
        "fleetlight-revision": 2,
        "fleetlight-resource": uuid,
    }
    assert stopped.routing_key == "versioned_notifications.info"
    assert [decode(message.body).event_type for message in (created, stopped)] == [
        "instance.create.end",
        "instance.power_off.end",
    ]
    assert from_payload(FullInstancePayload.unwrap(decode(stopped.body).payload))["vm_state"] == "stopped"


def test_change_that_no_bus_takes_is_left_to_the_changelog_and_the_others_go_on(
    engine: Engine, operations: InstanceOperations, relay: Relay, bus: Bus, cell: Cell
) -> None:
    for name in ("first", "second", "third"):
        operations.create({"display_name": name})
    with engine.begin() as connection:
        is_second = changes.c.id == select(func.min(changes.c.id) + 1).scalar_subquery()
        large = b"x" * (LARGEST_BODY_BYTES + 1)
        connection.execute(update(changes).where(is_second).values(message=large))
    drain(relay)
    assert bus.sequences == [1, 3]
    assert bus.heartbeats[-1].sequence == 3
    with closing(NativeAdapter(cell)) as adapter:
        assert [len(change.message) > LARGEST_BODY_BYTES for change in adapter.changes_after(0, 10)] == [
            False,
            True,
            False,
        ]


def test_change_that_is_a_text_where_bytes_should_be_stops_no_other(
    engine: Engine, operations: InstanceOperations, bus: Bus, cell: Cell
) -> None:
    """SQLite takes any value in any column, also of a program that is not ours."""
    operations.create_many([{}] * 2)
    with engine.begin() as connection:
        is_first = changes.c.id == select(func.min(changes.c.id)).scalar_subquery()
        connection.execute(update(changes).where(is_first).values(message=b"{cut off"))
        if engine.dialect.name == "sqlite":
            connection.exec_driver_sql(
                "UPDATE changes SET message = CAST(message AS TEXT) WHERE message = x'7b637574206f6666'"
            )
    key = SigningKey("key", b"secret")
    with closing(Relay(engine, cell, bus, SETTINGS, sign=lambda message: signed(message, key))) as relay:
        drain(relay)
    assert bus.sequences == [1, 2]
    assert bus.changes[0].body == b"{cut off"
    with closing(NativeAdapter(cell)) as adapter:
        assert adapter.changes_after(0, 1)[0].message == b"{cut off"


def test_change_that_the_broker_refuses_is_left_to_the_changelog_and_the_others_go_on(
    engine: Engine, operations: InstanceOperations, bus: Bus, cell: Cell
) -> None:
    registry = CollectorRegistry()
    for name in ("first", "x" * 10_000, "third"):
        operations.create({"display_name": name})
    bus.largest = 9_000
    with closing(Relay(engine, cell, bus, SETTINGS, metrics=RelayMetrics(registry))) as relay:
        drain(relay)
        assert sorted(set(bus.sequences)) == [1, 3]
        assert bus.heartbeats[-1].sequence == 3
        left_out = registry.get_sample_value("fleetlight_relay_left_out_changes_total", {"cell": cell.uuid})
        assert left_out == 1


def test_backlog_is_published_batch_by_batch(operations: InstanceOperations, relay: Relay, bus: Bus) -> None:
    operations.create_many([{}] * 25)
    assert [relay.run_once() for _ in range(4)] == [10, 10, 5, 0]
    assert bus.sequences == list(range(1, 26))


@pytest.mark.parametrize("arriving", [0, 4, 10])
def test_relay_that_was_cut_off_publishes_again_under_the_same_numbers(
    operations: InstanceOperations, new_relay: NewRelay, bus: Bus, arriving: int
) -> None:
    operations.create_many([{}] * 12)
    relay = new_relay()
    bus.is_away, bus.arriving_before_failure = True, arriving
    with pytest.raises(BusUnavailableError):
        relay.run_once()
    relay.close()
    operations.create_many([{}] * 3)

    bus.is_away = False
    drain(new_relay())
    assert bus.sequences == [*range(1, arriving + 1), *range(1, 16)]
    by_sequence = {message.headers["fleetlight-sequence"]: message for message in bus.changes}
    # The relay that took over is another epoch; nothing else differs.
    assert all(by_sequence[message.headers["fleetlight-sequence"]].body == message.body for message in bus.changes)


def test_relay_waits_for_a_bus_that_is_away_and_stops_when_told(
    operations: InstanceOperations, relay: Relay, bus: Bus
) -> None:
    operations.create({})
    bus.is_away = True
    stop = threading.Event()
    thread = threading.Thread(target=relay.run, args=(stop,))
    thread.start()
    wait_until(lambda: bus.failures > 0)
    bus.is_away = False
    wait_until(lambda: bus.sequences == [1])
    bus.is_away = True
    operations.create({})
    stop.set()
    thread.join(timeout=60)
    assert not thread.is_alive()
    assert not relay.is_active


def test_relay_waits_until_a_bus_that_cannot_be_used_is_put_right(
    operations: InstanceOperations, new_relay: NewRelay, bus: Bus
) -> None:
    operations.create({})
    bus.failure = BusError("a queue exists with other arguments")
    bus.is_away = True
    stop = threading.Event()
    with capture_logs() as logs:
        thread = threading.Thread(target=new_relay().run, args=(stop,))
        thread.start()
        wait_until(lambda: bus.failures >= 2)
        bus.is_away = False
        wait_until(lambda: bus.sequences == [1])
        # Who reads the log hears that it is over.
        wait_until(lambda: logs[-1]["event"] == "relay.cell_relayed_again")
        operations.create({})
        wait_until(lambda: bus.sequences == [1, 2])
    assert {entry["event"] for entry in logs[:-1]} == {"relay.waiting"}, "once"
    stop.set()
    thread.join(60)
    assert not thread.is_alive()


def test_span_of_a_change_begins_at_its_commit_and_ends_when_the_bus_has_it(
    operations: InstanceOperations, engine: Engine, cell: Cell, bus: Bus
) -> None:
    recorded = RecordedTraces()
    operations.create({})
    request = "req-46f4d8ac-e61c-452d-926b-b508626a50af"
    asked_for = Notification("service.update", {}, "nova-compute:h", "INFO", from_microseconds(1), "an-id", request)
    append_external(engine, cell, encode(asked_for), "versioned_notifications.info")
    now = count(system_clock() + 60_000_000, 1000)
    bus.is_away = True
    with closing(Relay(engine, cell, bus, SETTINGS, lambda: next(now), traces=recorded.traces)) as relay:
        fail_to_relay(relay, 2)
        assert recorded.spans == []
        bus.is_away = False
        drain(relay)
    untraced, traced = bus.changes
    [span] = recorded.spans
    assert span.context is not None
    assert span.attributes is not None
    assert "traceparent" not in untraced.headers
    assert traced.headers["traceparent"] == f"00-46f4d8ace61c452d926bb508626a50af-{span.context.span_id:016x}-01"
    began, ended = times(span)
    with engine.connect() as connection:
        assert began == connection.scalar(select(changes.c.committed_at).where(changes.c.sequence == 2))
    assert ended - began > 60_000_000
    assert span.attributes["fleetlight.outbox_wait_ms"] == (ended - 1000 - began) // 1000


def test_only_one_of_two_relays_publishes_and_the_other_takes_over(
    operations: InstanceOperations, new_relay: NewRelay, bus: Bus
) -> None:
    other_bus = Bus()
    relay, standby = new_relay(), new_relay(other_bus)
    operations.create_many([{}] * 3)
    assert relay.run_once() == len(bus.changes)
    operations.create({})
    assert standby.run_once() == 0
    assert not standby.is_active
    assert other_bus.messages == []

    relay.close()
    assert standby.run_once() == 1
    assert standby.is_active
    assert other_bus.sequences == [4]
    assert relay.run_once() == 0


@dataclass
class Checked:
    """The check of a bus, and whether some relay had the cell at each."""

    bus: Bus
    cell: Cell
    was_relayed: list[bool] = field(default_factory=list)

    def __call__(self) -> None:
        self.was_relayed.append(is_relayed(self.cell))
        if self.bus.is_away:
            raise self.bus.failure


def fail_to_relay(relay: Relay, times: int = 1) -> None:
    for _ in range(times):
        with pytest.raises(BusUnavailableError):
            relay.run_once()


def epochs_of(bus: Bus) -> list[Any]:
    """Those that changes were published under, in their order."""
    return list(dict.fromkeys(message.headers["fleetlight-epoch"] for message in bus.changes))


def test_relay_that_cannot_reach_the_bus_leaves_the_cell_to_one_that_can(
    operations: InstanceOperations, engine: Engine, cell: Cell, bus: Bus, clock: Clock
) -> None:
    registry = CollectorRegistry()
    metrics = RelayMetrics(registry, lambda: 2**60)

    def lag_s() -> float | None:
        return registry.get_sample_value("fleetlight_relay_lag_seconds", {"cell": cell.uuid})

    other_bus, check = Bus(), Checked(bus, cell)
    with (
        closing(Relay(engine, cell, other_bus, SETTINGS, clock)) as other,
        closing(Relay(engine, cell, bus, SETTINGS, clock, check_bus=check, metrics=metrics)) as relay,
    ):
        operations.create({})
        drain(relay)
        check.was_relayed.clear()
        bus.is_away = True
        operations.create({})
        fail_to_relay(relay, 3)
        assert not relay.is_active
        assert lag_s()
        assert other.run_once() == 1
        assert other_bus.sequences == [2]
        fail_to_relay(relay)
        assert lag_s() == 0
        assert check.was_relayed == [True, False, True], "only at the first look it still had the cell"
        bus.is_away = False
        assert relay.run_once() == 0
        assert not relay.is_active


def test_relays_that_all_wait_for_the_bus_begin_no_epoch(
    operations: InstanceOperations, engine: Engine, cell: Cell, bus: Bus
) -> None:
    check = Checked(bus, cell)
    with (
        closing(Relay(engine, cell, bus, SETTINGS, check_bus=check)) as relay,
        closing(Relay(engine, cell, bus, SETTINGS, check_bus=check)) as other,
    ):
        operations.create({})
        drain(relay)
        bus.is_away = True
        operations.create({})
        fail_to_relay(relay, 2)
        for each in (other, relay, other, relay):
            fail_to_relay(each)
        with engine.connect() as connection:
            assert connection.execute(select(func.count()).select_from(epochs)).scalar_one() == 1
        bus.is_away = False
        drain(relay)
    assert bus.sequences == [1, 2]


def test_relay_goes_on_with_its_epoch_when_the_bus_is_there_at_its_next_look(
    operations: InstanceOperations, engine: Engine, cell: Cell, bus: Bus
) -> None:
    with closing(Relay(engine, cell, bus, SETTINGS, check_bus=Checked(bus, cell))) as relay:
        operations.create({})
        drain(relay)
        bus.is_away = True
        operations.create({})
        fail_to_relay(relay)
        bus.is_away = False
        drain(relay)
    assert bus.sequences == [1, 2]
    assert len(epochs_of(bus)) == 1


def test_relay_that_let_go_does_not_take_a_restored_cell_for_what_it_left(
    operations: InstanceOperations, engine: Engine, cell: Cell, bus: Bus
) -> None:
    """The number of a change that another relay had published was given to another one, in an epoch before it."""
    other_bus = Bus()
    with closing(Relay(engine, cell, bus, SETTINGS, check_bus=Checked(bus, cell))) as relay:
        operations.create({})
        drain(relay)
        bus.is_away = True
        operations.create({})
        fail_to_relay(relay, 2)
        operations.create({})
        with closing(Relay(engine, cell, other_bus, SETTINGS)) as other:
            drain(other)
        assert other_bus.sequences == [2, 3]
        with engine.begin() as connection:  # the backup was made before the other one began
            newest = select(func.max(epochs.c.id)).scalar_subquery()
            connection.execute(delete(epochs).where(epochs.c.id == newest))
            connection.execute(update(cell_state).values(last_sequence=2))
            connection.execute(delete(changes).where(changes.c.sequence == 3))
        bus.is_away = False
        operations.create({})
        drain(relay)
    assert bus.sequences == [1, 3]
    assert len(epochs_of(bus)) == 2


def test_relay_promises_nothing_of_a_cell_that_was_restored_under_its_eyes(
    operations: InstanceOperations, new_relay: NewRelay, bus: Bus, engine: Engine
) -> None:
    relay = new_relay(heartbeat_interval_s=1e-9)
    operations.create({})
    operations.create({})
    drain(relay)
    promised = len(bus.heartbeats)
    with engine.begin() as connection:  # the backup was made between the two
        connection.execute(update(cell_state).values(last_sequence=1))
        connection.execute(delete(changes).where(changes.c.sequence == 2))
    relay.run_once()
    assert len(bus.heartbeats) == promised, "it is not known which changes of the backup have no number yet"
    relay.run_once()
    assert [beat.sequence for beat in bus.heartbeats[promised:]] == [1]
    operations.create({})
    drain(relay)
    assert bus.sequences == [1, 2, 2]
    assert len(epochs_of(bus)) == 2
    told = {message.headers["fleetlight-epoch"] for message in bus.messages[-1:]}
    assert told == {epochs_of(bus)[-1]}


def test_relay_that_stands_by_says_once_that_it_could_not_take_over(
    new_relay: NewRelay, engine: Engine, cell: Cell, bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    checks: list[None] = []
    wrong: list[BusError] = [BusUnavailableError("amqps://bus", "certificate verify failed")]

    def check() -> None:
        checks.append(None)
        for error in wrong:
            raise error

    new_relay().run_once()
    with closing(Relay(engine, cell, bus, SETTINGS, check_bus=check)) as standby, capture_logs() as logs:
        for _ in range(3):
            assert standby.run_once() == 0
        assert len(checks) == 1, "it looks now and then"
        assert [entry["event"] for entry in logs] == ["relay.standby_without_bus"], "at its first look"
        monkeypatch.setattr("fleetlight.cells.kinds.native.relay._CHECK_INTERVAL_S", 0.0)
        standby._bus.check_due_s = 0.0
        standby.run_once()
        wrong.clear()
        standby.run_once()
        standby.run_once()
    assert len(checks) == 4
    assert [entry["event"] for entry in logs] == ["relay.standby_without_bus", "relay.standby_has_bus_again"]
    assert "certificate verify failed" in logs[0]["reason"]


def test_heartbeat_promises_nothing_of_the_time_in_which_numbers_were_given(
    operations: InstanceOperations, new_relay: NewRelay, bus: Bus, engine: Engine
) -> None:
    """Who commits then, before the clock is looked at, gets no number any more."""
    commits = count()
    now = [next(commits)]
    event.listen(engine, "commit", lambda _connection: now.append(next(commits)))
    relay = new_relay(at=lambda: now[-1], heartbeat_interval_s=1e-9)
    relay.run_once()
    operations.create({})
    before = now[-1]
    relay.run_once()
    assert (bus.heartbeats[-1].sequence, bus.heartbeats[-1].at) == (1, from_microseconds(before))


def test_heartbeat_promises_only_what_has_a_number(
    operations: InstanceOperations, new_relay: NewRelay, bus: Bus, engine: Engine, cell: Cell
) -> None:
    relay = new_relay(heartbeat_interval_s=1e-9)
    relay.run_once()
    (first,) = bus.heartbeats
    assert (first.cell_uuid, first.sequence) == (cell.uuid, 0)

    operations.create_many([{}] * 15)
    relay.run_once()
    # Ten of fifteen have numbers, so the promise is still for the time of the first look.
    assert (bus.heartbeats[-1].sequence, bus.heartbeats[-1].at) == (10, first.at)
    relay.run_once()
    last = bus.heartbeats[-1]
    assert last.sequence == 15
    with engine.connect() as connection:
        committed_at = connection.execute(select(func.max(changes.c.committed_at))).scalar_one()
    assert to_microseconds(last.at) > committed_at
    # It comes after what it speaks of.
    assert bus.messages[-1] not in bus.changes
    assert bus.sequences == list(range(1, 16))


def test_changes_older_than_the_retention_are_forgotten_from_the_front(
    operations: InstanceOperations, new_relay: NewRelay, bus: Bus, cell: Cell
) -> None:
    now = 100 * DAY_US

    def relay_once(to: Bus = bus) -> None:
        # A new relay each time, since one looks only once a minute.
        relay = new_relay(to, lambda: now, changelog_retention_h=24.0)
        try:
            relay.run_once()
        finally:
            relay.close()

    operations.create_many([{}] * 3)
    relay_once()
    now += DAY_US // 2
    operations.create_many([{}] * 2)
    relay_once()
    adapter = NativeAdapter(cell)
    assert adapter.oldest_kept_sequence() == 1

    now += DAY_US // 2 + 1
    operations.create({})
    with pytest.raises(BusUnavailableError):
        relay_once(Bus(is_away=True))
    relay_once()
    assert adapter.oldest_kept_sequence() == 4
    assert [change.sequence for change in adapter.changes_after(0, 10)] == [4, 5, 6]

    now += 2 * DAY_US
    relay_once()
    assert adapter.changes_after(0, 10) == []
    assert adapter.oldest_kept_sequence() == adapter.published_sequence() + 1 == 7
    adapter.close()
    operations.create({})
    relay_once()
    assert bus.sequences == [1, 2, 3, 4, 5, 6, 7]


def test_changelog_gives_what_was_published_byte_for_byte(
    operations: InstanceOperations, relay: Relay, bus: Bus, cell: Cell
) -> None:
    operations.create_many([{}] * 5)
    drain(relay)
    adapter = NativeAdapter(cell)
    found = adapter.changes_after(2, 2)
    assert adapter.published_sequence() == 5
    adapter.close()
    assert [change.sequence for change in found] == [3, 4]
    assert [change.message for change in found] == [message.body for message in bus.changes[2:4]]
    assert [change.instance_uuid for change in found] == [
        message.headers["fleetlight-resource"] for message in bus.changes[2:4]
    ]


def test_external_notification_is_relayed_as_it_is_without_a_revision(
    engine: Engine, cell: Cell, relay: Relay, bus: Bus
) -> None:
    bodies = [
        encode(Notification(event_type, {}, "nova-compute:h", "INFO", from_microseconds(1), "an-id"))
        for event_type in ("instance.exists", "instance.update", "service.update")
    ]
    for body in bodies[:2]:
        append_external(engine, cell, body, "versioned_notifications.info", "some-uuid")
    append_external(engine, cell, bodies[2], "versioned_notifications.error")
    drain(relay)
    adapter = NativeAdapter(cell)
    # What is said of a service is in no index, so nothing is missed without it.
    assert [adapter.first_external_sequence(after) for after in range(3)] == [1, 2, None]
    adapter.close()
    assert [message.body for message in bus.changes] == bodies
    about_an_instance, _, other = bus.changes
    assert about_an_instance.headers["fleetlight-resource"] == "some-uuid"
    assert set(other.headers) == {"fleetlight-cell", "fleetlight-epoch", "fleetlight-sequence"}
    assert other.routing_key == "versioned_notifications.error"
    with pytest.raises(EnvelopeError):
        append_external(engine, cell, b"no notification", "versioned_notifications.info")


def test_external_notification_for_a_cell_without_tables_is_not_sent(
    cell: Cell, new_database: Callable[[], str]
) -> None:
    body = encode(Notification("service.update", {}, "nova-compute:h", "INFO", from_microseconds(1), "an-id"))
    empty = create_database_engine(new_database())
    with pytest.raises(CellUnreachableError, match="'one'"):
        append_external(empty, cell, body, "versioned_notifications.info")
    empty.dispose()


def test_relay_reports_a_cell_whose_folder_is_missing(cell: Cell, bus: Bus, tmp_path: Path) -> None:
    nowhere = create_database_engine(f"sqlite:///{tmp_path}/unmounted/cell.db")
    relay = Relay(nowhere, cell, bus, SETTINGS)
    with pytest.raises(CellUnreachableError, match=r"'one'.*unmounted"):
        relay.run_once()
    nowhere.dispose()


def test_relay_reports_a_cell_whose_tables_are_missing(cell: Cell, bus: Bus, new_database: Callable[[], str]) -> None:
    empty = create_database_engine(new_database())
    relay = Relay(empty, cell, bus, SETTINGS)
    with pytest.raises(CellUnreachableError, match="'one'"):
        relay.run_once()
    relay.close()
    empty.dispose()


def test_concurrent_changes_lose_nothing_and_keep_each_instance_in_order(
    operations: InstanceOperations, relay: Relay, bus: Bus, cell: Cell
) -> None:
    shared = [changed.uuid for changed in operations.create_many([{}] * 3)]
    stop = threading.Event()
    relaying = threading.Thread(target=relay.run, args=(stop,))
    relaying.start()

    def work(number: int) -> None:
        for lock in range(10):
            operations.update(shared[lock % 3], {"display_name": f"{number}-{lock}"})
            own = operations.create({"display_name": f"own {number}-{lock}"}).uuid
            operations.stop(own)

    workers = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    expected = 3 + 6 * 10 * 3
    wait_until(lambda: len(bus.changes) >= expected)
    stop.set()
    relaying.join(timeout=60)

    assert bus.sequences == list(range(1, expected + 1))
    revisions: dict[object, list[object]] = {}
    for message in bus.changes:
        revisions.setdefault(message.headers["fleetlight-resource"], []).append(message.headers["fleetlight-revision"])
    assert all(found == list(range(1, len(found) + 1)) for found in revisions.values())
    adapter = NativeAdapter(cell)
    for uuid in shared:
        row = adapter.find(uuid)
        assert row is not None
        assert row.revision == len(revisions[uuid])
        last = [message for message in bus.changes if message.headers["fleetlight-resource"] == uuid][-1]
        assert from_payload(FullInstancePayload.unwrap(decode(last.body).payload)) == row.record
    adapter.close()


def test_metrics_tell_what_was_published_and_how_long_the_oldest_change_waits(
    operations: InstanceOperations, engine: Engine, cell: Cell, bus: Bus, clock: Clock
) -> None:
    registry = CollectorRegistry()
    looked_at = [clock()]
    metrics = RelayMetrics(registry, lambda: looked_at[0])

    def sample(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(f"fleetlight_relay_{name}", {"cell": cell.uuid, **labels})

    relay = Relay(engine, cell, bus, SETTINGS, clock, metrics=metrics)
    for _ in range(3):
        operations.create({})
    bus.is_away = True
    with pytest.raises(BusUnavailableError):
        relay.run_once()
    with engine.connect() as connection:
        oldest = connection.execute(select(func.min(changes.c.committed_at))).scalar_one()
    looked_at[0] = oldest + 90_000_000
    assert (sample("active"), sample("sequence"), sample("lag_seconds")) == (1, 3, 90)
    assert not sample("published_changes_total")

    bus.is_away = False
    drain(relay)
    assert (sample("sequence"), sample("lag_seconds"), sample("published_changes_total")) == (3, 0, 3)
    relay.close()
    assert sample("active") == 0


def test_relay_that_has_never_reached_the_bus_tells_how_long_the_oldest_change_waits(
    operations: InstanceOperations, engine: Engine, cell: Cell, bus: Bus, clock: Clock
) -> None:
    registry = CollectorRegistry()
    for _ in range(2):
        operations.create({})
    bus.is_away = True
    with engine.connect() as connection:
        oldest = connection.execute(select(func.min(changes.c.committed_at))).scalar_one()
    metrics = RelayMetrics(registry, lambda: oldest + 90_000_000)
    check = Checked(bus, cell)
    with closing(Relay(engine, cell, bus, SETTINGS, clock, check_bus=check, metrics=metrics)) as relay:
        fail_to_relay(relay)
        assert not relay.is_active
        assert registry.get_sample_value("fleetlight_relay_lag_seconds", {"cell": cell.uuid}) == 90


def test_failures_of_the_bus_are_counted_while_they_are_waited_out(
    operations: InstanceOperations, engine: Engine, cell: Cell, bus: Bus
) -> None:
    registry = CollectorRegistry()
    relay = Relay(engine, cell, bus, SETTINGS, metrics=RelayMetrics(registry))
    operations.create({})
    bus.is_away = True
    with in_thread(relay.run):
        labels = {"cell": cell.uuid, "kind": "BusUnavailableError"}
        wait_until(lambda: (registry.get_sample_value("fleetlight_relay_failures_total", labels) or 0) > 2)
        bus.is_away = False
        wait_until(lambda: bus.sequences == [1])


def test_metrics_of_a_cell_begin_with_zero(engine: Engine, cell: Cell, bus: Bus) -> None:
    registry = CollectorRegistry()

    def metric(name: str) -> float | None:
        return registry.get_sample_value(f"fleetlight_relay_{name}", {"cell": cell.uuid})

    with in_thread(Relay(engine, cell, bus, SETTINGS, metrics=RelayMetrics(registry)).run):
        wait_until(lambda: metric("left_out_changes_total") == 0)
        assert metric("published_changes_total") == metric("lag_seconds") == 0
