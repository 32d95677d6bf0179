"""From a message that could not be indexed to a failure."""

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from fleetlight.bus.bus import Message
from fleetlight.bus.topology import RESOURCE_HEADER
from fleetlight.cells.errors import FleetUnreachableError
from fleetlight.indexer.errors import DeadLetterReason, MalformedMessageError
from fleetlight.indexer.metrics import IndexerMetrics
from fleetlight.indexer.writing.dead_letters import DeadLetter, DeadLetters, instance_of, to_failure, without_secrets
from fleetlight.notifications.envelope import LARGEST_BODY_BYTES
from fleetlight.notifications.errors import MessageRefusedError
from tests.support.memory.memory_bus import MemoryBus, MemoryReceiver
from tests.support.memory.memory_cell import CELL_UUID, NOW, ROUTING_KEY, MemoryCell
from tests.support.memory.memory_fleet import MemoryFailures
from tests.support.memory.stage import NativeStage

UUID = "7a1d5a0a-90b1-4f36-8f6e-0000000000aa"


def enveloped(inner: dict[str, object]) -> bytes:
    return json.dumps({"oslo.version": "2.0", "oslo.message": json.dumps(inner)}).encode()


def notification(**changes: object) -> dict[str, object]:
    payload = {"nova_object.name": "X", "nova_object.data": {"uuid": UUID}}
    return {"event_type": "instance.update", "payload": payload, "priority": "INFO"} | changes


@pytest.mark.parametrize("body", [enveloped(notification()), json.dumps(notification()).encode()])
def test_instance_is_found_in_a_message_that_cannot_be_read_as_a_whole(body: bytes) -> None:
    assert instance_of(Message(body, ROUTING_KEY, {})) == UUID


def test_instance_that_the_headers_name_goes_first_and_has_its_usual_form() -> None:
    headers: dict[str, int | str] = {RESOURCE_HEADER: UUID.upper()}
    assert instance_of(Message(b"{", ROUTING_KEY, headers)) == UUID


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"[" * 100_000,
        b"\xff",
        b"7",
        b"[]",
        b'{"oslo.message": 7}',
        enveloped(notification(payload=None)),
        enveloped(notification(event_type="keypair.create.end")),
        enveloped(notification(event_type=7)),
        enveloped(notification(payload={"nova_object.data": {"uuid": "no uuid\0"}})),
    ],
)
def test_message_that_says_nothing_of_an_instance_is_about_none(body: bytes) -> None:
    assert instance_of(Message(body, ROUTING_KEY, {})) is None


def test_request_context_of_the_sender_is_not_kept() -> None:
    inner = notification(_context_auth_token="secret", _context_roles=["admin"], _context_request_id="req-1")
    for body in (enveloped(inner), json.dumps(inner).encode()):
        kept = without_secrets(body)
        assert b"secret" not in kept
        decoded = json.loads(kept)
        decoded = json.loads(decoded["oslo.message"]) if "oslo.message" in decoded else decoded
        assert decoded == notification(_context_request_id="req-1")


@pytest.mark.parametrize(
    "body", [enveloped(notification()), b'{"oslo.message": "\\ud800"}', b"{", b"\xff", b"[1,  2]", b'{"a":  1e400}']
)
def test_other_messages_are_kept_byte_for_byte(body: bytes) -> None:
    assert without_secrets(body) == body


def test_id_is_that_of_the_message_as_it_came() -> None:
    body = enveloped(notification(_context_auth_token="secret"))
    letter = DeadLetter(Message(body, ROUTING_KEY, {}), DeadLetterReason.MALFORMED, "why")
    once, again = (to_failure(CELL_UUID, letter, moment) for moment in (1, 2))
    assert once.id == again.id
    assert once.body != body


class Stage(NativeStage[MemoryCell]):
    def __init__(self) -> None:
        super().__init__(MemoryCell())
        metrics = IndexerMetrics(self.registry)
        self.letters = DeadLetters(CELL_UUID, self.failures, self.bus.receiver(), metrics, lambda: NOW)

    def keep(self, *bodies: bytes) -> list[str]:
        messages = [Message(body, ROUTING_KEY, {}) for body in bodies]
        return self.letters.keep([DeadLetter(message, DeadLetterReason.MALFORMED, "why") for message in messages])


def test_message_on_a_broker_that_cells_share_is_one_dead_letter() -> None:
    failures, metrics = MemoryFailures(), IndexerMetrics(CollectorRegistry())
    message = Message(b"{", ROUTING_KEY, {})
    for cell_uuid in ("cell-a", "cell-b", "cell-c"):
        letters = DeadLetters(cell_uuid, failures, MemoryBus().receiver(), metrics, source="bus4/nova nova")
        letters.keep([DeadLetter(message, DeadLetterReason.MALFORMED, "why")])
    [kept] = failures.kept.values()
    assert (kept.summary.cell_uuid, kept.summary.times) == ("cell-a", 1)


def test_same_message_twice_in_a_batch_is_one_failure() -> None:
    stage = Stage()
    stage.keep(b"{", b"[", b"{")
    assert sorted(failure.summary.times for failure in stage.failures.kept.values()) == [1, 2]


def test_dead_letters_take_refuge_on_the_bus_while_the_fleet_database_is_away() -> None:
    stage = Stage()
    stage.failures.is_away = True
    assert stage.keep(b"{", enveloped(notification())) == [UUID]
    assert [reason for _, reason, _ in stage.bus.dead_lettered] == ["malformed", "malformed"]
    stage.letters.take_from_bus()
    assert len(stage.bus.dead_lettered) == 2
    stage.failures.is_away = False
    stage.letters.take_from_bus()
    assert stage.bus.dead_lettered == []
    assert stage.failures.found == [(b"{", "malformed", "why"), (enveloped(notification()), "malformed", "why")]


def test_dead_letter_that_the_broker_does_not_take_back_takes_refuge_without_its_body(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its limit may have been lowered since it let the message in."""
    dead_letter = MemoryReceiver.dead_letter

    def dead_letter_small(receiver: MemoryReceiver, message: Message, reason: str, detail: str) -> None:
        if len(message.body) > 1000:
            raise MessageRefusedError("memory://", "message size is larger than configured max size")
        dead_letter(receiver, message, reason, detail)

    monkeypatch.setattr(MemoryReceiver, "dead_letter", dead_letter_small)
    stage = Stage()
    stage.failures.is_away = True
    assert stage.keep(b"{" * 1001, b"[") == []
    assert [message.body[:12] for message, _, _ in stage.bus.dead_lettered] == [b"<1001 bytes ", b"["]


def test_dead_letters_are_not_taken_in_vain_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Brokers count that, and drop for good what was delivered too often."""
    taken: list[int] = []
    take_dead = MemoryReceiver.take_dead

    def counted(receiver: MemoryReceiver, keep: Callable[[Sequence[Message]], None], limit: int) -> int:
        taken.append(limit)
        return take_dead(receiver, keep, limit)

    monkeypatch.setattr(MemoryReceiver, "take_dead", counted)
    stage = Stage()
    stage.bus.dead_lettered.append((stage.cell.create(), "rejected by the broker", ""))
    stage.failures.is_away = True
    for _ in range(100):
        stage.letters.take_from_bus()
    assert len(taken) == 1
    stage.keep(b"{")
    stage.failures.is_away = False
    stage.letters.take_from_bus()
    assert stage.bus.dead_lettered == []
    assert len(stage.failures.kept) == 2


def test_headers_that_nobody_expects_are_texts_in_the_refuge() -> None:
    stage = Stage()
    stage.failures.is_away = True
    strange: Any = {"size": 1, "name": b"\xff", "when": None}
    stage.letters.keep([DeadLetter(Message(b"{", ROUTING_KEY, strange), DeadLetterReason.MALFORMED, "why")])
    [(message, _, _)] = stage.bus.dead_lettered
    assert message.headers == {"size": 1, "name": r"b'\xff'", "when": "None"}


def test_dead_letter_is_not_left_to_a_bus_that_ends_with_the_process() -> None:
    stage = Stage()
    stage.bus.is_durable = False
    stage.failures.is_away = True
    with pytest.raises(FleetUnreachableError):
        stage.keep(b"{")
    assert stage.bus.dead_lettered == []


def test_message_that_the_broker_has_given_up_on_is_a_failure() -> None:
    stage = Stage()
    stage.bus.dead_lettered.append((stage.cell.create(), "rejected by the broker", ""))
    stage.letters.take_from_bus()
    [failure] = stage.failures.kept.values()
    assert failure.summary.reason == "undeliverable"
    assert failure.summary.instance_uuid == failure.headers[RESOURCE_HEADER]


def test_large_messages_that_the_broker_has_given_up_on_are_told_apart_without_being_kept() -> None:
    stage = Stage()
    for byte in (b"x", b"y", b"y"):
        stage.bus.dead_lettered.append((Message(byte * (LARGEST_BODY_BYTES + 1), ROUTING_KEY, {}), "by the broker", ""))
    stage.letters.take_from_bus()
    assert sorted(failure.summary.times for failure in stage.failures.kept.values()) == [1, 2]
    assert all(len(failure.body) < 200 for failure in stage.failures.kept.values())


def test_why_a_message_is_dead_is_never_longer_than_somebody_would_read() -> None:
    error = MalformedMessageError.unexpected(KeyError("k" * 1_000_000))
    detail = DeadLetter.of(Message(b"{", ROUTING_KEY, {}), error).detail
    assert len(detail) < 1100
    assert detail.startswith("KeyError: 'kkk")
    assert "characters" in detail


def test_that_an_instance_was_read_again_is_not_worth_stopping_for() -> None:
    stage = Stage()
    stage.failures.is_away = True
    stage.letters.was_reread([UUID])
    stage.failures.is_away = False
    stage.letters.was_reread([UUID])
    assert stage.failures.reread == [UUID]
